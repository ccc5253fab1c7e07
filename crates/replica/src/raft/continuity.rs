//! Check that a leader's append agrees with the entries that this node has committed.
//!
//! Raft does not compare entries at or below its commit index with what a leader sends. So a sender
//! that is no leader could append entries of an earlier term behind entries of a later term, which
//! makes the log end the process. Such a sender could also make this node commit entries that no
//! leader had. A correct leader has every committed entry, so a frame that contradicts a committed
//! entry is refused.
//!
//! A check takes time, because it waits in Raft's queue. Most frames on a connection need no check:
//! if a frame agrees, so does the next frame, as long as that begins where the first ended.

use std::cmp::Ordering;

use storage::codec::{LogIdRecord, VoteRecord};
use storage::{LogId, TypeConfig, Vote};

use crate::raft::consensus::Raft;
use crate::raft::transport::AppendFrame;

type RaftState = openraft::RaftState<TypeConfig>;

/// The leader's entries that are known, from the frames of one connection, to agree with this
/// node's.
#[derive(Debug, Default)]
pub(crate) struct Continuity {
    line: Option<LeaderLog>,
}

/// The leader's log up to the last entry that came on this connection.
#[derive(Clone, Copy, Debug)]
struct LeaderLog {
    vote: VoteRecord,
    last: LogIdRecord,
    commit: Option<LogIdRecord>,
    /// Index from which on all entries of the leader are of its own term; `None` if not known yet.
    own_from: Option<u64>,
}

impl LeaderLog {
    fn new(vote: VoteRecord, last: LogIdRecord, commit: Option<LogIdRecord>) -> LeaderLog {
        LeaderLog { vote, last, commit, own_from: None }.with(&last)
    }

    fn with(self, id: &LogIdRecord) -> LeaderLog {
        let own = (id.term == self.vote.term).then_some(id.index);
        LeaderLog { last: *id, own_from: self.own_from.or(own), ..self }
    }

    /// Tells whether a frame begins where the last frame ended, so that it agrees without a check.
    fn leads_to(&self, frame: &AppendFrame) -> bool {
        self.vote == frame.vote && frame.prev_log_id == Some(self.last) && self.covers(frame.leader_commit.as_ref())
    }

    /// Tells whether the leader's log has the entry `commit`, as far as the frames on this
    /// connection show.
    fn covers(&self, commit: Option<&LogIdRecord>) -> bool {
        commit == self.commit.as_ref()
            || commit.is_some_and(|id| id.term == self.vote.term && self.own_from.is_some_and(|from| id.index >= from))
    }
}

/// Vote and log of this node's Raft at one moment, and whether a leader's entries agree with them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) vote: VoteRecord,
    pub(crate) committed: Option<LogIdRecord>,
    pub(crate) last: Option<LogIdRecord>,
    /// True if all entries of the leader's log that were compared agree with the committed entries
    /// of this node. Also true if none were compared.
    pub(crate) agrees: bool,
}

impl Look {
    /// Tells whether this node has a newer vote, so that the leader with `vote` no longer leads.
    /// Such a leader's log may contradict later commits, and it steps down when it gets this node's
    /// vote.
    pub(crate) fn deposes(&self, vote: VoteRecord) -> bool {
        // Neither of two votes may be the greater one. Raft does not accept such a vote either.
        Vote::from(vote).partial_cmp(&Vote::from(self.vote)).is_none_or(Ordering::is_lt)
    }
}

impl Continuity {
    /// Asks Raft whether a frame agrees with the committed entries. Returns `None` for a frame that
    /// needs no check, because the frame before it agreed. Returns `None`, too, when Raft has
    /// ended; the next call of Raft reports that.
    pub(crate) async fn look(&mut self, raft: &Raft, frame: &AppendFrame) -> Option<Look> {
        let line = self.line.take();
        let ids = || frame.entries.iter().map(|entry| entry.log_id);
        let (first, asked) = match line.filter(|line| line.leads_to(frame)) {
            Some(line) => (Some(LeaderLog { commit: frame.leader_commit, ..line }), None),
            None => {
                let told = frame.prev_log_id.into_iter().chain(ids()).chain(frame.leader_commit).collect();
                let asked = look(raft, told).await;
                if asked.is_some_and(|look| !look.agrees || look.deposes(frame.vote)) {
                    return asked;
                }
                let first = frame.prev_log_id.or(ids().next());
                (first.map(|first| LeaderLog::new(frame.vote, first, frame.leader_commit)), asked)
            }
        };
        self.line = first.map(|line| ids().fold(line, |line, id| line.with(&id)));
        asked
    }
}

/// Asks Raft for its vote and log, and whether the entries `told` of a leader's log agree with the
/// committed entries of this node. `None` when Raft has ended.
pub(crate) async fn look(raft: &Raft, told: Vec<LogIdRecord>) -> Option<Look> {
    let look = raft.with_raft_state(move |state| Look {
        vote: state.vote_ref().into(),
        committed: state.local_committed().map(LogIdRecord::from),
        last: state.log_ids.last().map(LogIdRecord::from),
        agrees: told.iter().all(|id| agrees_with(state, id)),
    });
    look.await.ok()
}

/// Tells whether this node's log has the entry `id`, or had it before it was purged. Also true when
/// Raft has ended.
pub(crate) async fn may_have(raft: &Raft, id: LogIdRecord) -> bool {
    let has = raft.with_raft_state(move |state| {
        let is_purged = state.log_ids.purged().is_some_and(|purged| id.index <= purged.index);
        is_purged || state.log_ids.get(id.index) == Some(LogId::from(id))
    });
    has.await.unwrap_or(true)
}

/// Tells whether an entry of a leader's log agrees with the entries that this node has committed.
fn agrees_with(state: &RaftState, id: &LogIdRecord) -> bool {
    let Some(committed) = state.local_committed() else { return true };
    if id.index > committed.index {
        return id.term >= committed.committed_leader_id().term;
    }
    match state.log_ids.get(id.index) {
        Some(own) => own == LogId::from(*id),
        // Of purged entries only the last one is known.
        None => state.log_ids.purged().is_none_or(|purged| id.term <= purged.committed_leader_id().term),
    }
}
