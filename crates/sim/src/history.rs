//! History of a run: the committed entries and the states that they lead to, computed by a plain
//! loop apart from the nodes.

use std::collections::BTreeSet;

use storage::Membership;
use znode::{LogPosition, State, Term, Txn, TxnOutcome, Zxid, decode_txn};

use crate::counts::Counts;
use crate::log_disk::LogDisk;

/// One committed log entry.
pub struct Entry {
    /// The zxid of the entry.
    pub zxid: Zxid,
    /// The Raft term of the entry.
    pub term: Term,
    /// The transaction; `None` for another kind of entry.
    pub txn: Option<Txn>,
    /// The cluster's membership from this entry on; `None` for another kind of entry.
    pub membership: Option<Membership>,
    /// The result of the transaction; `None` for another kind of entry.
    pub applied: Option<TxnOutcome>,
    /// The state after the entry.
    pub state: State,
    /// The time at which a node first wrote the entry.
    pub written_ms: u64,
    /// The time at which a node was first seen to have applied the entry.
    pub seen_ms: u64,
    digest: Option<[u8; 32]>,
}

/// A committed log entry, as invariants see it.
pub struct Commit<'a> {
    /// The entry.
    pub entry: &'a Entry,
    /// The state before the entry.
    pub before: &'a State,
    /// The present simulated time.
    pub now_ms: u64,
}

/// All log entries that are known to be committed, from log index 1 on.
#[derive(Default)]
pub struct History {
    entries: Vec<Entry>,
    start: State,
    /// The index of the last entry with a membership; `None` before the first such entry.
    members: Option<u64>,
    /// All present and former members; at first the founders.
    ever_members: BTreeSet<u64>,
    /// Counts of members added, promoted, replaced and removed.
    pub changes: Counts,
}

impl History {
    /// The zxid of the last entry that is known to be committed.
    pub fn last(&self) -> Zxid {
        self.entries.last().map_or(Zxid(0), |entry| entry.zxid)
    }

    /// The index of the last entry that is known to be committed. It is also the number of entries.
    pub fn last_index(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The log index of the entry with this zxid; `None` if no committed entry has it.
    pub fn index(&self, zxid: Zxid) -> Option<u64> {
        self.position(zxid).map(|position| position as u64 + 1)
    }

    /// The entry with this zxid; `None` if no committed entry has it.
    pub fn entry(&self, zxid: Zxid) -> Option<&Entry> {
        self.entries.get(self.position(zxid)?)
    }

    /// Returns the entries after `since`, up to and with `upto`.
    pub fn between(&self, since: Zxid, upto: Zxid) -> impl Iterator<Item = &Entry> {
        let first = self.entries.partition_point(|entry| entry.zxid <= since);
        self.entries[first..].iter().take_while(move |entry| entry.zxid <= upto)
    }

    /// The last membership that is known to be committed, and its index; `None` before the first
    /// change.
    pub fn membership(&self) -> Option<(u64, &Membership)> {
        let index = self.members?;
        Some((index, self.entries.get(index as usize - 1)?.membership.as_ref()?))
    }

    /// Tells whether this node is, or was, a member.
    pub fn was_member(&self, id: u64) -> bool {
        self.ever_members.contains(&id)
    }

    /// Sets the founders of the cluster.
    pub fn found(&mut self, founders: impl Iterator<Item = u64>) {
        self.ever_members = founders.collect();
    }

    fn note(&mut self, index: u64, membership: &Membership) {
        let (sets, members) = match self.membership() {
            Some((_, before)) => (before.get_joint_config().clone(), before.nodes().map(|(id, _)| *id).collect()),
            None => (vec![self.ever_members.clone()], self.ever_members.clone()),
        };
        let now: BTreeSet<u64> = membership.nodes().map(|(id, _)| *id).collect();
        match (&sets[..], &membership.get_joint_config()[..]) {
            ([before], [now]) => self.changes.note("members promoted", now.difference(before).count() as u64),
            ([_, _], [_]) => self.changes.note("members replaced", 1),
            _ => {}
        }
        self.changes.note("members added", now.difference(&members).count() as u64);
        self.changes.note("members removed", members.difference(&now).count() as u64);
        self.ever_members.extend(now);
        self.members = Some(index);
    }

    fn position(&self, zxid: Zxid) -> Option<usize> {
        self.entries.binary_search_by_key(&zxid, |entry| entry.zxid).ok()
    }

    /// The state after the entry `zxid`; `None` if no committed entry has this zxid.
    pub fn state(&self, zxid: Zxid) -> Option<&State> {
        if zxid == Zxid(0) { Some(&self.start) } else { self.entry(zxid).map(|entry| &entry.state) }
    }

    /// The digest of the state after the entry `zxid`; `None` if no committed entry has this zxid.
    pub fn digest(&mut self, zxid: Zxid) -> Option<[u8; 32]> {
        let position = self.position(zxid)?;
        let entry = self.entries.get_mut(position)?;
        Some(*entry.digest.get_or_insert_with(|| replica::Replica::digest(&entry.state)))
    }

    /// Adds the entries up to `upto`, which are committed because a node has applied them. `log` is
    /// that node's log, which lacks entries that came by a snapshot. Returns the zxids of the new
    /// entries.
    pub fn learn(&mut self, log: &LogDisk, upto: Zxid, now_ms: u64) -> Result<Vec<Zxid>, String> {
        let mut learnt = Vec::new();
        while self.last() < upto {
            let index = self.last_index() + 1;
            let Some(archived) = log.archived(index) else { break };
            let id = archived.entry.log_id;
            let term = Term(id.committed_leader_id().term);
            let mut state = self.state(self.last()).cloned().unwrap_or_default();
            let (txn, membership) = match archived.entry.payload {
                openraft::EntryPayload::Normal(command) => {
                    (Some(decode_txn(&command.0).map_err(|error| format!("entry {index}: {error}"))?), None)
                }
                openraft::EntryPayload::Membership(membership) => (None, Some(membership)),
                openraft::EntryPayload::Blank => (None, None),
            };
            if let Some(membership) = &membership {
                self.note(index, membership);
            }
            let zxid = state.zxid_of(index, txn.as_ref().map(|txn| &txn.request));
            let at = LogPosition { term, zxid };
            let applied = txn.clone().map(|txn| state.apply(at, txn));
            if applied.is_none() {
                state.skip(at);
            }
            let written_ms = archived.written_ms;
            self.entries.push(Entry {
                zxid,
                term,
                txn,
                membership,
                applied,
                state,
                written_ms,
                seen_ms: now_ms,
                digest: None,
            });
            learnt.push(zxid);
        }
        Ok(learnt)
    }

    /// Returns an entry in words for people.
    pub fn in_words(&self, zxid: Zxid) -> String {
        match self.entry(zxid) {
            Some(Entry { term, txn: Some(txn), applied: Some(applied), .. }) => {
                let reply = format!("{:?}", applied.reply);
                format!("committed {zxid} in term {term}: {:?} -> {}", txn.request.op, crate::words::short(&reply))
            }
            Some(Entry { term, membership: Some(membership), .. }) => {
                format!("committed {zxid} in term {term}: {}", crate::words::membership(membership))
            }
            Some(entry) => format!("committed {zxid} in term {}: nothing for the state", entry.term),
            None => format!("committed {zxid}"),
        }
    }

    /// Returns an entry as invariants see it, with the states before and after it.
    pub fn commit(&self, zxid: Zxid, now_ms: u64) -> Option<Commit<'_>> {
        let position = self.position(zxid)?;
        let before = position.checked_sub(1).map_or(&self.start, |before| &self.entries[before].state);
        Some(Commit { entry: &self.entries[position], before, now_ms })
    }
}
