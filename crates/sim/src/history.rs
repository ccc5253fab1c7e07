//! The committed entries and the states that they lead to, applied once more by a plain loop.

use znode::{Applied, LogPosition, State, Term, Txn, Zxid, decode_txn};

use crate::log_disk::LogDisk;
use crate::observation::Commit;

/// One committed entry.
pub struct Entry {
    /// The term in which it was written.
    pub term: Term,
    /// What it says.
    pub txn: Option<Txn>,
    /// What it came to.
    pub applied: Option<Applied>,
    /// The state after it.
    pub state: State,
    /// When a node first wrote it.
    pub written_ms: u64,
    /// When a node was first seen to have applied it.
    pub seen_ms: u64,
    digest: Option<[u8; 32]>,
}

/// What was committed, from zxid 1 on.
#[derive(Default)]
pub struct History {
    entries: Vec<Entry>,
    start: State,
}

impl History {
    /// The last entry that is known to be committed.
    pub fn last(&self) -> Zxid {
        Zxid(self.entries.len() as u64)
    }

    /// An entry; none at zero and behind the last.
    pub fn entry(&self, zxid: Zxid) -> Option<&Entry> {
        self.entries.get(usize::try_from(zxid.0.checked_sub(1)?).ok()?)
    }

    /// The state after `zxid`.
    pub fn state(&self, zxid: Zxid) -> Option<&State> {
        if zxid == Zxid(0) { Some(&self.start) } else { self.entry(zxid).map(|entry| &entry.state) }
    }

    /// The digest of the state after `zxid`.
    pub fn digest(&mut self, zxid: Zxid) -> Option<[u8; 32]> {
        let index = usize::try_from(zxid.0.checked_sub(1)?).ok()?;
        let entry = self.entries.get_mut(index)?;
        Some(*entry.digest.get_or_insert_with(|| replica::Replica::digest(&entry.state)))
    }

    /// A node has applied up to `upto`: what is new of it is committed, and stands in this node's log, unless it came
    /// by snapshot.
    ///
    /// # Errors
    /// An entry that cannot be read.
    pub fn learn(&mut self, log: &LogDisk, upto: Zxid, now_ms: u64) -> Result<Vec<Zxid>, String> {
        let mut learnt = Vec::new();
        while self.last() < upto {
            let zxid = Zxid(self.last().0 + 1);
            let Some(archived) = log.archived(zxid.0) else { break };
            let id = archived.entry.log_id;
            let term = Term(id.committed_leader_id().term);
            let mut state = self.state(self.last()).cloned().unwrap_or_default();
            let at = LogPosition { term, zxid };
            let (txn, applied) = match archived.entry.payload {
                openraft::EntryPayload::Normal(command) => {
                    let txn = decode_txn(&command.0).map_err(|error| format!("entry {zxid}: {error}"))?;
                    let applied = state.apply(at, txn.clone());
                    (Some(txn), Some(applied))
                }
                _ => {
                    state.skip(at);
                    (None, None)
                }
            };
            let written_ms = archived.written_ms;
            self.entries.push(Entry { term, txn, applied, state, written_ms, seen_ms: now_ms, digest: None });
            learnt.push(zxid);
        }
        Ok(learnt)
    }

    /// An entry for people.
    pub fn in_words(&self, zxid: Zxid) -> String {
        match self.entry(zxid) {
            Some(Entry { term, txn: Some(txn), applied: Some(applied), .. }) => {
                let reply = format!("{:?}", applied.reply);
                format!("committed {zxid} in term {term}: {:?} -> {}", txn.request.op, crate::words::short(&reply))
            }
            Some(entry) => format!("committed {zxid} in term {}: nothing for the state", entry.term),
            None => format!("committed {zxid}"),
        }
    }

    /// An entry as the invariants look at it.
    pub fn commit(&self, zxid: Zxid, now_ms: u64) -> Option<Commit<'_>> {
        let entry = self.entry(zxid)?;
        Some(Commit {
            zxid,
            term: entry.term,
            txn: entry.txn.as_ref(),
            applied: entry.applied.as_ref(),
            before: self.state(Zxid(zxid.0 - 1))?,
            after: &entry.state,
            written_ms: entry.written_ms,
            now_ms,
        })
    }
}
