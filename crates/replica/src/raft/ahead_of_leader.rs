//! Detection of a node whose log contradicts the leader's: one of their disks has gone back in
//! time.
//!
//! A leader has every committed entry, and a follower has every entry that it acknowledged to be on
//! its disk. That holds as long as disks keep what they were given. It fails when an old copy of a
//! data directory is put back, or when a disk lies about what it has written. Two histories exist
//! then, and tokens may have been granted twice. Raft has no rule that tells the right one, so the
//! node that sees the contradiction stops, and says which entries contradict each other.
//!
//! Raft itself would not notice, because it takes a follower's committed entries to be equal to the
//! leader's.
//!
//! An append proves nothing, because a sender that is no member can forge it. So this node asks the
//! leader that the append names, at that leader's own address, and stops only if the leader's
//! answer about its log shows the contradiction.

use std::sync::Arc;

use storage::codec::{LogIdRecord, VoteRecord};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::local::vote_gate::VoteGate;
use crate::raft::consensus::Consensus;
use crate::raft::continuity::{Look, look};
use crate::raft::transport::{Account, Answer, AppendFrame, Ask};

/// The last committed entry of this node, and the last entry of its log; `None` for no entry.
#[derive(Clone, Copy, Debug)]
struct KnownEntries {
    committed: Option<LogIdRecord>,
    last: Option<LogIdRecord>,
}

/// Result of comparing an append with this node's log.
pub(crate) enum AppendVerdict {
    /// The append does not contradict this node's log.
    Sound,
    /// The sender no longer leads: this node has this newer vote. The sender's log may differ then.
    Deposed(VoteRecord),
    /// The append may show a contradiction, and the leader could not be asked now. It is refused,
    /// and the leader sends it again.
    Unsure,
    /// The logs of this node and of the leader contradict each other, for this reason.
    Contradiction(String),
}

/// Comparison of this node's log with a leader's log. At the leader, it gives followers the
/// [`Account`] (facts about the leader's log) with which they compare their own logs.
pub(crate) struct Accounts {
    consensus: Arc<Consensus>,
    gate: Arc<VoteGate>,
    /// Semaphore held while a leader is asked about its log, so that one question is under way at a
    /// time.
    turn: Semaphore,
}

impl Accounts {
    pub(crate) fn new(consensus: Arc<Consensus>, gate: Arc<VoteGate>) -> Accounts {
        Accounts { consensus, gate, turn: Semaphore::new(1) }
    }

    /// Compares a frame with this node's log, before Raft gets the frame. `looked` is Raft's
    /// earlier answer about the frame; `None` if Raft was not asked.
    pub(crate) async fn judge(&self, frame: &AppendFrame, looked: Option<Look>) -> AppendVerdict {
        if let Some(looked) = looked.filter(|looked| looked.deposes(frame.vote)) {
            return AppendVerdict::Deposed(looked.vote);
        }
        let agrees = looked.is_none_or(|looked| looked.agrees);
        // A node that has not joined yet has a new disk, which may rightly lack acknowledged
        // entries.
        if !self.gate.joined() || (agrees && !self.seems_lost(frame.acknowledged)) {
            return AppendVerdict::Sound;
        }
        let before = match looked {
            Some(looked) => looked,
            None => match look(&self.consensus.raft, Vec::new()).await {
                Some(looked) if looked.deposes(frame.vote) => return AppendVerdict::Deposed(looked.vote),
                Some(looked) => looked,
                None => return AppendVerdict::Sound,
            },
        };
        if agrees && !is_lost(before.last, frame.acknowledged) {
            return AppendVerdict::Sound;
        }
        // One question at a time, however many frames there are.
        let Ok(_turn) = self.turn.try_acquire() else { return AppendVerdict::Unsure };
        let Some(account) = self.ask(&frame.vote, before.committed).await else { return AppendVerdict::Unsure };
        // Read again: the log may have grown while the leader was asked.
        let Some(after) = look(&self.consensus.raft, Vec::new()).await else { return AppendVerdict::Sound };
        if after.deposes(frame.vote) {
            return AppendVerdict::Deposed(after.vote);
        }
        match judge(KnownEntries { committed: before.committed, last: after.last }, &account) {
            None => AppendVerdict::Sound,
            Some(why) => AppendVerdict::Contradiction(format!(
                "this node and leader {} contradict each other: {why}. The data directory of one of them is an old copy, or its \
                 disk has lost what it had written; see docs/storage-trouble.md, \"A node that knows more than its leader\"",
                frame.vote.node_id
            )),
        }
    }

    /// Tells whether this node's log, by the end that Raft published last, lacks an entry that this
    /// node acknowledged. The log may have grown since.
    fn seems_lost(&self, acknowledged: Option<LogIdRecord>) -> bool {
        let last = self.consensus.last_log_index();
        acknowledged.is_some_and(|id| last.is_none_or(|last| id.index > last))
    }

    /// Asks the leader with this vote for its entry at the index of `committed`, and for the last
    /// entry that this node has acknowledged to it.
    async fn ask(&self, vote: &VoteRecord, committed: Option<LogIdRecord>) -> Option<Account> {
        let peer = self.consensus.peers.get(vote.node_id)?;
        let index = committed.map_or(0, |committed| committed.index);
        match peer.control.ask(Ask::Account { index }, Instant::now() + self.consensus.peer_timeout).await {
            Ok(Answer::Account(account)) if account.vote == *vote => Some(account),
            _ => None,
        }
    }

    /// Collects the facts about this node's log ([`Account`]): its entry at `index`, its end, and
    /// the last entry that member `asker` has acknowledged to this node.
    pub(crate) async fn account(&self, index: u64, asker: u64) -> Option<Account> {
        let (vote, entry, last) = self
            .consensus
            .raft
            .with_raft_state(move |state| {
                let entry = state.log_ids.get(index).as_ref().map(LogIdRecord::from);
                (VoteRecord::from(state.vote_ref()), entry, state.log_ids.last().map(LogIdRecord::from))
            })
            .await
            .ok()?;
        let acknowledged = self.consensus.peers.get(asker).and_then(|peer| peer.following.acknowledged(vote.term));
        Some(Account { vote, entry, last, acknowledged: acknowledged.as_ref().map(LogIdRecord::from) })
    }
}

fn is_lost(last: Option<LogIdRecord>, acknowledged: Option<LogIdRecord>) -> bool {
    acknowledged.is_some_and(|id| last.is_none_or(|last| id.index > last.index))
}

fn judge(known: KnownEntries, account: &Account) -> Option<String> {
    if let Some(LogIdRecord { term, index }) = account.acknowledged
        && is_lost(known.last, account.acknowledged)
    {
        let last = known.last.map_or(0, |last| last.index);
        return Some(format!("entry {index} of term {term} was on this node's disk, whose log ends at {last} now"));
    }
    let committed = known.committed?;
    let LogIdRecord { term, index } = committed;
    match account.entry {
        Some(other) if other != committed => Some(format!(
            "entry {index} of term {term} is committed here, and the leader has one of term {}",
            other.term
        )),
        // The leader's log has the same entry.
        Some(_) => None,
        None => {
            let end = account.last.map_or(0, |last| last.index);
            (end < index)
                .then(|| format!("entry {index} of term {term} is committed here, and the leader's log ends at {end}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(term: u64, index: u64) -> LogIdRecord {
        LogIdRecord { term, index }
    }

    #[track_caller]
    fn check(known: (LogIdRecord, LogIdRecord), account: [Option<LogIdRecord>; 3], contradicts: bool) {
        let known = KnownEntries { committed: Some(known.0), last: Some(known.1) };
        let [entry, last, acknowledged] = account;
        let vote = VoteRecord { term: 9, node_id: 1, committed: true };
        let account = Account { vote, entry, last, acknowledged };
        assert_eq!(judge(known, &account).is_some(), contradicts, "{known:?} {account:?}");
    }

    #[test]
    fn a_leader_that_lacks_what_is_committed_here_is_noticed() {
        let known = (id(3, 22), id(3, 22));
        check(known, [None, Some(id(9, 16)), None], true);
        check(known, [None, None, None], true);
        check(known, [Some(id(4, 22)), Some(id(9, 40)), None], true);
        check(known, [Some(id(2, 22)), Some(id(2, 22)), None], true);
    }

    #[test]
    fn a_leader_that_has_or_has_purged_what_is_committed_here_is_not_accused() {
        let known = (id(3, 22), id(3, 30));
        check(known, [Some(id(3, 22)), Some(id(3, 22)), None], false);
        check(known, [None, Some(id(9, 40)), None], false);
        // A leader may truncate entries that no quorum has committed.
        check(known, [Some(id(3, 22)), Some(id(9, 26)), Some(id(3, 25))], false);
    }

    #[test]
    fn a_node_that_has_lost_what_it_acknowledged_is_noticed() {
        let known = (id(3, 22), id(3, 30));
        check(known, [Some(id(3, 22)), Some(id(3, 40)), Some(id(3, 30))], false);
        check(known, [Some(id(3, 22)), Some(id(3, 40)), Some(id(3, 31))], true);
    }
}
