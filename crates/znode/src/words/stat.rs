//! The facts about a znode, as ZooKeeper clients see them.

use bincode::{Decode, Encode};

use crate::Zxid;

/// ZooKeeper's Stat, all eleven fields, with the values that a ZooKeeper client would be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Stat {
    /// The zxid that created the znode.
    pub czxid: Zxid,
    /// The zxid that last set its data.
    pub mzxid: Zxid,
    /// Time at which it was created, in milliseconds since 1970, by the leader's clock.
    pub ctime_ms: u64,
    /// Time at which its data was last set.
    pub mtime_ms: u64,
    /// Number of times that its data was set.
    pub version: i32,
    /// Number of times that its list of children changed: creates and deletes.
    pub cversion: i32,
    /// Number of times that its ACL was set.
    pub aversion: i32,
    /// The session that an ephemeral znode belongs to; 0 for others but these: containers carry
    /// `0x8000000000000000` and TTL znodes their TTL behind `0xff`, as ZooKeeper shows them.
    pub ephemeral_owner: u64,
    /// The length of the data in bytes.
    pub data_length: u32,
    /// The number of children.
    pub num_children: u32,
    /// The zxid that last changed the list of children; the czxid before that.
    pub pzxid: Zxid,
}
