//! A node whose log and the leader's exclude each other: one of their disks has gone back in time.
//!
//! A leader has every entry that was ever committed, and a follower has every entry that it said to be on its disk. Neither can
//! fail to be so while disks keep what they were given. They do not when an old copy of a data directory is put back, or a
//! disk lies about what it has written. Two histories exist then, and tokens may have been granted twice. No rule of Raft's
//! tells the right one, so the node that sees it stops, and says which pages of its log and of the leader's contradict.
//!
//! Raft itself would not notice: it takes what a follower has committed for equal to what the leader has there.

use openraft::async_runtime::watch::WatchReceiver;
use storage::Vote;
use storage::codec::{EntryRecord, LogIdRecord};

use crate::node::Node;
use crate::transport::AppendFrame;

/// What this node knows for sure.
#[derive(Clone, Copy, Debug)]
struct Known {
    committed: Option<LogIdRecord>,
    last: Option<LogIdRecord>,
}

/// Why this node and the leader that sent `frame` cannot both be right, if so. To be asked before Raft sees the frame.
///
/// The first look takes what this node last published about itself. That is true, though perhaps no longer all; only where
/// it seems to contradict the frame is Raft asked.
pub(crate) async fn contradiction(node: &Node, frame: &AppendFrame) -> Option<String> {
    // Before it has joined, a node has forgotten what it said: its disk is new.
    if !node.gate.joined() {
        return None;
    }
    let published = {
        let metrics = node.raft_metrics.borrow_watched();
        let last = metrics.last_log_index.map(|index| LogIdRecord { term: u64::MAX, index });
        Known { committed: metrics.last_applied.as_ref().map(LogIdRecord::from), last }
    };
    judge(published, frame)?;
    let vote = Vote::from(frame.vote);
    let known = node.raft.with_raft_state(move |state| {
        // A deposed leader may well have less. Raft tells it so.
        let follows = vote >= *state.vote_ref();
        follows.then(|| Known {
            committed: state.local_committed().map(LogIdRecord::from),
            last: state.log_ids.last().map(LogIdRecord::from),
        })
    });
    let known = known.await.ok()??;
    let why = judge(known, frame)?;
    Some(format!(
        "this node and leader {} contradict each other: {why}. The data directory of one of them is an old copy, or its \
         disk has lost what it had written; see docs/storage-trouble.md, \"A node that knows more than its leader\"",
        frame.vote.node_id
    ))
}

fn judge(known: Known, frame: &AppendFrame) -> Option<String> {
    if let Some(acknowledged) = frame.acknowledged
        && known.last.is_none_or(|last| acknowledged.index > last.index)
    {
        let LogIdRecord { term, index } = acknowledged;
        let last = known.last.map_or(0, |last| last.index);
        return Some(format!("entry {index} of term {term} was on this node's disk, whose log ends at {last} now"));
    }
    let committed = known.committed?;
    let ids = frame.prev_log_id.into_iter().chain(ids_up_to(committed.index, &frame.entries));
    let other = ids.into_iter().find(|id| !may_both_be(committed, *id))?;
    Some(format!(
        "entry {} of term {} is committed here, and the leader has entry {} of term {}",
        committed.index, committed.term, other.index, other.term
    ))
}

/// The positions of the first entries, and of the first one behind `index`.
fn ids_up_to(index: u64, entries: &[EntryRecord]) -> impl Iterator<Item = LogIdRecord> {
    let behind = entries.iter().take_while(move |entry| entry.log_id.index <= index).count();
    entries.iter().take(behind + 1).map(|entry| entry.log_id)
}

/// Whether one log may have both entries: its terms never go back, and it has one entry at an index.
fn may_both_be(committed: LogIdRecord, other: LogIdRecord) -> bool {
    match other.index.cmp(&committed.index) {
        std::cmp::Ordering::Less => other.term <= committed.term,
        std::cmp::Ordering::Equal => other.term == committed.term,
        std::cmp::Ordering::Greater => other.term >= committed.term,
    }
}

#[cfg(test)]
mod tests {
    use storage::codec::{PayloadRecord, VoteRecord};

    use super::*;

    fn id(term: u64, index: u64) -> LogIdRecord {
        LogIdRecord { term, index }
    }

    fn frame(prev: Option<LogIdRecord>, entries: &[LogIdRecord], acknowledged: Option<LogIdRecord>) -> AppendFrame {
        let entry = |log_id: &LogIdRecord| EntryRecord { log_id: *log_id, payload: PayloadRecord::Blank };
        AppendFrame {
            sequence: 1,
            vote: VoteRecord { term: 9, node_id: 1, committed: true },
            prev_log_id: prev,
            leader_commit: None,
            acknowledged,
            entries: entries.iter().map(entry).collect(),
        }
    }

    #[track_caller]
    fn check(known: (LogIdRecord, LogIdRecord), frame: &AppendFrame, contradicts: bool) {
        let known = Known { committed: Some(known.0), last: Some(known.1) };
        assert_eq!(judge(known, frame).is_some(), contradicts, "{known:?} {frame:?}: {:?}", judge(known, frame));
    }

    #[test]
    fn a_leader_that_lacks_what_is_committed_here_is_noticed() {
        let known = (id(3, 22), id(3, 22));
        // Its first entry stands where this node has a committed one.
        check(known, &frame(Some(id(2, 15)), &[id(9, 16)], None), true);
        check(known, &frame(Some(id(9, 16)), &[], None), true);
        check(known, &frame(Some(id(3, 21)), &[id(4, 22)], None), true);
        check(known, &frame(Some(id(4, 22)), &[], None), true);
        // Behind what is committed here it has entries that are older.
        check(known, &frame(Some(id(2, 21)), &[id(2, 22), id(2, 23)], None), true);
        check(known, &frame(Some(id(2, 25)), &[], None), true);
    }

    #[test]
    fn a_leader_that_sends_again_or_looks_for_the_end_is_not_accused() {
        let known = (id(3, 22), id(3, 30));
        check(known, &frame(None, &[], None), false);
        check(known, &frame(Some(id(2, 10)), &[], None), false);
        check(known, &frame(Some(id(2, 10)), &[id(2, 11), id(3, 12)], None), false);
        check(known, &frame(Some(id(3, 21)), &[id(3, 22), id(9, 23)], None), false);
        // Entries that nobody has committed are cut, as Raft wants it.
        check(known, &frame(Some(id(3, 25)), &[id(9, 26)], None), false);
        check(known, &frame(Some(id(9, 40)), &[], None), false);
    }

    #[test]
    fn a_node_that_has_lost_what_it_acknowledged_is_noticed() {
        let known = (id(3, 22), id(3, 30));
        check(known, &frame(Some(id(3, 30)), &[], Some(id(3, 30))), false);
        check(known, &frame(Some(id(3, 40)), &[], Some(id(3, 31))), true);
    }
}
