//! Where an error of the state machine meets ZooKeeper's numbers.

use znode::Error;
use znode::Zxid;

/// How a refusal is told to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// As an error in the answer's header.
    Code(i32),
    /// The connection is closed: the session is gone, or at another connection, and the client
    /// finds out by coming again.
    Closed,
}

/// The answer to a refusal. Bounds that ZooKeeper does not have are told with its codes that come
/// nearest: a client may not know any others. The numbers stand in the table of errors.
pub(crate) fn told(refusal: Error) -> Told {
    refusal.row().zookeeper.map_or(Told::Closed, Told::Code)
}

/// A zxid as ZooKeeper writes it.
pub(crate) fn wire_zxid(zxid: Zxid) -> i64 {
    i64::try_from(zxid.0).unwrap_or(i64::MAX)
}
