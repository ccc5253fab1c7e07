//! An acknowledged write survives: the committed log contains the write, with the outcome that its
//! client was told.
//!
//! Source: durability, ZooKeeper's "Reliability" (zookeeperOver, "Guarantees"): once an update has
//! been applied, it persists. A node that acknowledges a write before the entry is on its disk
//! violates the invariant at the next loss of power.

use znode::{TxnOutcome, Zxid};

use super::Invariant;
use crate::history::History;
use crate::observation::Observation;

#[derive(Default)]
pub(super) struct AcknowledgedSurvive {
    /// Acknowledged writes that no node is seen to have applied yet.
    open: Vec<TxnOutcome>,
}

fn check(applied: &TxnOutcome, history: &History) -> Result<(), String> {
    let Some(committed) = history.entry(applied.zxid).and_then(|entry| entry.applied.as_ref()) else {
        return Err(format!("a write was acknowledged at {}, and there is another entry", applied.zxid));
    };
    // A retry is answered with the zxid and the reply of the first try. A repeated acquire is
    // answered with those of its own entry.
    if committed.zxid == applied.zxid && committed.reply != applied.reply {
        return Err(format!("at {} a client was told {:?}, not {:?}", applied.zxid, applied.reply, committed.reply));
    }
    Ok(())
}

impl Invariant for AcknowledgedSurvive {
    fn name(&self) -> &'static str {
        "acknowledged writes survive"
    }

    fn client(&mut self, seen: &Observation, history: &History, _: u64) -> Result<(), String> {
        let Observation::Acknowledged { applied, .. } = seen else { return Ok(()) };
        if applied.zxid > history.last() {
            self.open.push(applied.clone());
            return Ok(());
        }
        check(applied, history)
    }

    fn end(&mut self, history: &mut History) -> Result<(), String> {
        for applied in &self.open {
            if applied.zxid > history.last() {
                let Zxid(last) = history.last();
                return Err(format!("a write was acknowledged at {}, and the log ends at {last}", applied.zxid));
            }
            check(applied, history)?;
        }
        Ok(())
    }
}
