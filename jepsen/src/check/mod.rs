//! The checkers: one for each workload, each with the promise that it judges.

mod again;
mod calm;
mod election;
mod ephemeral;
mod fenced;
mod guarded;
mod in_time;
mod lock;
mod lock_delay;
mod mixed;
mod multi;
mod multi_lock;
pub mod order;
mod places;
mod queue;
mod register;
pub mod replayed;
mod revoke;
mod semaphore;
mod sequential;
mod session;
mod set;
pub mod stay;
pub mod tenure;
mod told_in_time;
mod upgrade;
mod watch;
mod worth;
pub mod zones;

use crate::answer::WRONG;
use crate::history::{self, Entry, Operation};
use crate::verdict::Verdict;

pub use calm::SETTLE_NS;
pub use in_time::GRANT_MAX_NS;
pub use lock::calls_of_locks;
pub use register::calls_of_registers;
pub use worth::check_worth;

/// What the harness can do to a cluster, and judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workload {
    /// Linearizable read, write and compare-and-set on many keys.
    Register,
    /// A linearizable mutex that knows its owner.
    Lock,
    /// Tokens rise, and nothing written under them is lost.
    FencedLock,
    /// The same without the guard: counts what is lost.
    UnguardedLock,
    /// A linearizable mutex that its owner may take again.
    ReentrantLock,
    /// A linearizable read/write lock.
    RwLock,
    /// Locks are granted in the order in which they were asked for.
    Queue,
    /// Sequence numbers are unique and rise.
    Sequential,
    /// Znodes live exactly as long as their sessions.
    Ephemeral,
    /// No event is lost, none comes twice or out of order.
    Watch,
    /// Transfers between accounts are strictly serializable.
    Multi,
    /// Reads never go back in time for one client.
    Session,
    /// A request that is sent again with its key happens once.
    ExactlyOnce,
    /// Never more permits than there are, in the order of the queue.
    Semaphore,
    /// Several locks at once are granted all or none.
    MultiLock,
    /// One leader at a time, seen in order.
    Election,
    /// From reading to writing and back, with no writer in between.
    Upgrade,
    /// All kinds of claims to the same locks.
    Mixed,
    /// What was taken away is gone, and its token dead.
    Revoke,
    /// The delay of a holder whose session expired.
    LockDelay,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 20] = [
        Workload::Register,
        Workload::Lock,
        Workload::FencedLock,
        Workload::UnguardedLock,
        Workload::ReentrantLock,
        Workload::RwLock,
        Workload::Queue,
        Workload::Sequential,
        Workload::Ephemeral,
        Workload::Watch,
        Workload::Multi,
        Workload::Session,
        Workload::ExactlyOnce,
        Workload::Semaphore,
        Workload::MultiLock,
        Workload::Election,
        Workload::Upgrade,
        Workload::Mixed,
        Workload::Revoke,
        Workload::LockDelay,
    ];

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Register => "register",
            Workload::Lock => "lock",
            Workload::FencedLock => "fenced-lock",
            Workload::UnguardedLock => "unguarded-lock",
            Workload::ReentrantLock => "reentrant-lock",
            Workload::RwLock => "rw-lock",
            Workload::Queue => "queue",
            Workload::Sequential => "sequential",
            Workload::Ephemeral => "ephemeral",
            Workload::Watch => "watch",
            Workload::Multi => "multi",
            Workload::Session => "session",
            Workload::ExactlyOnce => "exactly-once",
            Workload::Semaphore => "semaphore",
            Workload::MultiLock => "multi-lock",
            Workload::Election => "election",
            Workload::Upgrade => "upgrade",
            Workload::Mixed => "mixed",
            Workload::Revoke => "revoke",
            Workload::LockDelay => "lock-delay",
        }
    }

    /// Whether its clients wait for each other's locks.
    pub fn has_locks(self) -> bool {
        match self {
            Workload::Lock
            | Workload::FencedLock
            | Workload::UnguardedLock
            | Workload::ReentrantLock
            | Workload::RwLock
            | Workload::Queue
            | Workload::Semaphore
            | Workload::MultiLock
            | Workload::Election
            | Workload::Upgrade
            | Workload::Mixed
            | Workload::Revoke
            | Workload::LockDelay => true,
            // Each client of `exactly-once` has a lock of its own.
            Workload::ExactlyOnce
            | Workload::Register
            | Workload::Sequential
            | Workload::Ephemeral
            | Workload::Watch
            | Workload::Multi
            | Workload::Session => false,
        }
    }

    /// Whether something has to come in time, as long as nothing is broken.
    pub fn is_timed(self) -> bool {
        self.has_locks() || self == Workload::Watch
    }

    /// The workload of that name.
    pub fn from_name(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|workload| workload.name() == name)
    }
}

/// Judges a history by the promise of its workload.
pub fn check(workload: Workload, entries: &[Entry]) -> Verdict {
    let operations = match history::operations(entries) {
        Ok(operations) => operations,
        Err(malformed) => {
            let mut verdict = Verdict::default();
            verdict.doubt(format!("this is no history: {malformed}"));
            return verdict;
        }
    };
    let mut verdict = check_operations(workload, &operations);
    if workload.has_locks() {
        in_time::check(entries, &operations, &mut verdict);
    }
    match workload {
        Workload::Watch => told_in_time::check(entries, &operations, &mut verdict),
        Workload::LockDelay => lock_delay::check_delays(entries, &operations, &mut verdict),
        _ => {}
    }
    for operation in &operations {
        if let Some(why) = operation.error.as_deref().and_then(|error| error.strip_prefix(WRONG)) {
            verdict.found("protocol", why.to_owned(), &[operation]);
        }
    }
    verdict
}

/// The same for operations that are paired already.
pub fn check_operations(workload: Workload, operations: &[Operation]) -> Verdict {
    let mut verdict = check_promise(workload, operations);
    worth::check_zxids(workload, operations, &mut verdict);
    verdict
}

fn check_promise(workload: Workload, operations: &[Operation]) -> Verdict {
    match workload {
        Workload::Register => {
            let mut verdict = register::check(operations);
            let is_read = |f: &str| match f {
                "read" => Some(true),
                "write" | "cas" => Some(false),
                _ => None,
            };
            order::check_zxids(operations, is_read, &mut verdict);
            verdict
        }
        Workload::Lock => lock::check_lock(operations),
        Workload::FencedLock => fenced::check_fenced(operations),
        Workload::UnguardedLock => fenced::check_unguarded(operations),
        Workload::ReentrantLock => lock::check_reentrant(operations),
        Workload::RwLock => lock::check_rw(operations),
        Workload::Queue => queue::check(operations),
        Workload::Sequential => sequential::check_sequential(operations),
        Workload::Ephemeral => ephemeral::check(operations),
        Workload::Watch => watch::check(operations),
        Workload::Multi => multi::check(operations),
        Workload::Session => session::check(operations),
        Workload::ExactlyOnce => sequential::check_exactly_once(operations),
        Workload::Semaphore => semaphore::check(operations),
        Workload::MultiLock => multi_lock::check(operations),
        Workload::Election => election::check(operations),
        Workload::Upgrade => upgrade::check(operations),
        Workload::Mixed => mixed::check(operations),
        Workload::Revoke => revoke::check(operations),
        Workload::LockDelay => lock_delay::check(operations),
    }
}
