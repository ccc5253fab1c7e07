//! Check that an append agrees with what this node has committed.
//!
//! Raft compares nothing at or below its commit index with what a leader sends. So a node that is
//! no leader could append entries of an earlier term behind entries of a later one, at which the
//! log ends the process, or could commit entries that no leader had. A correct leader has every
//! committed entry, so a frame that contradicts a committed entry is refused.
//!
//! A check costs a turn in Raft's queue. Frames that follow each other on a connection need none:
//! once a frame agrees, so does a frame that begins where it ended.

use std::cmp::Ordering;

use storage::codec::{LogIdRecord, VoteRecord};
use storage::{LogId, TypeConfig, Vote};

use crate::raft::consensus::Raft;
use crate::raft::transport::AppendFrame;

type RaftState = openraft::RaftState<TypeConfig>;

/// Entries up to which the frames of one connection are known to agree.
#[derive(Debug, Default)]
pub(crate) struct Continuity {
    line: Option<LeaderLog>,
}

/// Entries of one leader, up to the last one that was sent on this connection.
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

    /// Tells whether a frame goes on where the last one ended.
    fn leads_to(&self, frame: &AppendFrame) -> bool {
        self.vote == frame.vote && frame.prev_log_id == Some(self.last) && self.covers(frame.leader_commit.as_ref())
    }

    /// Tells whether the leader's log has this entry, as far as this connection shows.
    fn covers(&self, commit: Option<&LogIdRecord>) -> bool {
        commit == self.commit.as_ref()
            || commit.is_some_and(|id| id.term == self.vote.term && self.own_from.is_some_and(|from| id.index >= from))
    }
}

/// Facts that this node's Raft knew at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) vote: VoteRecord,
    pub(crate) committed: Option<LogIdRecord>,
    pub(crate) last: Option<LogIdRecord>,
    /// True if the entries that a leader named agree with all that is committed here.
    pub(crate) agrees: bool,
}

impl Look {
    /// Tells whether this node knows that the leader with this vote was deposed. The log of such a
    /// leader may rightly contradict later commits, and it steps down when it hears of this node's
    /// vote.
    pub(crate) fn deposes(&self, vote: VoteRecord) -> bool {
        // Two votes may be incomparable. Raft does not accept such a vote either.
        Vote::from(vote).partial_cmp(&Vote::from(self.vote)).is_none_or(Ordering::is_lt)
    }
}

impl Continuity {
    /// Asks Raft about a frame. Returns `None` for a frame that agrees because the one before it
    /// did, and when Raft has ended, which the next call of Raft reports.
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

/// Asks Raft for its state, and whether these entries of a leader's log agree with it. `None` when
/// Raft has ended.
pub(crate) async fn look(raft: &Raft, told: Vec<LogIdRecord>) -> Option<Look> {
    let look = raft.with_raft_state(move |state| Look {
        vote: state.vote_ref().into(),
        committed: state.local_committed().map(LogIdRecord::from),
        last: state.log_ids.last().map(LogIdRecord::from),
        agrees: told.iter().all(|id| agrees_with(state, id)),
    });
    look.await.ok()
}

/// Tells whether a leader's log may have this entry if this node's log is right.
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
