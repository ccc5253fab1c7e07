//! Messages of nodes to each other. The order of variants and fields is the format: append only.

use std::fmt;

use bincode::{Decode, Encode};
use storage::Manifest;
use storage::codec::{LogIdRecord, StoredMembershipRecord, VoteRecord};
use znode::{ClusterUuid, Credential, SessionId, TxnOutcome};

/// The versions of the messages in this file that this program speaks, lowest and highest.
/// [`Hello`] and [`Welcome`] are the same in all of them. Builds from before the first release
/// spoke versions 1 to 3, and their entries cannot be read.
pub(crate) const VERSIONS: (u16, u16) = (4, 4);

/// The purpose of a connection. Each has its own, so that a snapshot never holds up a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub(crate) enum Lane {
    /// Log entries and heartbeats, in order, many under way.
    Append,
    /// Votes, leadership transfer and questions about the ensemble.
    Control,
    /// A snapshot in chunks.
    Snapshot,
    /// Proposals, heartbeats of sessions and read indexes on their way to the leader.
    Forward,
}

/// The longest frame: one with a single entry of the longest kind, and a little around it.
pub(crate) const FRAME_BYTES_MAX: usize = 17 << 20;

/// A frame that carries positions and words, and none of a client's data.
const SHORT_BYTES_MAX: usize = 4 << 10;
/// A chunk of a snapshot, or its manifest.
const CHUNK_FRAME_BYTES_MAX: usize = 64 << 10;

impl Lane {
    /// The longest frame of the one that called.
    pub(crate) fn question_bytes_max(self) -> usize {
        match self {
            Lane::Append | Lane::Forward => FRAME_BYTES_MAX,
            Lane::Control => SHORT_BYTES_MAX,
            Lane::Snapshot => CHUNK_FRAME_BYTES_MAX,
        }
    }

    /// The longest frame of the one that was called.
    pub(crate) fn answer_bytes_max(self) -> usize {
        match self {
            // The answer has what was written, which tells of its parts.
            Lane::Forward => FRAME_BYTES_MAX,
            // Raft's words for an error may be long.
            Lane::Append | Lane::Control | Lane::Snapshot => CHUNK_FRAME_BYTES_MAX,
        }
    }
}

/// The number, in `more` of [`Hello`] and [`Acceptance`], of the program that a node runs.
pub(crate) const PROGRAM: u16 = 1;

/// The program that a node runs: its version, and the lowest and the highest level that it knows.
pub(crate) type ProgramRecord = (String, u16, u16);

/// The number, in the same place, of the preference for a node as leader: one byte, 0 to 100.
pub(crate) const LEADER_PRIORITY: u16 = 2;

/// The first frame on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Hello {
    /// Versions of the messages that the caller speaks, lowest and highest.
    pub(crate) versions: (u16, u16),
    /// Levels of the log's format that it must know, or knows.
    pub(crate) levels: (u16, u16),
    /// The cluster's name.
    pub(crate) cluster_id: String,
    /// The node that connects.
    pub(crate) from: u64,
    /// The node that it believes to reach.
    pub(crate) to: u64,
    /// The lane for which it connects.
    pub(crate) lane: Lane,
    /// The group to which it belongs, of several groups of the cluster.
    pub(crate) group: u32,
    /// The cluster, once the caller knows it.
    pub(crate) uuid: Option<ClusterUuid>,
    /// The incarnation of the caller's data directory.
    pub(crate) incarnation: u64,
    /// Additions of later programs, each with a number. Passed over where the number is not known.
    pub(crate) more: Vec<(u16, Vec<u8>)>,
}

/// The answer to [`Hello`]. After a refusal the connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Welcome {
    /// The caller is let in.
    Accepted(Acceptance),
    /// The connection is closed.
    Refused(Refusal),
}

/// The acceptance of a caller: facts on which both ends go on.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Acceptance {
    /// The version of all messages that follow: the highest that both ends speak.
    pub(crate) version: u16,
    /// Levels as in [`Hello`], of the one that was called.
    pub(crate) levels: (u16, u16),
    /// The cluster, as it knows it.
    pub(crate) uuid: Option<ClusterUuid>,
    /// The incarnation of its data directory.
    pub(crate) incarnation: u64,
    /// Additions of later programs.
    pub(crate) more: Vec<(u16, Vec<u8>)>,
}

/// The reason why a caller is turned away. Only one that knows the cluster's name and ids hears
/// more than that it is no member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Refusal {
    /// The hello is not what a member says.
    NoMember,
    /// The caller speaks none of these versions.
    NoCommonVersion {
        /// Lowest and highest.
        versions: (u16, u16),
    },
    /// The caller knows none of these levels.
    NoCommonLevel {
        /// Lowest and highest.
        levels: (u16, u16),
    },
    /// The caller belongs to another cluster of this name.
    OtherCluster,
    /// The caller was a member, and was removed.
    Removed {
        /// The zxid of the entry that says so.
        zxid: u64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoMember => {
                f.write_str("this is not a hello of a member; the log of the node that was called says why")
            }
            Refusal::NoCommonVersion { versions: (low, high) } => {
                let (own_low, own_high) = VERSIONS;
                write!(
                    f,
                    "the peer speaks versions {low} to {high} of the peer protocol, and this node {own_low} to {own_high}"
                )
            }
            Refusal::NoCommonLevel { levels: (low, high) } => {
                write!(f, "the peer takes only levels {low} to {high} of the format")
            }
            Refusal::OtherCluster => {
                f.write_str("the peer belongs to another cluster of the same name: their uuids differ")
            }
            Refusal::Removed { zxid } => write!(f, "this node was removed from the cluster at zxid {zxid}"),
        }
    }
}

/// The answer to an [`AppendFrame`], in the order of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct AppendAnswer {
    /// The request's number.
    pub(crate) sequence: u64,
    /// The outcome.
    pub(crate) result: AppendResult,
}

/// The outcome of an append.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum AppendResult {
    /// All entries are durable.
    Success,
    /// Entries up to this one are.
    PartialSuccess(Option<LogIdRecord>),
    /// The entry before the first is another one, or missing.
    Conflict,
    /// The receiver knows a higher vote.
    HigherVote(VoteRecord),
    /// The receiver takes no entries now, and why.
    Refused(String),
}

impl AppendResult {
    /// Tells whether the receiver takes the sender for its leader.
    pub(crate) fn follows(&self) -> bool {
        match self {
            AppendResult::Success | AppendResult::PartialSuccess(_) | AppendResult::Conflict => true,
            AppendResult::HigherVote(_) | AppendResult::Refused(_) => false,
        }
    }
}

/// A frame on the lanes `Control` and `Forward`, either way. Answers may overtake each other.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct NumberedMessage<T> {
    /// The answer repeats the request's number.
    pub(crate) number: u64,
    /// The question or the answer.
    pub(crate) body: T,
}

/// A question to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Ask {
    /// A question whether the peer is there.
    Ping,
    /// A question how far the peer is.
    Standing,
    /// A candidate's question for a vote.
    Vote(VoteFrame),
    /// A question whether the peer would vote for the asker.
    PreVote(VoteFrame),
    /// A call to stand for election: the leader steps aside.
    TransferLeader(TransferFrame),
    /// A request to write, within so many milliseconds.
    Propose {
        /// The request, as `znode::encode_request` gives it.
        request: Vec<u8>,
        /// Time that the asker waits.
        within_ms: u64,
    },
    /// Sessions that were heard.
    Touch(Vec<Credential>),
    /// A question for the entry that a linearizable read must see.
    ReadIndex,
    /// A question for an entry of the peer's log, and for what the asker has acknowledged.
    Account {
        /// The index of the entry.
        index: u64,
    },
    /// A question about an upgrade: which programs the members run, or to raise the level.
    Upgrade(UpgradeAsk),
    /// A question for the members.
    Members,
    /// An operator's order to the leader, as `leader::orders` writes it.
    Order(Vec<u8>),
    /// The silence of sessions, from a leader of `term` to the member that it hands over to.
    Ages {
        /// The leader's.
        term: u64,
        /// Sessions, and the silence of each in milliseconds.
        ages: Vec<(SessionId, u32)>,
    },
}

impl Ask {
    /// The version of the messages with which it came.
    pub(crate) fn version(&self) -> u16 {
        match self {
            Ask::Ping | Ask::Standing | Ask::Vote(_) | Ask::PreVote(_) | Ask::TransferLeader(_) => 4,
            Ask::Propose { .. } | Ask::Touch(_) | Ask::ReadIndex | Ask::Account { .. } => 4,
            Ask::Upgrade(_) | Ask::Members | Ask::Order(_) | Ask::Ages { .. } => 4,
        }
    }
}

/// A question about an upgrade, for the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum UpgradeAsk {
    /// A question for the programs that the members run.
    Status,
    /// An order to raise the level.
    Finalize {
        /// The level; the highest that a member knows when none is given.
        level: Option<u16>,
        /// Time that the asker waits.
        within_ms: u64,
    },
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Answer {
    /// The answer to [`Ask::Ping`] and [`Ask::Ages`].
    Pong,
    /// The answer to [`Ask::Standing`].
    Standing(Standing),
    /// The answer to [`Ask::Vote`] and [`Ask::PreVote`].
    Vote(VoteAnswer),
    /// The answer to [`Ask::TransferLeader`]: taken, or why not.
    TransferLeader(Result<(), TransferRefusal>),
    /// The answer to [`Ask::Propose`].
    Propose(ProposeAnswer),
    /// The answer to [`Ask::Touch`], in the order of the question.
    Touch(Vec<TouchAnswer>),
    /// The answer to [`Ask::ReadIndex`]: the zxid.
    ReadIndex(u64),
    /// The node does not lead; whom it believes to lead.
    NotLeader(Option<u64>),
    /// The reason why nothing was done.
    Refused(String),
    /// A word that answers no question: the node stops. Questions up to this number will be
    /// answered, later ones were not taken.
    Leaving {
        /// The number of the last question that was taken; 0 when none was.
        taken: u64,
    },
    /// The answer to [`Ask::Account`].
    Account(Account),
    /// The answer to [`Ask::Upgrade`]; [`Answer::Propose`] where nothing, or something unknown,
    /// came of it.
    Upgrade(UpgradeRecord),
    /// The answer to [`Ask::Members`].
    Members(KnownMembers),
    /// The answer to [`Ask::Order`], as `leader::orders` writes it.
    Order(Vec<u8>),
}

/// Facts that the leader knows of the members.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct UpgradeRecord {
    /// The zxid of the state that this is told from.
    pub(crate) at: u64,
    /// The cluster's level.
    pub(crate) level: u16,
    /// The members.
    pub(crate) members: Vec<MemberRecord>,
    /// The level that was asked for and that not all of them are ready for.
    pub(crate) not_ready_for: Option<u16>,
}

/// Facts that the leader knows of a member.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct MemberRecord {
    /// The member's id.
    pub(crate) id: u64,
    /// The program that it runs, as far as that is known.
    pub(crate) program: Option<ProgramRecord>,
    /// True if it follows.
    pub(crate) reachable: bool,
}

/// Facts that a node knows of the members.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct KnownMembers {
    /// The uuid of the cluster, once it is known.
    pub(crate) uuid: Option<ClusterUuid>,
    /// The membership that rules at this node, and where it stands in its log.
    pub(crate) membership: StoredMembershipRecord,
    /// True if this node was removed, and what it knows is old.
    pub(crate) removed: bool,
    /// The node that asks was removed, by the entry with this zxid.
    pub(crate) asker_removed: Option<u64>,
}

/// The account of a node of its own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Account {
    /// The node's vote.
    pub(crate) vote: VoteRecord,
    /// The entry that was asked for; none when it has none there, or has purged it.
    pub(crate) entry: Option<LogIdRecord>,
    /// The last entry.
    pub(crate) last: Option<LogIdRecord>,
    /// The last entry that the asker said to be on its disk, as far as a leader knows in its term.
    pub(crate) acknowledged: Option<LogIdRecord>,
}

/// The progress of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Standing {
    /// True if nothing but, at most, the first membership is in its log.
    pub(crate) fresh: bool,
    /// True if it has a vote.
    pub(crate) joined: bool,
    /// The term it knows.
    pub(crate) term: u64,
    /// True if it leads in that term.
    pub(crate) leads: bool,
    /// The index of the last entry in its log.
    pub(crate) last_log: u64,
    /// True if its disk answers, and has for a while.
    pub(crate) steady: bool,
}

/// A candidate's question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct VoteFrame {
    /// The vote asked for.
    pub(crate) vote: VoteRecord,
    /// The candidate's last entry.
    pub(crate) last_log_id: Option<LogIdRecord>,
    /// True if the leader asked the candidate to stand.
    pub(crate) leadership_transfer: bool,
}

/// The answer to a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct VoteAnswer {
    /// The voter's vote afterwards.
    pub(crate) vote: VoteRecord,
    /// True if it was granted.
    pub(crate) granted: bool,
    /// The voter's last entry.
    pub(crate) last_log_id: Option<LogIdRecord>,
}

/// The leader steps aside for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct TransferFrame {
    /// The leader's vote.
    pub(crate) from_leader: VoteRecord,
    /// The member for which it steps aside.
    pub(crate) to: u64,
    /// The last entry that it must have.
    pub(crate) last_log_id: Option<LogIdRecord>,
}

/// The reason why a member does not take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum TransferRefusal {
    /// The member's vote is another leader's by now.
    VoteChanged {
        /// The one it was asked by.
        expected: VoteRecord,
        /// The one it has.
        actual: VoteRecord,
    },
    /// The member has not written the leader's last entry yet.
    LogNotFlushed {
        /// The leader's last.
        expected: Option<LogIdRecord>,
        /// The member's last.
        actual: Option<LogIdRecord>,
    },
}

/// The fate of a forwarded proposal.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum ProposeAnswer {
    /// The leader has applied the entry.
    Applied {
        /// The entry's zxid. `applied.zxid` is an earlier one for a repeated idempotency key.
        at: u64,
        /// The outcome, without events.
        applied: TxnOutcome,
    },
    /// The entry was not proposed.
    Unavailable {
        /// The reason, for people.
        reason: String,
        /// Time after which a retry may do better.
        retry_after_ms: u64,
    },
    /// The entry may have happened.
    Unknown(String),
    /// The request cannot be an entry at all.
    Refused(znode::Error),
}

/// The fate of a session's heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum TouchAnswer {
    /// The heartbeat is noted; the session's timeout.
    Alive {
        /// The timeout in milliseconds.
        timeout_ms: u32,
    },
    /// The state machine's rules say no.
    Refused(znode::Error),
    /// The session's expiry is on its way; whether it comes to pass is not known yet.
    Expiring,
}

/// A frame on the lane `Snapshot`, from the sender.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum SnapshotFrame {
    /// The announcement of the snapshot.
    Begin {
        /// The leader's vote.
        vote: VoteRecord,
        /// The chunks that it consists of.
        manifest: Manifest,
    },
    /// The next piece.
    Chunk(Vec<u8>),
    /// The end.
    End,
}

/// The receiver's answer on the lane `Snapshot`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum SnapshotAnswer {
    /// The receiver is still at it: writing or reading the snapshot takes its time.
    Working,
    /// The snapshot is installed, or refused by vote: the receiver's vote.
    Done(VoteRecord),
    /// The reason why it did not work out.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use storage::Command;
    use storage::codec::{self, EntryRecord, PayloadRecord, SnapshotMetaRecord, StoredMembershipRecord};
    use znode::{Reply, Zxid};

    use super::*;
    use crate::raft::transport::AppendFrame;

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
            Answer::ReadIndex(300),
            Answer::NotLeader(Some(2)),
            Answer::Refused("r".into()),
            Answer::Account(Account { vote: VOTE, entry: None, last: Some(ID), acknowledged: Some(ID) }),
        ]
    }

    #[test]
    fn messages_of_upgrades_keep_their_bytes() {
        let program = Some(("0.2.0".to_owned(), 1, 2));
        let members = vec![MemberRecord { id: 3, program, reachable: true }];
        let record = UpgradeRecord { at: 300, level: 1, members, not_ready_for: Some(2) };
        let mut lines = Lines::default();
        lines.add(UpgradeAsk::Status);
        lines.add(UpgradeAsk::Finalize { level: Some(2), within_ms: 1_000 });
        lines.add(record);
        lines.add::<ProgramRecord>(("0.2.0".into(), 1, 2));
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

    /// One line of text for each message: what it is, and its bytes.
    #[derive(Default)]
    struct Lines(String);

    impl Lines {
        /// Adds a message, and checks that its bytes are read back as what they were.
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
