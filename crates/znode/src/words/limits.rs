//! Bounds of the state. They are part of the state and change only by a log entry, because every
//! replica must refuse the same requests.

use bincode::{Decode, Encode};

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $kind:ty = $default:expr, $at_the_bound:literal;)*) => {
        /// Every bound that `State::apply` enforces. A new leader proposes its configured limits
        /// when they differ from those in the state.
        #[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
        pub struct Limits {
            $($(#[$doc])* pub $name: $kind,)*
        }

        /// The limits that are in force until a leader proposes its own. These values never change:
        /// a log that was written under them must give the same state in every version.
        impl Default for Limits {
            fn default() -> Self {
                Limits { $($name: $default,)* }
            }
        }

        impl Limits {
            /// Name of each limit, and the result when the bound is reached: the name of an error,
            /// or a text.
            pub const ROWS: &'static [(&'static str, &'static str)] = &[$((stringify!($name), $at_the_bound)),*];
        }
    };
}

// Columns: name, type, default, result at the bound.
limits! {
    /// Longest data of one znode, in bytes. The default is ZooKeeper's 1 MiB less 1 KiB for the
    /// rest of the entry.
    data_bytes_max: u32 = (1 << 20) - (1 << 10), "DataTooLarge";
    /// Longest path, in bytes.
    path_bytes_max: u32 = 1024, "PathTooLong";
    /// Maximum number of names in a path.
    path_depth_max: u32 = 64, "PathTooLong";
    /// Longest name in a path, in bytes.
    name_bytes_max: u32 = 255, "PathTooLong";
    /// Longest owner of a lock, label of a lock, and label of a session, each in bytes.
    label_bytes_max: u32 = 256, "DataTooLarge";
    /// Maximum number of children of one znode, lock nodes included.
    children_max: u32 = 1_000_000, "TooManyChildren";
    /// Maximum number of tickets in one lock's queue, holders included.
    waiters_max: u32 = 200_000, "TooManyWaiters";
    /// Maximum number of znodes in all.
    znodes_max: u64 = 5_000_000, "QuotaExceeded";
    /// Maximum memory that the state may take, by estimate, in bytes.
    state_bytes_max: u64 = 1 << 30, "QuotaExceeded";
    /// Maximum number of open sessions.
    sessions_max: u32 = 200_000, "TooManySessions";
    /// Maximum number of open sessions of one address: an IPv4 address, or the /64 network of an
    /// IPv6 address.
    sessions_per_address_max: u32 = 50_000, "TooManySessions";
    /// Maximum number of ephemeral znodes of one session. Bounds the work of the entry that ends
    /// the session.
    ephemerals_max: u32 = 10_000, "TooManyEphemerals";
    /// Maximum number of operations of one multi.
    ops_max: u32 = 128, "TooManyOps";
    /// Maximum number of znodes that one entry may make, remove or grant a lock to, in total. The
    /// end of one session may exceed this limit.
    entry_cost_max: u32 = 16_384, "TooManyOps";
    /// Maximum number of entries of one ACL.
    acl_entries_max: u32 = 64, "InvalidAcl";
    /// Maximum number of holds (acquires that share a ticket) of one lock by one owner.
    holds_max: u32 = 1024, "TooManyHolds";
    /// Maximum number of replies that each session keeps, to answer repeated idempotency keys.
    replies_max: u32 = 64, "the session forgets its oldest answer or key";
    /// Maximum number of idempotency keys that each session remembers as used after their replies
    /// are dropped.
    used_keys_max: u32 = 1024, "the session forgets its oldest answer or key";
    /// The shortest session timeout, in milliseconds. A client that asks for a shorter one gets
    /// this.
    session_timeout_min_ms: u32 = 2_000, "the session gets the nearest allowed timeout";
    /// The longest session timeout, in milliseconds. A client that asks for a longer one gets this.
    session_timeout_max_ms: u32 = 300_000, "the session gets the nearest allowed timeout";
    /// The longest lock-delay, in milliseconds. The HTTP server refuses a longer one, and the state
    /// machine shortens it.
    lock_delay_max_ms: u32 = 60_000, "the HTTP server refuses a longer lock-delay";
    /// Time for which a container stays after its last child was deleted, in milliseconds. So a
    /// busy lock keeps its directory, and its sequence numbers go on.
    container_idle_ms: u32 = 60_000, "the container is deleted";
    /// Maximum number of ended tickets in the history of a lock, separately for tickets that held
    /// the lock and for tickets that only waited. A value above [`Limits::HISTORY_MOST`] counts as
    /// `HISTORY_MOST`.
    history_max: u32 = 16, "the oldest record or history is forgotten";
    /// Maximum number of locks that have a history. The history of the lock in which no ticket has
    /// ended for the longest time is forgotten first.
    histories_max: u32 = 10_000, "the oldest record or history is forgotten";
    /// Maximum number of ended sessions that are remembered.
    ended_sessions_max: u32 = 10_000, "the oldest ended session is forgotten";
    /// Time for which ended sessions are remembered, in milliseconds, measured by the time of the
    /// leader in each log entry.
    ended_sessions_ms: u32 = 3_600_000, "the oldest ended session is forgotten";
    /// Maximum number of tickets that one acquire examines to find a deadlock. If these tickets
    /// show none, the acquire enters the queue. A value above [`Limits::LOOKS_MOST`] counts as
    /// `LOOKS_MOST`.
    deadlock_looks_max: u32 = 256, "the acquire enters the queue";
    /// Maximum estimated memory of one child of the root with all znodes below it, in bytes;
    /// ephemeral znodes do not count. The default is a quarter of the part of `state_bytes_max`
    /// that is for znodes without a session.
    subtree_bytes_max: u64 = ((1 << 30) - (1 << 30) / 5) / 4, "QuotaExceeded";
}

impl Limits {
    /// The highest effective `history_max`: the history of a lock must fit into one record of a
    /// snapshot.
    pub const HISTORY_MOST: u32 = 512;

    /// The highest effective `deadlock_looks_max`: the cycle that is found must fit into an answer
    /// that is kept.
    pub const LOOKS_MOST: u32 = 1024;

    /// Largest number of locks of a multi-lock if `ops_max` permits it. Bounds the work of a grant.
    pub const PARTS_MOST: u32 = 64;

    /// Divisor of `state_bytes_max`: one fifth is reserved for sessions and what they own.
    pub const RESERVE_PART: u64 = 5;

    /// Estimated memory of the state, in bytes, above which znodes without a session cannot be
    /// made.
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
