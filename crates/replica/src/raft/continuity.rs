//! The agreement of an append with what this node has committed.
//!
//! Raft takes a leader's word for committed entries: it compares nothing at or below its commit
//! index, so that an append of a caller that is no leader would put entries behind others of a
//! later term, which ends the process at the log, or commit what it never had. A correct leader has
//! all that is committed, so a frame that says otherwise is refused.
//!
//! To look costs a turn in Raft's queue. Frames that follow each other on a connection need none:
//! once one agrees, so does the next one that begins where it ended.

use std::cmp::Ordering;

use storage::codec::{LogIdRecord, VoteRecord};
use storage::{LogId, TypeConfig, Vote};

use crate::raft::consensus::Raft;
use crate::raft::transport::AppendFrame;

type RaftState = openraft::RaftState<TypeConfig>;

/// The outcome of the last frame of a connection.
#[derive(Debug, Default)]
pub(crate) struct Continuity {
    line: Option<LeaderLog>,
}

/// Entries of one leader, up to the last one that was told of on this connection.
#[derive(Clone, Copy, Debug)]
struct LeaderLog {
    vote: VoteRecord,
    last: LogIdRecord,
    commit: Option<LogIdRecord>,
    /// The index from which on all entries of the leader are of its own term.
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

    /// Tells whether a frame goes on where the one before ended.
    fn leads_to(&self, frame: &AppendFrame) -> bool {
        self.vote == frame.vote && frame.prev_log_id == Some(self.last) && self.covers(frame.leader_commit.as_ref())
    }

    /// Tells whether the leader's log has this entry, as far as can be told from here.
    fn covers(&self, commit: Option<&LogIdRecord>) -> bool {
        commit == self.commit.as_ref()
            || commit.is_some_and(|id| id.term == self.vote.term && self.own_from.is_some_and(|from| id.index >= from))
    }
}

/// The knowledge of this node's Raft at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) vote: VoteRecord,
    pub(crate) committed: Option<LogIdRecord>,
    pub(crate) last: Option<LogIdRecord>,
    /// True if what a leader told of its log agrees with all that is committed here.
    pub(crate) agrees: bool,
}

impl Look {
    /// Tells whether this node knows that the leader with this vote was deposed. Its log may well
    /// contradict what was committed since: that is no fault of it, and it steps down when it hears
    /// of this node's vote.
    pub(crate) fn deposes(&self, vote: VoteRecord) -> bool {
        // Votes are ordered in part only; Raft takes none that it cannot compare either.
        Vote::from(vote).partial_cmp(&Vote::from(self.vote)).is_none_or(Ordering::is_lt)
    }
}

impl Continuity {
    /// Asks Raft what it knows about a frame; nothing for one that agrees because the one before it
    /// did. When Raft has ended, the next call of it says so.
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

/// Asks Raft what it knows, and whether these entries of a leader's log agree with that. `None`
/// when it has ended.
pub(crate) async fn look(raft: &Raft, told: Vec<LogIdRecord>) -> Option<Look> {
    let look = raft.with_raft_state(move |state| Look {
        vote: state.vote_ref().into(),
        committed: state.local_committed().map(LogIdRecord::from),
        last: state.log_ids.last().map(LogIdRecord::from),
        agrees: told.iter().all(|id| agrees_with(state, id)),
    });
    look.await.ok()
}

/// Tells whether an entry of a leader's log may be there when this node's log is right.
fn agrees_with(state: &RaftState, id: &LogIdRecord) -> bool {
    let Some(committed) = state.local_committed() else { return true };
    if id.index > committed.index {
        return id.term >= committed.committed_leader_id().term;
    }
    match state.log_ids.get(id.index) {
        Some(own) => own == LogId::from(*id),
        // Purged entries are known by the last one only.
        None => state.log_ids.purged().is_none_or(|purged| id.term <= purged.committed_leader_id().term),
    }
}
