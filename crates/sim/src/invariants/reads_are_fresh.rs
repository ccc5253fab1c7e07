//! A linearizable read shows everything that any client was told before the read began. A local
//! read shows everything that its own client has seen.
//!
//! Source: linearizability (Herlihy and Wing 1990), by Raft's read index (Ongaro's dissertation,
//! section 6.4); and ZooKeeper's single system image for local reads with a minimum zxid.

use super::Invariant;
use crate::history::History;
use crate::observation::Observation;

pub(super) struct ReadsAreFresh;

impl Invariant for ReadsAreFresh {
    fn name(&self) -> &'static str {
        "reads are fresh"
    }

    fn client(&mut self, seen: &Observation, _: &History, _: u64) -> Result<(), String> {
        match seen {
            Observation::Read { client, linearizable, floor, zxid } if zxid < floor => {
                let kind = if *linearizable { "linearizable" } else { "local" };
                Err(format!("client {client} got state {zxid} by a {kind} read that must not be older than {floor}"))
            }
            _ => Ok(()),
        }
    }
}
