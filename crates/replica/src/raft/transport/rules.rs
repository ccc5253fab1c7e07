//! Rules for what a message of a peer may say, once both ends have greeted each other (`connect`).
//! Every field of every message has its rule here, or a comment that says which code checks it.
//! [`super::FramedStream`] refuses a message that breaks a rule.
//!
//! Raft does not check messages: a term near `u64::MAX` is stored and overflows at the next
//! election, and entries whose indexes have a gap make the log end the process. So a frame that no
//! correct member sends is refused before any other code sees it, and the connection ends. The
//! bounds are far beyond the numbers of a real cluster: with an election every 100 ms a term rises
//! by [`TERMS_AHEAD_MAX`] in 13 years, and with 100,000 entries a second an index rises by
//! [`INDEXES_AHEAD_MAX`] in 89 years.
//!
//! These rules need no look at the log. `continuity` checks whether a frame agrees with what this
//! node has committed, and `decoded_entries` whether an entry can be decoded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bincode::Decode;
use storage::Manifest;
use storage::codec::{EntryRecord, LogIdRecord, MembershipRecord, PayloadRecord, StoredMembershipRecord, VoteRecord};

use super::append_frame::AppendFrame;
use super::messages::{
    Account, Answer, AppendAnswer, AppendResult, Ask, KnownMembers, NumberedMessage, ProposeAnswer, SnapshotAnswer,
    SnapshotFrame, Standing, TransferFrame, TransferRefusal, UpgradeAsk, UpgradeRecord, VoteAnswer, VoteFrame,
};

/// Largest distance by which a term may be ahead of the newest term that this node knows.
pub(crate) const TERMS_AHEAD_MAX: u64 = 1 << 32;
/// Largest distance by which an index may be ahead of this node's last entry.
pub(crate) const INDEXES_AHEAD_MAX: u64 = 1 << 48;
/// Largest accepted term or index. Sums of such numbers do not overflow.
const NUMBER_MAX: u64 = 1 << 62;
/// First number that is too large to be a zxid of this cluster.
const ZXID_END: u64 = 1 << 53;
/// Largest number of sessions' heartbeats, or of sessions' ages (times without a heartbeat), in one
/// message.
pub(crate) const TOUCHES_MAX: usize = 4_096;
/// Largest number of members that a leader may report.
const MEMBERS_TOLD_MAX: usize = 4_096;
/// Longest time that a forwarded proposal may ask to be waited for.
const WITHIN_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Largest size in bytes of a member's address, which is a host name and a port.
pub(super) const ADDR_BYTES_MAX: usize = 1 << 10;
/// Largest number of members of a cluster, learners and observers included.
pub const MEMBERS_MAX: usize = 32;
/// Largest number of additional properties (name and value) that a membership stores for a member.
const EXTRAS_MAX: usize = 16;
/// Largest size in bytes of a snapshot's chunk, a little above what the storage writes.
const CHUNK_BYTES_MAX: usize = 32 << 10;

/// Newest term and last index of this node, from which the bounds for peers' messages follow. They
/// are updated periodically, which suffices for bounds this wide.
#[derive(Debug, Default)]
pub(crate) struct Horizon {
    term: AtomicU64,
    index: AtomicU64,
}

impl Horizon {
    /// Raises the term and the index to these values, if they are higher.
    pub(crate) fn reach(&self, term: u64, index: u64) {
        self.term.fetch_max(term, Ordering::Relaxed);
        self.index.fetch_max(index, Ordering::Relaxed);
    }

    fn term_max(&self) -> u64 {
        self.term.load(Ordering::Relaxed).saturating_add(TERMS_AHEAD_MAX).min(NUMBER_MAX)
    }

    fn index_max(&self) -> u64 {
        self.index.load(Ordering::Relaxed).saturating_add(INDEXES_AHEAD_MAX).min(NUMBER_MAX)
    }
}

/// Text of the rule that a message breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BrokenRule(pub(crate) &'static str);

/// The result of a check: `Ok`, or the rule that is broken.
type RuleResult = Result<(), BrokenRule>;

/// Returns `Ok` when `kept` is true, and otherwise the text of the broken rule.
fn rule(kept: bool, rule: &'static str) -> RuleResult {
    if kept { Ok(()) } else { Err(BrokenRule(rule)) }
}

/// Message from a peer that is checked by rules before any other code uses it.
pub(crate) trait PeerMessage: Decode<()> {
    /// Checks that each field keeps its rule. The error names the first broken rule.
    fn check(&self, rules: &Rules) -> RuleResult;
}

/// Rules for messages of one peer to this node.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    horizon: Arc<Horizon>,
    /// Id of the member at the other end of the connection.
    peer: u64,
}

impl Rules {
    /// Makes the rules for messages of member `peer`. `horizon` has the receiving node's term and
    /// index.
    pub(crate) fn new(horizon: &Arc<Horizon>, peer: u64) -> Rules {
        Rules { horizon: Arc::clone(horizon), peer }
    }

    fn term(&self, term: u64) -> RuleResult {
        rule(term <= self.horizon.term_max(), "a term is not far ahead of this node's")
    }

    fn index(&self, index: u64) -> RuleResult {
        rule(index <= self.horizon.index_max(), "an index is not far ahead of this node's")
    }

    /// Checks an entry's position (term and index) in a log whose entries have no later term than
    /// `term`.
    fn id(&self, id: &LogIdRecord, term: u64) -> RuleResult {
        self.index(id.index)?;
        rule(id.term <= term, "no entry is of a later term than the vote that tells of it")?;
        rule((id.index == 0) == (id.term == 0), "the founding entry, and no other, has index 0 and term 0")
    }

    fn ids<'a>(&self, ids: impl IntoIterator<Item = &'a LogIdRecord>, term: u64) -> RuleResult {
        ids.into_iter().try_for_each(|id| self.id(id, term))
    }

    /// Checks an entry's position in a peer's log. Its term may be any that this node accepts.
    fn any_id(&self, id: Option<&LogIdRecord>) -> RuleResult {
        self.ids(id, self.horizon.term_max())
    }

    /// Checks a node's vote, for itself or for another node.
    fn vote(&self, vote: &VoteRecord) -> RuleResult {
        self.term(vote.term)?;
        // Before its first vote, a node has a vote for no node.
        rule(vote.term == 0 && !vote.committed || vote.node_id != 0, "a vote is for a node")
    }

    /// Checks the vote of the peer at the other end, which says that it leads.
    fn leader(&self, vote: &VoteRecord) -> RuleResult {
        self.term(vote.term)?;
        rule(vote.term > 0, "a leader has a term")?;
        rule(vote.committed, "a leader has been elected")?;
        rule(vote.node_id == self.peer, "a leader speaks for itself")
    }

    /// Checks a request for a vote of the peer at the other end. `asks_first` is true for a
    /// pre-vote.
    fn candidate(&self, frame: &VoteFrame, asks_first: bool) -> RuleResult {
        self.term(frame.vote.term)?;
        rule(frame.vote.term > 0, "a candidate has a term")?;
        rule(!frame.vote.committed, "a candidate has not been elected")?;
        rule(frame.vote.node_id == self.peer, "a candidate stands for itself")?;
        self.ids(&frame.last_log_id, frame.vote.term - 1)?;
        // A candidate that was asked to stand asks for votes without a pre-vote.
        rule(!(asks_first && frame.leadership_transfer), "a transfer asks for votes at once")
    }

    fn transfer(&self, frame: &TransferFrame) -> RuleResult {
        self.leader(&frame.from_leader)?;
        node(frame.to)?;
        rule(frame.to != self.peer, "a leader steps aside for another")?;
        self.ids(&frame.last_log_id, frame.from_leader.term)
    }

    /// Checks a membership: it has one set of voters, or two while a change is half done.
    fn membership(&self, membership: &MembershipRecord) -> RuleResult {
        let (sets, nodes) = (&membership.configs, &membership.nodes);
        rule(matches!(sets.len(), 1 | 2), "a membership is one set of voters, or two while it changes")?;
        rule(sets.iter().all(|voters| !voters.is_empty()), "each set has a voter")?;
        rule(nodes.len() <= MEMBERS_MAX, "a cluster has no more than 32 members")?;
        rule(!nodes.contains_key(&0), "no node has the id 0")?;
        rule(sets.iter().flatten().all(|voter| nodes.contains_key(voter)), "a voter is a member")?;
        let mut addrs = membership.nodes.values().flat_map(|node| [&node.peer_addr, &node.http_addr]);
        rule(addrs.all(|addr| addr.len() <= ADDR_BYTES_MAX), "an address is no longer than 1 KiB")?;
        let few = |extra: &BTreeMap<String, Vec<u8>>| extra.len() <= EXTRAS_MAX;
        rule(
            membership.nodes.values().all(|node| few(&node.extra)),
            "of a member no more than 16 other things are known",
        )?;
        let mut extras = membership.nodes.values().flat_map(|node| &node.extra);
        let short = |(name, value): (&String, &Vec<u8>)| name.len() + value.len() <= ADDR_BYTES_MAX;
        rule(extras.all(short), "what else is known of a member has no more than 1 KiB")
    }

    fn known_members(&self, known: &KnownMembers) -> RuleResult {
        let StoredMembershipRecord { log_id, membership } = &known.membership;
        self.any_id(log_id.as_ref())?;
        // A node without entries has no membership.
        let none = membership.configs.is_empty() && membership.nodes.is_empty();
        if none && log_id.is_none() { Ok(()) } else { self.membership(membership) }
    }

    fn entry(&self, entry: &EntryRecord) -> RuleResult {
        match &entry.payload {
            PayloadRecord::Membership(membership) => {
                rule(entry.log_id.index > 0 || membership.configs.len() == 1, "the founders are one set of voters")?;
                self.membership(membership)
            }
            PayloadRecord::Blank | PayloadRecord::Normal(_) => {
                rule(entry.log_id.index > 0, "the founding entry is a membership")
            }
        }
    }

    fn manifest(&self, manifest: &Manifest, term: u64) -> RuleResult {
        let Some(last) = &manifest.meta.last_log_id else {
            return Err(BrokenRule("a snapshot that is sent contains an entry"));
        };
        self.id(last, term)?;
        let membership = &manifest.meta.last_membership;
        let Some(of) = &membership.log_id else {
            return Err(BrokenRule("a snapshot has a membership"));
        };
        self.id(of, term)?;
        rule(of.index <= last.index && in_order(of, last), "the membership of a snapshot is an entry in it")?;
        self.membership(&membership.membership)?;
        rule(manifest.chunk_count > 0, "a snapshot has chunks")?;
        let bytes_max = u64::from(manifest.chunk_count) * CHUNK_BYTES_MAX as u64;
        rule(manifest.bytes <= bytes_max, "a snapshot has no more bytes than fit into its chunks")
        // `records` and `sha256` are compared with the snapshot that comes.
    }

    fn standing(&self, standing: &Standing) -> RuleResult {
        self.term(standing.term)?;
        self.index(standing.last_log)?;
        rule(!standing.leads || standing.term > 0, "a leader has a term")
        // Every value of `fresh` and `joined` is possible: only the peer knows them.
    }
}

/// Checks a node id. This node need not know the id.
fn node(id: u64) -> RuleResult {
    rule(id != 0, "no node has the id 0")
}

/// Tells whether two entries may follow each other in this order in one log: terms never fall.
fn in_order(earlier: &LogIdRecord, later: &LogIdRecord) -> bool {
    if earlier.index == later.index { earlier.term == later.term } else { earlier.term <= later.term }
}

impl PeerMessage for AppendFrame {
    fn check(&self, rules: &Rules) -> RuleResult {
        // `sequence` is checked by the code that reads the connection.
        rules.leader(&self.vote)?;
        let term = self.vote.term;
        rules.ids(&self.prev_log_id, term)?;
        rules.ids(&self.leader_commit, term)?;
        rules.ids(&self.acknowledged, term)?;
        let mut before = self.prev_log_id;
        for entry in &self.entries {
            rules.id(&entry.log_id, term)?;
            let next = before.map_or(0, |before| before.index + 1);
            rule(entry.log_id.index == next, "entries follow each other without a gap")?;
            let ordered = before.is_none_or(|before| in_order(&before, &entry.log_id));
            rule(ordered, "terms never fall from entry to entry")?;
            rules.entry(entry)?;
            before = Some(entry.log_id);
        }
        let Some(commit) = &self.leader_commit else { return Ok(()) };
        let known = self.prev_log_id.iter().chain(self.entries.iter().map(|entry| &entry.log_id));
        let mut known =
            known.map(|id| if id.index <= commit.index { in_order(id, commit) } else { in_order(commit, id) });
        rule(known.all(|ordered| ordered), "what is committed is an entry of the leader's own log")
    }
}

/// Checks that the position `id` of a `PartialSuccess` is that of an entry in the frame: from
/// `prev`, which the peer has already, to `last`.
pub(crate) fn partial_success(
    id: Option<&LogIdRecord>,
    prev: Option<&LogIdRecord>,
    last: Option<&LogIdRecord>,
) -> RuleResult {
    let index = |id: Option<&LogIdRecord>| id.map(|id| id.index);
    rule(index(id) >= index(prev) && index(id) <= index(last), "what was taken in part is a part of what was sent")?;
    let ordered = |earlier: Option<&LogIdRecord>, later: Option<&LogIdRecord>| match (earlier, later) {
        (Some(earlier), Some(later)) => in_order(earlier, later),
        _ => true,
    };
    rule(ordered(prev, id) && ordered(id, last), "what was taken in part is a part of what was sent")
}

impl PeerMessage for AppendAnswer {
    fn check(&self, rules: &Rules) -> RuleResult {
        // `sequence` is compared with the frames that wait for answers.
        match &self.result {
            AppendResult::Success | AppendResult::Conflict | AppendResult::Refused(_) => Ok(()),
            AppendResult::PartialSuccess(id) => rules.any_id(id.as_ref()),
            AppendResult::HigherVote(vote) => rules.vote(vote),
        }
    }
}

impl PeerMessage for NumberedMessage<Ask> {
    fn check(&self, rules: &Rules) -> RuleResult {
        // `number` is only repeated in the answer.
        match &self.body {
            Ask::Ping | Ask::Standing | Ask::ReadIndex | Ask::Members => Ok(()),
            // `orders` decodes it, and refuses what it cannot decode.
            Ask::Order(_) => Ok(()),
            Ask::Vote(frame) => rules.candidate(frame, false),
            Ask::PreVote(frame) => rules.candidate(frame, true),
            Ask::TransferLeader(frame) => rules.transfer(frame),
            // `propose` decodes `request`, and refuses what it cannot decode.
            Ask::Propose { request: _, within_ms } => {
                rule(Duration::from_millis(*within_ms) <= WITHIN_MAX, "no caller waits longer than a day")
            }
            Ask::Account { index } | Ask::History { index } => rules.index(*index),
            Ask::Upgrade(UpgradeAsk::Status) => Ok(()),
            Ask::Upgrade(UpgradeAsk::Finalize { level: _, within_ms }) => {
                rule(Duration::from_millis(*within_ms) <= WITHIN_MAX, "no caller waits longer than a day")
            }
            // Ages of sessions that do not exist are ignored.
            Ask::Ages { term, ages } => {
                rules.term(*term)?;
                rule(ages.len() <= TOUCHES_MAX, "no more than 4,096 ages at once")
            }
            // Each credential is compared with its session's secret.
            Ask::Touch(credentials) => rule(credentials.len() <= TOUCHES_MAX, "no more than 4,096 heartbeats at once"),
        }
    }
}

impl PeerMessage for NumberedMessage<Answer> {
    fn check(&self, rules: &Rules) -> RuleResult {
        // `number` is looked up among the questions that wait for answers.
        match &self.body {
            Answer::Pong | Answer::Refused(_) | Answer::Leaving { taken: _ } | Answer::Order(_) => Ok(()),
            // Any number may be a hash.
            Answer::History(_) => Ok(()),
            Answer::Members(known) => rules.known_members(known),
            Answer::Standing(standing) => rules.standing(standing),
            Answer::Vote(VoteAnswer { vote, granted: _, last_log_id }) => {
                rules.vote(vote)?;
                rules.any_id(last_log_id.as_ref())
            }
            Answer::TransferLeader(Ok(())) => Ok(()),
            Answer::TransferLeader(Err(TransferRefusal::VoteChanged { expected, actual })) => {
                rules.vote(expected)?;
                rules.vote(actual)
            }
            Answer::TransferLeader(Err(TransferRefusal::LogNotFlushed { expected, actual })) => {
                rules.any_id(expected.as_ref())?;
                rules.any_id(actual.as_ref())
            }
            Answer::Propose(ProposeAnswer::Applied { at, applied }) => {
                // The largest zxid base and the largest index add up to less than `ZXID_END`.
                rule(*at < ZXID_END && applied.zxid.0 <= *at, "a proposal is applied at a zxid of this cluster")
            }
            Answer::Propose(
                ProposeAnswer::Unavailable { .. } | ProposeAnswer::Unknown(_) | ProposeAnswer::Refused(_),
            ) => Ok(()),
            Answer::Touch(answers) => rule(answers.len() <= TOUCHES_MAX, "no more than 4,096 heartbeats at once"),
            // Any number may be a hash.
            Answer::ReadIndex { zxid, history } => {
                rule(*zxid < ZXID_END, "a read sees a zxid of this cluster")?;
                history.iter().try_for_each(|(index, _)| rules.index(*index))
            }
            Answer::Account(Account { vote, entry, last, acknowledged }) => {
                rules.vote(vote)?;
                [entry, last, acknowledged].into_iter().try_for_each(|id| rules.any_id(id.as_ref()))
            }
            // The members' programs are for people. Ids that belong to no member are ignored.
            Answer::Upgrade(UpgradeRecord { at, status, not_ready_for: _ }) => {
                rule(*at < ZXID_END, "a state has a zxid of this cluster")?;
                rule(status.members.len() <= MEMBERS_TOLD_MAX, "no cluster has so many members")
            }
            Answer::NotLeader(leader) => leader.iter().try_for_each(|leader| node(*leader)),
        }
    }
}

impl PeerMessage for SnapshotFrame {
    fn check(&self, rules: &Rules) -> RuleResult {
        match self {
            SnapshotFrame::Begin { vote, manifest } => {
                rules.leader(vote)?;
                rules.manifest(manifest, vote.term)
            }
            SnapshotFrame::Chunk(chunk) => rule(chunk.len() <= CHUNK_BYTES_MAX, "a chunk is no longer than 32 KiB"),
            SnapshotFrame::End => Ok(()),
        }
    }
}

impl PeerMessage for SnapshotAnswer {
    fn check(&self, rules: &Rules) -> RuleResult {
        match self {
            SnapshotAnswer::Working | SnapshotAnswer::Failed(_) => Ok(()),
            SnapshotAnswer::Done(vote) => rules.vote(vote),
        }
    }
}

#[cfg(test)]
impl PeerMessage for u64 {
    fn check(&self, _rules: &Rules) -> RuleResult {
        Ok(())
    }
}

#[cfg(test)]
impl PeerMessage for (u64, Vec<u8>) {
    fn check(&self, _rules: &Rules) -> RuleResult {
        Ok(())
    }
}
