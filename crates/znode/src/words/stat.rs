//! Facts about a znode, as ZooKeeper's clients see them.

use bincode::{Decode, Encode};

use crate::Zxid;

/// ZooKeeper's Stat with all eleven fields, and with the values that a ZooKeeper client is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Stat {
    /// The zxid of the entry that created the znode.
    pub czxid: Zxid,
    /// The zxid of the entry that last set the data.
    pub mzxid: Zxid,
    /// Time at which the znode was created, in milliseconds since 1970, by the leader's clock.
    pub ctime_ms: u64,
    /// Time at which the data was last set, in milliseconds since 1970, by the leader's clock.
    pub mtime_ms: u64,
    /// Number of times that the data was set.
    pub version: i32,
    /// Number of creates and deletes of children.
    pub cversion: i32,
    /// Number of times that the ACL was set.
    pub aversion: i32,
    /// The session of an ephemeral znode. A container has `0x8000000000000000`, and a TTL znode has
    /// its TTL below the byte `0xff`, as in ZooKeeper; any other znode has 0.
    pub ephemeral_owner: u64,
    /// The length of the data in bytes.
    pub data_length: u32,
    /// The number of children.
    pub num_children: u32,
    /// The zxid of the entry that last created or deleted a child; the czxid before that.
    pub pzxid: Zxid,
}
