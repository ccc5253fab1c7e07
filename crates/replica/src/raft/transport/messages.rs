//! Messages between nodes. Variants and fields are encoded by position: new ones go to the end.

use bincode::{Decode, Encode};
use storage::Manifest;
use storage::codec::{LogIdRecord, StoredMembershipRecord, VoteRecord};
use znode::{ClusterUuid, Credential, SessionId, TxnOutcome};

use super::refusal::Refusal;
use crate::UpgradeStatus;

/// Purpose of a connection. Each purpose has separate connections, so that a snapshot never delays
/// a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub(crate) enum Lane {
    /// Log entries and heartbeats of a leader: in order, many under way.
    Append,
    /// Votes, leadership transfer and questions about the ensemble.
    Control,
    /// A snapshot in chunks.
    Snapshot,
    /// Proposals, heartbeats of sessions and read indexes on their way to the leader.
    Forward,
}

/// Largest size in bytes of any frame: that of one entry of the greatest length.
pub(crate) const FRAME_BYTES_MAX: usize = 17 << 20;

/// Largest size in bytes of a frame without clients' data, which has only numbers and short texts.
const SHORT_BYTES_MAX: usize = 4 << 10;
/// Largest size in bytes of a frame with a chunk of a snapshot, or with its manifest.
const CHUNK_FRAME_BYTES_MAX: usize = 64 << 10;

impl Lane {
    /// Largest size in bytes of a frame from the node that opened the connection.
    pub(crate) fn question_bytes_max(self) -> usize {
        match self {
            Lane::Append | Lane::Forward => FRAME_BYTES_MAX,
            Lane::Control => SHORT_BYTES_MAX,
            Lane::Snapshot => CHUNK_FRAME_BYTES_MAX,
        }
    }

    /// Largest size in bytes of a frame from the node to which the connection was opened.
    pub(crate) fn answer_bytes_max(self) -> usize {
        match self {
            // The answer to a proposal can have parts of what was written.
            Lane::Forward => FRAME_BYTES_MAX,
            // Raft's error messages may be long.
            Lane::Append | Lane::Control | Lane::Snapshot => CHUNK_FRAME_BYTES_MAX,
        }
    }
}

/// Number of the field in `more` of [`Hello`] and [`Acceptance`] that has a node's
/// [`Program`](crate::Program).
pub(crate) const PROGRAM: u16 = 1;

/// Number of the field in `more` with the preference for a node as leader: one byte, 0 to 100.
pub(crate) const LEADER_PRIORITY: u16 = 2;

/// Number of the field in `more` with the ids of the configured members, which may found the
/// cluster. A node that is to join an existing cluster does not send it.
pub(crate) const FOUNDERS: u16 = 3;

/// Number of the field in `more` with the address of a node's peer listener: in the membership, or,
/// before the node is a member, in its configuration. A node that does not know it does not send
/// it.
pub(crate) const PEER_ADDR: u16 = 4;

/// The first frame on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Hello {
    /// Versions of the messages that the caller speaks, lowest and highest.
    pub(crate) versions: (u16, u16),
    /// Lowest and highest format level of the cluster with which the caller can go on.
    pub(crate) levels: (u16, u16),
    /// The cluster's name.
    pub(crate) cluster_id: String,
    /// Id of the node that connects.
    pub(crate) from: u64,
    /// Id of the node that the caller means to reach.
    pub(crate) to: u64,
    /// Purpose of the connection.
    pub(crate) lane: Lane,
    /// Number of the caller's Raft group, from the cluster's founding; 0 in this release.
    pub(crate) group: u32,
    /// Uuid of the cluster; `None` if the caller does not know it yet.
    pub(crate) uuid: Option<ClusterUuid>,
    /// Incarnation of the caller's data directory: a random number that a new directory draws.
    pub(crate) incarnation: u64,
    /// Numbered fields beyond those of the first release. Unknown numbers are ignored.
    pub(crate) more: Vec<(u16, Vec<u8>)>,
}

/// The answer to [`Hello`]. After a refusal the connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Welcome {
    /// The caller is accepted.
    Accepted(Acceptance),
    /// The caller is refused.
    Refused(Refusal),
}

/// Facts of the called node and of the connection, for a caller that is accepted.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Acceptance {
    /// The version of all messages that follow: the highest that both ends speak.
    pub(crate) version: u16,
    /// Lowest and highest format level of the cluster with which the called node can go on.
    pub(crate) levels: (u16, u16),
    /// Uuid of the cluster; `None` if the called node does not know it yet.
    pub(crate) uuid: Option<ClusterUuid>,
    /// Incarnation of the called node's data directory: a random number that a new directory draws.
    pub(crate) incarnation: u64,
    /// Numbered fields beyond those of the first release. Unknown numbers are ignored.
    pub(crate) more: Vec<(u16, Vec<u8>)>,
}

/// Answer to an [`AppendFrame`]. Answers come in the order of the frames.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct AppendAnswer {
    /// Number of the frame that is answered.
    pub(crate) sequence: u64,
    /// Outcome of the append.
    pub(crate) result: AppendResult,
}

/// The outcome of an append.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum AppendResult {
    /// All entries of the frame are on the receiver's disk.
    Success,
    /// Entries up to this position are on the receiver's disk.
    PartialSuccess(Option<LogIdRecord>),
    /// The receiver's log has another entry, or none, at the position of the frame's `prev_log_id`.
    Conflict,
    /// The receiver has a higher vote, so the sender no longer leads.
    HigherVote(VoteRecord),
    /// The receiver takes no entries now, for this reason.
    Refused(String),
}

impl AppendResult {
    /// Tells whether the receiver accepts the sender as its leader.
    pub(crate) fn follows(&self) -> bool {
        match self {
            AppendResult::Success | AppendResult::PartialSuccess(_) | AppendResult::Conflict => true,
            AppendResult::HigherVote(_) | AppendResult::Refused(_) => false,
        }
    }
}

/// Frame on the lanes `Control` and `Forward`, in both directions. Answers may come out of order.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct NumberedMessage<T> {
    /// Number of the question, which its answer repeats.
    pub(crate) number: u64,
    /// The question or the answer.
    pub(crate) body: T,
}

/// A question to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Ask {
    /// Asks only for an answer, as a sign that the peer lives.
    Ping,
    /// Asks for the peer's progress: see [`Standing`].
    Standing,
    /// Asks for a vote, as a candidate.
    Vote(VoteFrame),
    /// Asks whether the peer would vote for the asker.
    PreVote(VoteFrame),
    /// Asks the peer to stand for election, because the leader hands leadership over.
    TransferLeader(TransferFrame),
    /// Asks the leader to propose a request, within `within_ms` milliseconds.
    Propose {
        /// The request, as `znode::encode_request` encodes it.
        request: Vec<u8>,
        /// Time that the asker waits, in milliseconds.
        within_ms: u64,
    },
    /// Heartbeats of sessions.
    Touch(Vec<Credential>),
    /// Asks the leader for the zxid up to which a linearizable read must wait.
    ReadIndex,
    /// Asks for facts about the peer's log: see [`Account`].
    Account {
        /// Index of the entry whose position (term and index) the peer reports.
        index: u64,
    },
    /// Asks the leader for the members' programs, or to raise the cluster's format level.
    Upgrade(UpgradeAsk),
    /// Asks for the members that the peer knows.
    Members,
    /// An operator's order for the leader, as `leader::orders` encodes it.
    Order(Vec<u8>),
    /// Ages of sessions (times since a heartbeat), from a leader of `term` to its successor.
    Ages {
        /// Term of the leader.
        term: u64,
        /// Sessions, each with the milliseconds since its last heartbeat.
        ages: Vec<(SessionId, u32)>,
    },
    /// Asks for the hash of the history of the peer's state, right after one entry. The peer waits
    /// a short time until it has applied that entry.
    History {
        /// Log index of the entry.
        index: u64,
    },
}

impl Ask {
    /// Lowest version of the messages that has this question.
    pub(crate) fn version(&self) -> u16 {
        match self {
            Ask::Ping | Ask::Standing | Ask::Vote(_) | Ask::PreVote(_) | Ask::TransferLeader(_) => 4,
            Ask::Propose { .. } | Ask::Touch(_) | Ask::ReadIndex | Ask::Account { .. } => 4,
            Ask::Upgrade(_) | Ask::Members | Ask::Order(_) | Ask::Ages { .. } | Ask::History { .. } => 4,
        }
    }
}

/// Question about an upgrade, for the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum UpgradeAsk {
    /// Asks which programs the members run.
    Status,
    /// Asks to raise the cluster's format level.
    Finalize {
        /// Format level to raise to; `None` for the highest that a member knows.
        level: Option<u16>,
        /// Time that the asker waits, in milliseconds.
        within_ms: u64,
    },
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Answer {
    /// The answer to [`Ask::Ping`] and [`Ask::Ages`], without a value.
    Pong,
    /// The answer to [`Ask::Standing`]: the node's progress.
    Standing(Standing),
    /// The answer to [`Ask::Vote`] and [`Ask::PreVote`]: whether the node grants the vote, or would
    /// grant it.
    Vote(VoteAnswer),
    /// The answer to [`Ask::TransferLeader`]: accepted, or the reason why not.
    TransferLeader(Result<(), TransferRefusal>),
    /// The answer to [`Ask::Propose`]: the outcome of the proposal.
    Propose(ProposeAnswer),
    /// The answer to [`Ask::Touch`]: one outcome for each heartbeat, in the order of the question.
    Touch(Vec<TouchAnswer>),
    /// The answer to [`Ask::ReadIndex`].
    ReadIndex {
        /// Zxid that the state of the read must include.
        zxid: u64,
        /// Log index of the entry at the zxid, and the hash of the leader's history after this
        /// entry. `None` if the leader has not applied the entry in time.
        history: Option<(u64, u64)>,
    },
    /// The node does not lead. The value is the id of the leader that it knows, if any.
    NotLeader(Option<u64>),
    /// Nothing was done, for this reason.
    Refused(String),
    /// Announces that the node stops. Questions up to the number `taken` will be answered, later
    /// ones were not taken.
    Leaving {
        /// The number of the last question that was taken; 0 when none was.
        taken: u64,
    },
    /// The answer to [`Ask::Account`]: facts about the node's log.
    Account(Account),
    /// The answer to [`Ask::Upgrade`]. If nothing was done, or the outcome is unknown, the answer
    /// is an [`Answer::Propose`] instead.
    Upgrade(UpgradeRecord),
    /// The answer to [`Ask::Members`]: the members that the node knows.
    Members(KnownMembers),
    /// The answer to [`Ask::Order`]: the order's result, as `leader::orders` encodes it.
    Order(Vec<u8>),
    /// The answer to [`Ask::History`]: the hash, as `znode::HistoryHash` has it. `None` if the node
    /// has not applied the entry yet, or does not keep its hash any more.
    History(Option<u64>),
}

/// Format level (version of the format of log and snapshots) and programs of the members, as the
/// leader answers them.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct UpgradeRecord {
    /// Zxid of the state from which these facts come.
    pub(crate) at: u64,
    /// The cluster's format level and the members' programs.
    pub(crate) status: UpgradeStatus,
    /// Format level that was asked for, while not all members are ready for it; else `None`.
    pub(crate) not_ready_for: Option<u16>,
}

/// Facts that a node knows of the members of its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct KnownMembers {
    /// Uuid of the cluster; `None` if the node does not know it.
    pub(crate) uuid: Option<ClusterUuid>,
    /// Membership in force at the node, and the position of its entry.
    pub(crate) membership: StoredMembershipRecord,
    /// True if the node was removed, so that its knowledge is old.
    pub(crate) removed: bool,
    /// Zxid of the entry that removed the asking node; `None` if it was not removed.
    pub(crate) asker_removed: Option<u64>,
}

/// Facts about a node's log with which another node compares its own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Account {
    /// The node's vote.
    pub(crate) vote: VoteRecord,
    /// Position of the entry that was asked for; `None` if the node does not have it, or has purged
    /// it.
    pub(crate) entry: Option<LogIdRecord>,
    /// Position of the last entry of the node's log.
    pub(crate) last: Option<LogIdRecord>,
    /// Position of the last entry that the asker acknowledged to the answering node while the
    /// latter led in the term of `vote`.
    pub(crate) acknowledged: Option<LogIdRecord>,
}

/// Progress of a node: how far its log and its term are, and whether it votes and leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Standing {
    /// True if the node's log has no entry, or only the first membership.
    pub(crate) fresh: bool,
    /// True if the node has a vote.
    pub(crate) joined: bool,
    /// Newest term that the node knows.
    pub(crate) term: u64,
    /// True if the node leads in `term`.
    pub(crate) leads: bool,
    /// Index of the last entry in the node's log.
    pub(crate) last_log: u64,
    /// True if the node's disk answers, and has answered in time for a while.
    pub(crate) steady: bool,
    /// True if an operator has drained the node.
    pub(crate) drained: bool,
}

/// Request of a candidate for a vote or a pre-vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct VoteFrame {
    /// Vote that the candidate asks for: its term and its id.
    pub(crate) vote: VoteRecord,
    /// Position of the candidate's last entry.
    pub(crate) last_log_id: Option<LogIdRecord>,
    /// True if the leader asked the candidate to stand for election.
    pub(crate) leadership_transfer: bool,
}

/// The answer of a voter to a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct VoteAnswer {
    /// The voter's vote after its answer.
    pub(crate) vote: VoteRecord,
    /// True if the vote was granted.
    pub(crate) granted: bool,
    /// Position of the voter's last entry.
    pub(crate) last_log_id: Option<LogIdRecord>,
}

/// Request of a leader to hand leadership over to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct TransferFrame {
    /// The leader's vote.
    pub(crate) from_leader: VoteRecord,
    /// Id of the member that is to lead.
    pub(crate) to: u64,
    /// Position of the last entry that the member must have before it stands for election.
    pub(crate) last_log_id: Option<LogIdRecord>,
}

/// Reason why a member does not take over leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum TransferRefusal {
    /// The member's vote is no longer the vote of the leader that asked.
    VoteChanged {
        /// Vote of the leader that asked.
        expected: VoteRecord,
        /// Vote of the member.
        actual: VoteRecord,
    },
    /// The member has not written the leader's last entry yet.
    LogNotFlushed {
        /// The leader's last entry.
        expected: Option<LogIdRecord>,
        /// The member's last entry.
        actual: Option<LogIdRecord>,
    },
}

/// Outcome of a forwarded proposal.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum ProposeAnswer {
    /// The leader has applied the entry.
    Applied {
        /// Zxid of the entry. For a repeated idempotency key, `applied.zxid` is that of the first
        /// entry with the key.
        at: u64,
        /// Result of applying the entry, without events.
        applied: TxnOutcome,
    },
    /// The entry was not proposed.
    Unavailable {
        /// The reason, for people.
        reason: String,
        /// Milliseconds after which a retry may succeed.
        retry_after_ms: u64,
    },
    /// The entry may have been applied.
    Unknown(String),
    /// The leader refused the request before it became an entry, for this reason.
    Refused(znode::Error),
}

/// Outcome of a session's heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum TouchAnswer {
    /// The heartbeat was noted.
    Alive {
        /// Timeout of the session in milliseconds.
        timeout_ms: u32,
    },
    /// The heartbeat was refused, for example because its secret is wrong.
    Refused(znode::Error),
    /// The heartbeat does not count, because the session's expiry was proposed. The expiry may or
    /// may not be applied.
    Expiring,
}

/// Frame on [`Lane::Snapshot`] from the node that sends the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum SnapshotFrame {
    /// Announces the snapshot.
    Begin {
        /// The leader's vote.
        vote: VoteRecord,
        /// Description of the snapshot and its chunks.
        manifest: Manifest,
    },
    /// The next chunk.
    Chunk(Vec<u8>),
    /// End of the snapshot.
    End,
}

/// Answer on [`Lane::Snapshot`] from the node that receives the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum SnapshotAnswer {
    /// The receiver is still at work: it waits for chunks, writes them, or reads the snapshot.
    Working,
    /// The snapshot is installed, or was refused because the sender no longer leads. The value is
    /// the receiver's vote.
    Done(VoteRecord),
    /// The snapshot was not installed, for this reason.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use storage::Command;
    use storage::codec::{self, EntryRecord, PayloadRecord, SnapshotMetaRecord, StoredMembershipRecord};
    use znode::{Levels, Reply, Zxid};

    use super::*;
    use crate::raft::transport::AppendFrame;
    use crate::{MemberProgram, Program};

    const VOTE: VoteRecord = VoteRecord { term: 3, node_id: 2, committed: true };
    const ID: LogIdRecord = LogIdRecord { term: 3, index: 300 };

    fn numbered<T>(body: T) -> NumberedMessage<T> {
        NumberedMessage { number: 9, body }
    }

    fn asks() -> Vec<Ask> {
        let vote = VoteFrame { vote: VOTE, last_log_id: Some(ID), leadership_transfer: true };
        vec![
            Ask::Ping,
            Ask::Standing,
            Ask::Vote(vote),
            Ask::PreVote(vote),
            Ask::TransferLeader(TransferFrame { from_leader: VOTE, to: 1, last_log_id: Some(ID) }),
            Ask::Propose { request: vec![1, 2], within_ms: 1_000 },
            Ask::Touch(vec![Credential { session: SessionId(7), secret_hash: [7; 16] }]),
            Ask::ReadIndex,
            Ask::Account { index: 300 },
        ]
    }

    fn answers() -> Vec<Answer> {
        let applied = TxnOutcome { zxid: Zxid(300), reply: Ok(Reply::Done), events: Vec::new() };
        vec![
            Answer::Pong,
            Answer::Standing(Standing {
                fresh: false,
                joined: true,
                term: 3,
                leads: true,
                last_log: 300,
                steady: true,
                drained: false,
            }),
            Answer::Vote(VoteAnswer { vote: VOTE, granted: true, last_log_id: Some(ID) }),
            Answer::TransferLeader(Ok(())),
            Answer::TransferLeader(Err(TransferRefusal::VoteChanged { expected: VOTE, actual: VOTE })),
            Answer::TransferLeader(Err(TransferRefusal::LogNotFlushed { expected: Some(ID), actual: None })),
            Answer::Propose(ProposeAnswer::Applied { at: 301, applied }),
            Answer::Propose(ProposeAnswer::Unavailable { reason: "r".into(), retry_after_ms: 250 }),
            Answer::Propose(ProposeAnswer::Unknown("r".into())),
            Answer::Propose(ProposeAnswer::Refused(znode::Error::DataTooLarge)),
            Answer::Touch(vec![
                TouchAnswer::Alive { timeout_ms: 5_000 },
                TouchAnswer::Refused(znode::Error::SessionExpired),
                TouchAnswer::Expiring,
            ]),
            Answer::ReadIndex { zxid: 300, history: Some((299, 7 << 56)) },
            Answer::NotLeader(Some(2)),
            Answer::Refused("r".into()),
            Answer::Account(Account { vote: VOTE, entry: None, last: Some(ID), acknowledged: Some(ID) }),
        ]
    }

    #[test]
    fn messages_of_upgrades_keep_their_bytes() {
        let program = Program { version: "0.2.0".to_owned(), levels: Levels { min: 1, max: 2 } };
        let members = vec![MemberProgram { id: 3, program: Some(program.clone()), reachable: true }];
        let record = UpgradeRecord { at: 300, status: UpgradeStatus { level: 1, members }, not_ready_for: Some(2) };
        let mut lines = Lines::default();
        lines.add(UpgradeAsk::Status);
        lines.add(UpgradeAsk::Finalize { level: Some(2), within_ms: 1_000 });
        lines.add(record);
        lines.add(program);
        let hex: Vec<&str> = lines.0.lines().skip(1).step_by(2).map(str::trim).collect();
        let frozen = ["0100", "01010102fbe803", "01fb2c010101030105302e322e300102010102", "0105302e322e300102"];
        assert_eq!(hex, frozen);
    }

    #[test]
    fn ages_of_sessions_keep_their_bytes() {
        let mut lines = Lines::default();
        lines.add(Ask::Ages { term: 3, ages: vec![(SessionId(7), 9_000), (SessionId(300), 0)] });
        let hex: Vec<&str> = lines.0.lines().skip(1).step_by(2).map(str::trim).collect();
        assert_eq!(hex, ["010c030207fb2823f92c0100"]);
    }

    #[test]
    fn messages_about_histories_keep_their_bytes() {
        let mut lines = Lines::default();
        lines.add(Ask::History { index: 300 });
        lines.add(Answer::History(Some(7 << 56)));
        lines.add(Answer::History(None));
        let hex: Vec<&str> = lines.0.lines().skip(1).step_by(2).map(str::trim).collect();
        assert_eq!(hex, ["010dfb2c01", "010e01fd0000000000000007", "010e00"]);
    }

    fn append() -> AppendFrame {
        let command = PayloadRecord::Normal(Command(vec![5, 6].into()));
        let entries = vec![
            EntryRecord { log_id: ID, payload: PayloadRecord::Blank },
            EntryRecord { log_id: LogIdRecord { term: 3, index: 301 }, payload: command },
        ];
        AppendFrame {
            sequence: 4,
            vote: VOTE,
            prev_log_id: None,
            leader_commit: Some(ID),
            acknowledged: Some(ID),
            entries,
        }
    }

    fn manifest() -> Manifest {
        let membership = codec::MembershipRecord { configs: Vec::new(), nodes: Default::default() };
        let last_membership = StoredMembershipRecord { log_id: Some(ID), membership };
        let meta = SnapshotMetaRecord { last_log_id: Some(ID), last_membership };
        Manifest { meta, chunk_count: 2, bytes: 40_000, records: 10, sha256: [1; 32] }
    }

    /// Text of the golden file (the stored encodings of all messages): two lines for each message,
    /// with its fields and its bytes.
    #[derive(Default)]
    struct Lines(String);

    impl Lines {
        /// Adds the lines of a message, and checks that its bytes are decoded to an equal message.
        #[track_caller]
        fn add<T: Encode + Decode<()> + std::fmt::Debug + PartialEq>(&mut self, message: T) {
            let bytes = codec::encode(&message);
            assert_eq!(codec::decode::<T>(&bytes).unwrap(), message);
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(self.0, "{message:?}\n    {hex}").unwrap();
        }
    }

    fn greetings(lines: &mut Lines) {
        let (uuid, incarnation, more) = (Some(ClusterUuid([7; 16])), 1 << 60, vec![(300, vec![1, 2])]);
        lines.add(Hello {
            versions: (1, 1),
            levels: (1, 1),
            cluster_id: "c".into(),
            from: 1,
            to: 2,
            lane: Lane::Forward,
            group: 0,
            uuid,
            incarnation,
            more: more.clone(),
        });
        lines.add(Welcome::Accepted(Acceptance { version: 1, levels: (1, 1), uuid: None, incarnation, more }));
        let refusals = [
            Refusal::NoMember,
            Refusal::NoCommonVersion { versions: (1, 2) },
            Refusal::NoCommonLevel { levels: (1, 300) },
            Refusal::OtherCluster,
            Refusal::Removed { zxid: 1 << 50 },
        ];
        refusals.into_iter().for_each(|refusal| lines.add(Welcome::Refused(refusal)));
    }

    #[test]
    fn messages_keep_their_bytes() {
        let mut lines = Lines::default();
        greetings(&mut lines);
        lines.add(append());
        let results = [
            AppendResult::Success,
            AppendResult::PartialSuccess(Some(ID)),
            AppendResult::Conflict,
            AppendResult::HigherVote(VOTE),
            AppendResult::Refused("r".into()),
        ];
        results.into_iter().for_each(|result| lines.add(AppendAnswer { sequence: 4, result }));
        asks().into_iter().for_each(|ask| lines.add(numbered(ask)));
        answers().into_iter().for_each(|answer| lines.add(numbered(answer)));
        lines.add(SnapshotFrame::Begin { vote: VOTE, manifest: manifest() });
        lines.add(SnapshotFrame::Chunk(vec![1, 2, 3]));
        lines.add(SnapshotFrame::End);
        lines.add(SnapshotAnswer::Working);
        lines.add(SnapshotAnswer::Done(VOTE));
        lines.add(SnapshotAnswer::Failed("r".into()));
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/level-1/peers.txt");
        assert_eq!(lines.0, std::fs::read_to_string(golden).unwrap(), "peers of this version would not understand");
    }
}
