//! Whether an append agrees with what this node has committed.
//!
//! Raft takes a leader's word for committed entries: it compares nothing at or below its commit index, so that an append of
//! somebody who is no leader would put entries behind others of a later term, which ends the process at the log, or commit
//! what it never had. A correct leader has all that is committed, so a frame that says otherwise is refused.
//!
//! To look costs a turn in Raft's queue. Frames that follow each other on a connection need none: once one agrees, so does
//! the next one that begins where it ended.

use storage::codec::{LogIdRecord, VoteRecord};
use storage::{LogId, TypeConfig};

use crate::node::Raft;
use crate::transport::AppendFrame;

type RaftState = openraft::RaftState<TypeConfig>;

/// What the last frame of a connection came to.
#[derive(Debug, Default)]
pub(crate) struct Continuity {
    line: Option<Line>,
}

/// Entries of one leader, up to the last one that was told of on this connection.
#[derive(Clone, Copy, Debug)]
struct Line {
    vote: VoteRecord,
    last: LogIdRecord,
    commit: Option<LogIdRecord>,
    /// From this index on all entries of the leader are of its own term.
    own_from: Option<u64>,
}

impl Line {
    fn new(vote: VoteRecord, last: LogIdRecord, commit: Option<LogIdRecord>) -> Line {
        Line { vote, last, commit, own_from: None }.with(&last)
    }

    fn with(self, id: &LogIdRecord) -> Line {
        let own = (id.term == self.vote.term).then_some(id.index);
        Line { last: *id, own_from: self.own_from.or(own), ..self }
    }

    /// Whether a frame goes on where the one before ended.
    fn leads_to(&self, frame: &AppendFrame) -> bool {
        self.vote == frame.vote && frame.prev_log_id == Some(self.last) && self.covers(frame.leader_commit.as_ref())
    }

    /// Whether the leader's log has this entry, as far as can be told from here.
    fn covers(&self, commit: Option<&LogIdRecord>) -> bool {
        commit == self.commit.as_ref()
            || commit.is_some_and(|id| id.term == self.vote.term && self.own_from.is_some_and(|from| id.index >= from))
    }
}

impl Continuity {
    /// Whether the frame agrees with all that is committed here.
    pub(crate) async fn agrees(&mut self, raft: &Raft, frame: &AppendFrame) -> bool {
        let line = self.line.take();
        let ids = || frame.entries.iter().map(|entry| entry.log_id);
        let first = match line.filter(|line| line.leads_to(frame)) {
            Some(line) => Some(Line { commit: frame.leader_commit, ..line }),
            None => {
                let told = frame.prev_log_id.into_iter().chain(ids()).chain(frame.leader_commit).collect();
                if !agree(raft, told).await {
                    return false;
                }
                let first = frame.prev_log_id.or(ids().next());
                first.map(|first| Line::new(frame.vote, first, frame.leader_commit))
            }
        };
        self.line = first.map(|line| ids().fold(line, |line, id| line.with(&id)));
        true
    }
}

/// Whether these entries of a leader's log agree with all that is committed here.
pub(crate) async fn agree(raft: &Raft, told: Vec<LogIdRecord>) -> bool {
    let agrees = raft.with_raft_state(move |state| told.iter().all(|id| agrees_with(state, id))).await;
    // When Raft has ended, the next call of it says so.
    agrees.unwrap_or(true)
}

/// Whether an entry of a leader's log may be there when this node's log is right.
fn agrees_with(state: &RaftState, id: &LogIdRecord) -> bool {
    let Some(committed) = state.local_committed() else { return true };
    if id.index > committed.index {
        return id.term >= committed.committed_leader_id().term;
    }
    match state.log_ids.get(id.index) {
        Some(own) => own == LogId::from(*id),
        // What is purged is known by its last entry only.
        None => state.log_ids.purged().is_none_or(|purged| id.term <= purged.committed_leader_id().term),
    }
}
