//! The bounds of the state. Replicated: every replica must refuse alike, so they change by a log entry only.

use bincode::{Decode, Encode};

use crate::cost::steps_at;

/// Every bound that `State::apply` enforces. A new leader proposes its configured limits when they differ.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Limits {
    /// Data of one znode, in bytes. The default is ZooKeeper's 1 MiB less 1 KiB for the rest of the entry.
    pub data_bytes_max: u32,
    /// A path, in bytes.
    pub path_bytes_max: u32,
    /// Names in a path.
    pub path_depth_max: u32,
    /// One name, in bytes.
    pub name_bytes_max: u32,
    /// Owner and label of a lock, label of a session, each in bytes.
    pub label_bytes_max: u32,
    /// Children of one znode, waiters included.
    pub children_max: u32,
    /// Contenders in one lock's queue, holders included.
    pub waiters_max: u32,
    /// All znodes.
    pub znodes_max: u64,
    /// All data, in bytes.
    pub state_bytes_max: u64,
    /// Open sessions.
    pub sessions_max: u32,
    /// Open sessions of one address: an IPv4 address, or the /64 network of an IPv6 address.
    pub sessions_per_address_max: u32,
    /// Ephemeral znodes of one session: bounds the work of the entry that ends it.
    pub ephemerals_max: u32,
    /// Operations of one multi.
    pub ops_max: u32,
    /// Znodes that one entry may make, remove and grant a lock to. The end of one session may take more.
    pub entry_cost_max: u32,
    /// Entries of one ACL.
    pub acl_entries_max: u32,
    /// How often one owner may hold one lock over.
    pub holds_max: u32,
    /// Replies kept for repeated idempotency keys, for each session.
    pub replies_max: u32,
    /// Idempotency keys remembered as used after their reply is gone, for each session.
    pub used_keys_max: u32,
    /// The shortest session timeout, in milliseconds. A shorter wish is raised to it.
    pub session_timeout_min_ms: u32,
    /// The longest session timeout, in milliseconds. A longer wish is cut to it.
    pub session_timeout_max_ms: u32,
    /// The longest lock-delay, in milliseconds. A longer wish is cut to it.
    pub lock_delay_max_ms: u32,
    /// How long a container stays after its last child went, in milliseconds: a busy lock keeps its directory, and its
    /// sequence numbers go on.
    pub container_idle_ms: u32,
    /// Past grants that each lock remembers, and as many past waits. At most [`Limits::HISTORY_MOST`] count.
    pub history_max: u32,
    /// Locks that remember any. The one where nothing ended for longest is forgotten first.
    pub histories_max: u32,
    /// Ended sessions that are remembered.
    pub ended_sessions_max: u32,
    /// For how long, in milliseconds by the time on entries.
    pub ended_sessions_ms: u32,
    /// Tickets that one acquire looks at to find a deadlock. With more to look at it is let in. At most
    /// [`Limits::LOOKS_MOST`] count.
    pub deadlock_looks_max: u32,
}

impl Limits {
    /// More of a lock's past than this is kept by nobody: it is one record of a snapshot.
    pub const HISTORY_MOST: u32 = 512;

    /// A longer cycle could not be kept as an answer.
    pub const LOOKS_MOST: u32 = 1024;

    pub(crate) fn deadlock_looks(&self) -> u32 {
        self.deadlock_looks_max.min(Self::LOOKS_MOST)
    }

    pub(crate) fn histories_each(&self) -> usize {
        self.history_max.min(Self::HISTORY_MOST) as usize
    }

    /// What a transaction of [`Limits::ops_max`] creates takes of [`Limits::entry_cost_max`], as deep in the tree as they may be.
    pub fn creates_cost_max(&self) -> u64 {
        steps_at(self.path_depth_max as usize).saturating_mul(u64::from(self.ops_max))
    }
}

/// What counts until a leader says otherwise. Never changes: a log that was written under it must mean the same to every
/// version.
impl Default for Limits {
    fn default() -> Self {
        Limits {
            data_bytes_max: (1 << 20) - (1 << 10),
            path_bytes_max: 1024,
            path_depth_max: 64,
            name_bytes_max: 255,
            label_bytes_max: 256,
            children_max: 1_000_000,
            waiters_max: 200_000,
            znodes_max: 5_000_000,
            state_bytes_max: 1 << 30,
            sessions_max: 200_000,
            sessions_per_address_max: 50_000,
            ephemerals_max: 10_000,
            ops_max: 128,
            entry_cost_max: 16_384,
            acl_entries_max: 64,
            holds_max: 1024,
            replies_max: 64,
            used_keys_max: 1024,
            session_timeout_min_ms: 2_000,
            session_timeout_max_ms: 300_000,
            lock_delay_max_ms: 60_000,
            container_idle_ms: 60_000,
            history_max: 16,
            histories_max: 10_000,
            ended_sessions_max: 10_000,
            ended_sessions_ms: 3_600_000,
            deadlock_looks_max: 256,
        }
    }
}
