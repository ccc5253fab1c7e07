//! The bounds of the state. Replicated: every replica must refuse alike, so they change by a log
//! entry only.

use bincode::{Decode, Encode};

/// A row of the table of limits.
#[derive(Clone, Copy, Debug)]
pub struct LimitRow {
    /// The name of the field.
    pub name: &'static str,
    /// Unit of what it counts.
    pub unit: Unit,
    /// The outcome at the bound: the name of an error, or words.
    pub at_the_bound: &'static str,
    /// The value.
    pub get: fn(&Limits) -> u64,
}

/// Units of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Millis,
    /// Things.
    Count,
}

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $kind:ty = $default:expr, $unit:ident, $at_the_bound:literal;)*) => {
        /// Every bound that `State::apply` enforces. A new leader proposes its configured limits
        /// when they differ.
        #[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
        pub struct Limits {
            $($(#[$doc])* pub $name: $kind,)*
        }

        /// The limits until a leader says otherwise. They never change: a log that was written
        /// under them must mean the same to every version.
        impl Default for Limits {
            fn default() -> Self {
                Limits { $($name: $default,)* }
            }
        }

        impl Limits {
            /// The table: every limit, in the order of the format.
            pub const ROWS: &'static [LimitRow] = &[$(LimitRow {
                name: stringify!($name),
                unit: Unit::$unit,
                at_the_bound: $at_the_bound,
                get: |limits| limits.$name.into(),
            },)*];
        }
    };
}

// Name, type, default, unit, what happens at the bound.
limits! {
    /// Data of one znode, in bytes. The default is ZooKeeper's 1 MiB less 1 KiB for the rest of the
    /// entry.
    data_bytes_max: u32 = (1 << 20) - (1 << 10), Bytes, "DataTooLarge";
    /// A path, in bytes.
    path_bytes_max: u32 = 1024, Bytes, "PathTooLong";
    /// Names in a path.
    path_depth_max: u32 = 64, Count, "PathTooLong";
    /// One name, in bytes.
    name_bytes_max: u32 = 255, Bytes, "PathTooLong";
    /// Owner and label of a lock, label of a session, each in bytes.
    label_bytes_max: u32 = 256, Bytes, "DataTooLarge";
    /// Children of one znode, waiters included.
    children_max: u32 = 1_000_000, Count, "TooManyChildren";
    /// Contenders in one lock's queue, holders included.
    waiters_max: u32 = 200_000, Count, "TooManyWaiters";
    /// All znodes.
    znodes_max: u64 = 5_000_000, Count, "QuotaExceeded";
    /// The memory that the state takes, by estimate, in bytes.
    state_bytes_max: u64 = 1 << 30, Bytes, "QuotaExceeded";
    /// Open sessions.
    sessions_max: u32 = 200_000, Count, "TooManySessions";
    /// Open sessions of one address: an IPv4 address, or the /64 network of an IPv6 address.
    sessions_per_address_max: u32 = 50_000, Count, "TooManySessions";
    /// Ephemeral znodes of one session: bounds the work of the entry that ends it.
    ephemerals_max: u32 = 10_000, Count, "TooManyEphemerals";
    /// Operations of one multi.
    ops_max: u32 = 128, Count, "TooManyOps";
    /// Znodes that one entry may make, remove and grant a lock to. The end of one session may take
    /// more.
    entry_cost_max: u32 = 16_384, Count, "TooManyOps";
    /// Entries of one ACL.
    acl_entries_max: u32 = 64, Count, "InvalidAcl";
    /// Holds of one lock by one owner.
    holds_max: u32 = 1024, Count, "TooManyHolds";
    /// Replies kept for repeated idempotency keys, for each session.
    replies_max: u32 = 64, Count, "the oldest goes";
    /// Idempotency keys remembered as used after their reply is gone, for each session.
    used_keys_max: u32 = 1024, Count, "the oldest goes";
    /// The shortest session timeout, in milliseconds. A shorter wish is raised to it.
    session_timeout_min_ms: u32 = 2_000, Millis, "the wish is brought into bounds";
    /// The longest session timeout, in milliseconds. A longer wish is cut to it.
    session_timeout_max_ms: u32 = 300_000, Millis, "the wish is brought into bounds";
    /// The longest lock-delay, in milliseconds. The door refuses a longer wish; here it is cut.
    lock_delay_max_ms: u32 = 60_000, Millis, "the wish is cut; the door refuses it";
    /// Time for which a container stays after its last child went, in milliseconds: a busy lock
    /// keeps its directory, and its sequence numbers go on.
    container_idle_ms: u32 = 60_000, Millis, "it is collected";
    /// Past grants that each lock remembers, and as many past waits. At most
    /// [`Limits::HISTORY_MOST`] count.
    history_max: u32 = 16, Count, "the oldest goes";
    /// Locks that remember any. The one where nothing ended for longest is forgotten first.
    histories_max: u32 = 10_000, Count, "the oldest goes";
    /// Ended sessions that are remembered.
    ended_sessions_max: u32 = 10_000, Count, "the oldest goes";
    /// Time for which these are remembered, in milliseconds by the time on entries.
    ended_sessions_ms: u32 = 3_600_000, Millis, "the oldest goes";
    /// Tickets that one acquire looks at to find a deadlock. With more to look at it is let in. At
    /// most [`Limits::LOOKS_MOST`] count.
    deadlock_looks_max: u32 = 256, Count, "it is let in";
    /// Weight of the znodes below one child of the root, itself included, in bytes; those of
    /// sessions do not count. The default is a quarter of what `state_bytes_max` leaves to znodes.
    subtree_bytes_max: u64 = ((1 << 30) - (1 << 30) / 5) / 4, Bytes, "QuotaExceeded";
}

impl Limits {
    /// The most that is kept of a lock's past: it is one record of a snapshot.
    pub const HISTORY_MOST: u32 = 512;

    /// The most looks that count: a longer cycle could not be kept as an answer.
    pub const LOOKS_MOST: u32 = 1024;

    /// Part of `state_bytes_max` that is for sessions and what they own: a fifth.
    pub const RESERVE_PART: u64 = 5;

    /// Bytes of the state up to which znodes are made that are no session's.
    pub fn plain_bytes_max(&self) -> u64 {
        self.state_bytes_max - self.state_bytes_max / Self::RESERVE_PART
    }

    pub(crate) fn deadlock_looks(&self) -> u32 {
        self.deadlock_looks_max.min(Self::LOOKS_MOST)
    }

    pub(crate) fn histories_each(&self) -> usize {
        self.history_max.min(Self::HISTORY_MOST) as usize
    }
}
