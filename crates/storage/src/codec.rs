//! Byte formats of all records that are stored or sent to a peer.
//!
//! A record is a version byte and the bincode of one of the structs below. The structs mirror
//! openraft's types field by field, so an upgrade of openraft cannot silently change a byte on
//! disk. **The order of fields and variants is the format**: only append, and raise the version for
//! a change that an old reader would misread. Golden bytes are frozen in `tests/golden`.

use std::collections::{BTreeMap, BTreeSet};

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::de::Decoder;
use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode};
use bytes::Bytes;

use crate::raft::types::{Command, Entry, LogId, Member, Membership, Payload, SnapshotMeta, StoredMembership, Vote};

/// Version byte of the records that this program writes, and the newest version that it can read.
pub const VERSION: u8 = 1;

/// Largest size of a record in bytes. A record that states a larger length is refused before any
/// allocation.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// Largest size in bytes of a record that [`decode_short`] reads.
const SHORT_BYTES_MAX: usize = 4 << 10;

const CONFIG: Configuration<LittleEndian, Varint, Limit<RECORD_BYTES_MAX>> =
    bincode::config::standard().with_limit::<RECORD_BYTES_MAX>();

/// Reason why bytes cannot be read as a record.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The input is empty, so it has no version byte.
    #[error("an empty record")]
    Empty,
    /// The record has a version that this program does not know.
    #[error("record version {found}, but this program reads up to {VERSION}")]
    Version {
        /// The version byte found.
        found: u8,
    },
    /// The bytes are no valid encoding of the type to decode. The text describes the fault.
    #[error("malformed record: {0}")]
    Malformed(String),
    /// The given number of bytes follows the end of the record.
    #[error("{0} bytes behind the end of a record")]
    Trailing(usize),
    /// The CRC-32 at the end of the input does not match the record before it.
    #[error("a record's checksum does not match")]
    Checksum,
}

impl From<CodecError> for std::io::Error {
    fn from(error: CodecError) -> Self {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}

/// Returns the record of `value`: version byte, then bincode.
pub fn encode<T: Encode>(value: &T) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bincode::encode_into_std_write(value, &mut bytes, CONFIG).expect("writing to memory does not fail");
    bytes
}

/// Decodes a record that [`encode`] returned.
///
/// # Errors
/// Any [`CodecError`] but `Checksum`; bytes behind the record's end are an error too.
pub fn decode<T: Decode<()>>(bytes: &[u8]) -> Result<T, CodecError> {
    decode_with(bytes, CONFIG)
}

/// Returns the bincode of `value` without a version byte. Log entries are stored in this form, and
/// the format number of the data directory states their version.
pub(crate) fn encode_bare<T: Encode>(value: &T) -> Vec<u8> {
    bincode::encode_to_vec(value, CONFIG).expect("writing to memory does not fail")
}

/// Decodes bytes that [`encode_bare`] returned.
pub(crate) fn decode_bare<T: Decode<()>>(bytes: &[u8]) -> Result<T, CodecError> {
    decode_body(bytes, CONFIG)
}

/// Decodes a record as [`decode`] does, but refuses one that states more than 4 KiB, before any
/// allocation.
///
/// # Errors
/// As [`decode`].
pub fn decode_short<T: Decode<()>>(bytes: &[u8]) -> Result<T, CodecError> {
    decode_with(bytes, bincode::config::standard().with_limit::<SHORT_BYTES_MAX>())
}

fn decode_with<T: Decode<()>, C: bincode::config::Config>(bytes: &[u8], config: C) -> Result<T, CodecError> {
    let (&version, body) = bytes.split_first().ok_or(CodecError::Empty)?;
    if version != VERSION {
        return Err(CodecError::Version { found: version });
    }
    decode_body(body, config)
}

fn decode_body<T: Decode<()>, C: bincode::config::Config>(body: &[u8], config: C) -> Result<T, CodecError> {
    let (value, consumed) = bincode::decode_from_slice(body, config).map_err(malformed)?;
    match body.len() - consumed {
        0 => Ok(value),
        trailing => Err(CodecError::Trailing(trailing)),
    }
}

/// Returns the CRC-32 of a record, for transports that may corrupt bytes.
pub fn checksum(record: &[u8]) -> u32 {
    crc32fast::hash(record)
}

/// Returns the record of `value` with a CRC-32 at the end, for files that have no checksum of their
/// own.
pub fn seal<T: Encode>(value: &T) -> Vec<u8> {
    let mut bytes = encode(value);
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Checks and decodes a record that [`seal`] returned.
///
/// # Errors
/// Any [`CodecError`]. The version is checked first, so that a newer format is not reported as
/// damage.
pub fn unseal<T: Decode<()>>(bytes: &[u8]) -> Result<T, CodecError> {
    let &found = bytes.first().ok_or(CodecError::Empty)?;
    if found > VERSION {
        return Err(CodecError::Version { found });
    }
    let (record, checksum) = bytes.split_last_chunk::<4>().ok_or(CodecError::Checksum)?;
    if crc32fast::hash(record) != u32::from_le_bytes(*checksum) {
        return Err(CodecError::Checksum);
    }
    decode(record)
}

fn malformed(error: impl std::fmt::Display) -> CodecError {
    CodecError::Malformed(error.to_string())
}

impl Encode for Command {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        self.0[..].encode(encoder)
    }
}

impl<Context> Decode<Context> for Command {
    fn decode<D: Decoder<Context = Context>>(decoder: &mut D) -> Result<Self, DecodeError> {
        Vec::<u8>::decode(decoder).map(|bytes| Command(Bytes::from(bytes)))
    }
}

bincode::impl_borrow_decode!(Command);

/// Stored form of [`LogId`], with the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct LogIdRecord {
    /// Term of the leader that wrote the log entry.
    pub term: u64,
    /// Index of the log entry.
    pub index: u64,
}

impl From<&LogId> for LogIdRecord {
    fn from(id: &LogId) -> Self {
        LogIdRecord { term: id.committed_leader_id().term, index: id.index }
    }
}

impl From<LogIdRecord> for LogId {
    fn from(record: LogIdRecord) -> Self {
        LogId::new_term_index(record.term, record.index)
    }
}

/// Stored form of [`Vote`], with the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct VoteRecord {
    /// Term for which the node has voted.
    pub term: u64,
    /// Id of the node that got the vote.
    pub node_id: u64,
    /// True once a quorum has granted the same vote, so that `node_id` is the leader of `term`.
    pub committed: bool,
}

impl From<&Vote> for VoteRecord {
    fn from(vote: &Vote) -> Self {
        VoteRecord { term: vote.leader_id.term, node_id: vote.leader_id.voted_for, committed: vote.committed }
    }
}

impl From<VoteRecord> for Vote {
    fn from(record: VoteRecord) -> Self {
        let VoteRecord { term, node_id, committed } = record;
        if committed { Vote::new_committed(term, node_id) } else { Vote::new(term, node_id) }
    }
}

/// Node that owns a log, and the number of the log's bytes that are known to be on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct OwnerRecord {
    /// Name of the cluster and id of the node, as `cluster/node`.
    pub owner: String,
    /// Incarnation of the data directory that contains the log: a random number drawn when the
    /// directory was created.
    pub incarnation: u64,
    /// Number of the log's bytes that were on disk when this record was written.
    pub durable: u64,
}

/// Stored form of [`Membership`], with the same content.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct MembershipRecord {
    /// Sets of voters by node id: one set, or two during a membership change (joint consensus).
    pub configs: Vec<BTreeSet<u64>>,
    /// All members by node id. A member that is in no set of `configs` is a learner.
    pub nodes: BTreeMap<u64, Member>,
}

impl From<&Membership> for MembershipRecord {
    fn from(membership: &Membership) -> Self {
        let nodes = membership.nodes().map(|(id, member)| (*id, member.clone())).collect();
        MembershipRecord { configs: membership.get_joint_config().clone(), nodes }
    }
}

impl TryFrom<MembershipRecord> for Membership {
    type Error = CodecError;

    fn try_from(record: MembershipRecord) -> Result<Self, CodecError> {
        // openraft uses an empty membership before the first one is set, but its constructor
        // refuses it.
        if record.configs.is_empty() && record.nodes.is_empty() {
            return Ok(Membership::default());
        }
        Membership::new(record.configs, record.nodes).map_err(malformed)
    }
}

/// Stored form of [`StoredMembership`], with the same content.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StoredMembershipRecord {
    /// Position of the log entry that set the membership; `None` for the empty membership of a new
    /// node.
    pub log_id: Option<LogIdRecord>,
    /// The voters and learners that the log entry has set.
    pub membership: MembershipRecord,
}

impl From<&StoredMembership> for StoredMembershipRecord {
    fn from(stored: &StoredMembership) -> Self {
        StoredMembershipRecord {
            log_id: stored.log_id().as_ref().map(LogIdRecord::from),
            membership: stored.membership().into(),
        }
    }
}

impl TryFrom<StoredMembershipRecord> for StoredMembership {
    type Error = CodecError;

    fn try_from(record: StoredMembershipRecord) -> Result<Self, CodecError> {
        Ok(StoredMembership::new(record.log_id.map(LogId::from), record.membership.try_into()?))
    }
}

/// Stored form of [`SnapshotMeta`], with the same content.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SnapshotMetaRecord {
    /// Position of the last log entry whose effect the snapshot contains; `None` for an empty
    /// snapshot.
    pub last_log_id: Option<LogIdRecord>,
    /// Membership that is in effect after the log entry at `last_log_id`.
    pub last_membership: StoredMembershipRecord,
}

impl From<&SnapshotMeta> for SnapshotMetaRecord {
    fn from(meta: &SnapshotMeta) -> Self {
        SnapshotMetaRecord {
            last_log_id: meta.last_log_id.as_ref().map(LogIdRecord::from),
            last_membership: (&meta.last_membership).into(),
        }
    }
}

impl TryFrom<SnapshotMetaRecord> for SnapshotMeta {
    type Error = CodecError;

    fn try_from(record: SnapshotMetaRecord) -> Result<Self, CodecError> {
        Ok(SnapshotMeta {
            last_log_id: record.last_log_id.map(LogId::from),
            last_membership: record.last_membership.try_into()?,
        })
    }
}

/// Stored form of [`Payload`], with the same content.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PayloadRecord {
    /// No content. A new leader appends such a log entry first.
    Blank,
    /// A command for the state machine.
    Normal(Command),
    /// A change of the voters and learners.
    Membership(MembershipRecord),
}

impl From<&Payload> for PayloadRecord {
    fn from(payload: &Payload) -> Self {
        match payload {
            Payload::Blank => PayloadRecord::Blank,
            Payload::Normal(command) => PayloadRecord::Normal(command.clone()),
            Payload::Membership(membership) => PayloadRecord::Membership(membership.into()),
        }
    }
}

impl TryFrom<PayloadRecord> for Payload {
    type Error = CodecError;

    fn try_from(record: PayloadRecord) -> Result<Self, CodecError> {
        Ok(match record {
            PayloadRecord::Blank => Payload::Blank,
            PayloadRecord::Normal(command) => Payload::Normal(command),
            PayloadRecord::Membership(membership) => Payload::Membership(membership.try_into()?),
        })
    }
}

/// Stored form of [`Entry`], with the same content.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct EntryRecord {
    /// Position of the log entry: term and index.
    pub log_id: LogIdRecord,
    /// Content of the log entry.
    pub payload: PayloadRecord,
}

impl From<&Entry> for EntryRecord {
    fn from(entry: &Entry) -> Self {
        EntryRecord { log_id: (&entry.log_id).into(), payload: (&entry.payload).into() }
    }
}

impl EntryRecord {
    /// Converts the record to an entry of openraft.
    ///
    /// # Errors
    /// `Malformed` for a membership that openraft refuses as invalid.
    pub fn into_entry(self) -> Result<Entry, CodecError> {
        Ok(Entry { log_id: self.log_id.into(), payload: self.payload.try_into()? })
    }
}
