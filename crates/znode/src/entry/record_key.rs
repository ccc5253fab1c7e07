//! Keys of a snapshot's records, by which a log entry can name a record.

use bincode::{Decode, Encode};

use crate::{RequestKey, SessionId, ZPath, Zxid};

/// Key of a record in the sequence of a snapshot's records. The order of the variants is the order
/// of the records, and the format in log entries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum RecordKey {
    /// The records that stand for the state as a whole and for the cluster.
    Head,
    /// An open session, or one of its remembered requests.
    Session(SessionId, Option<RequestKey>),
    /// The znode at the path.
    Znode(ZPath),
    /// The multi-lock whose lock nodes have this czxid.
    MultiLock(Zxid),
    /// A lock with grants that are left to later entries.
    Unsettled(ZPath),
    /// The revocation of the ticket at the path.
    Revocation(ZPath),
    /// The history of a lock.
    History(ZPath),
    /// An ended session.
    EndedSession(SessionId),
}
