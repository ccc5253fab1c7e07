//! Checkers of histories: one for each workload, which judges the promise of the workload.

mod calm;
mod election;
mod ends;
mod ephemeral;
mod fenced;
mod holds;
mod in_time;
mod lock;
mod lock_delay;
mod mixed;
mod multi;
mod order;
mod places;
mod queue;
mod register;
pub mod replayed;
mod revoke;
mod sequential;
mod session;
mod waits;
mod watch;

use crate::answer::WRONG;
use crate::history::{self, Entry, Operation};
use crate::verdict::Verdict;

pub use calm::SETTLE_NS;
pub use in_time::GRANT_MAX_NS;

/// Workload that the harness can run on a cluster, and judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workload {
    /// Linearizable read, write and compare-and-set on many keys.
    Register,
    /// A linearizable mutex that only its owner can release.
    Lock,
    /// Fencing tokens rise, and no write under a token is lost.
    FencedLock,
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
    /// Every event of a watch comes exactly once and in order.
    Watch,
    /// Transfers between accounts are strictly serializable.
    Multi,
    /// Reads never go back in time for one client.
    Session,
    /// A request that is sent again with its idempotency key is applied once.
    ExactlyOnce,
    /// A semaphore never grants more permits than it has, and grants them in the order of the
    /// queue.
    Semaphore,
    /// An election has one leader at a time, and observers see the leaders in order.
    Election,
    /// All kinds of requests for the same locks: several locks are granted as a whole, no other
    /// writer comes between a read hold and its upgrade, and permits stay within the limit.
    Mixed,
    /// A revoked lock is lost, and its token is refused.
    Revoke,
    /// A lock stays blocked for its lock-delay after the session of its holder expires.
    LockDelay,
    /// Tokens rise over restores from backups, two sessions never hold a lock at once, and no
    /// session survives a restore.
    Restore,
}

/// Properties of one workload.
struct Row {
    workload: Workload,
    name: &'static str,
    /// Judges the promise of the workload.
    check: fn(&[Operation]) -> Verdict,
    /// Operations that are judged by the zxid of their answer. An `ok` answer without a zxid makes
    /// the verdict unknown.
    by_zxid: &'static [&'static str],
    /// Names of counts in the verdict's figures. If a count is missing or 0, a part of the
    /// workload's promise was not judged, and the verdict is unknown.
    needed: &'static [&'static str],
}

const fn row(
    workload: Workload,
    name: &'static str,
    check: fn(&[Operation]) -> Verdict,
    by_zxid: &'static [&'static str],
    needed: &'static [&'static str],
) -> Row {
    Row { workload, name, check, by_zxid, needed }
}

/// Operations on queues of locks, and writes that holders make under their locks, that are judged
/// by zxid. Workloads with locks that do not use this list are judged by the clients' clock and the
/// content of answers.
const QUEUED: &[&str] = &[
    "acquire",
    "again",
    "append",
    "await",
    "downgrade",
    "enqueue",
    "listen",
    "look",
    "observe",
    "proclaim",
    "release",
    "revoke",
    "upgrade",
];

/// Properties of all workloads, in the order of the variants.
#[rustfmt::skip]
const ROWS: [Row; 18] = [
    row(Workload::Register, "register", register::check, &["read", "write", "cas"], &["keys", "zxids-in-order"]),
    row(Workload::Lock, "lock", lock::check_once, &[], &["grants"]),
    row(Workload::FencedLock, "fenced-lock", fenced::check, &[],
        &["grants", "resource-updates-kept", "znode-updates-kept"]),
    row(Workload::ReentrantLock, "reentrant-lock", lock::check_reentrant, &[], &["grants"]),
    row(Workload::RwLock, "rw-lock", lock::check_once, &[], &["grants"]),
    row(Workload::Queue, "queue", queue::check, &[], &["grants"]),
    row(Workload::Sequential, "sequential", sequential::check_sequential, &["create", "delete"],
        &["children", "zxids-in-order"]),
    row(Workload::Ephemeral, "ephemeral", ephemeral::check, &[], &["ephemerals", "looks", "sessions"]),
    row(Workload::Watch, "watch", watch::check, &["create", "write", "delete"], &["events", "watchers", "told-in-time"]),
    row(Workload::Multi, "multi", multi::check, &["transfer", "read"], &["transfers", "zxids-in-order"]),
    row(Workload::Session, "session", session::check, &["write", "local-read"], &["local-reads", "writes"]),
    row(Workload::ExactlyOnce, "exactly-once", sequential::check_exactly_once, &[], &["acquires", "adds", "children"]),
    row(Workload::Semaphore, "semaphore", queue::check_semaphore, QUEUED, &["grants", "looks", "waits"]),
    row(Workload::Election, "election", election::check, QUEUED,
        &["leaders", "observations", "proclamations", "znode-updates-kept"]),
    row(Workload::Mixed, "mixed", mixed::check, QUEUED,
        &["downgrades", "granted-backfill", "granted-strict", "leases", "looks", "upgrades", "znode-updates-kept"]),
    row(Workload::Revoke, "revoke", revoke::check, QUEUED, &["grants", "revocations", "znode-updates-kept"]),
    row(Workload::LockDelay, "lock-delay", lock_delay::check, &[], &["delays-kept", "grants"]),
    row(Workload::Restore, "restore", lock_delay::check, &[], &["grants"]),
];

impl Workload {
    /// All workloads.
    pub fn all() -> impl Iterator<Item = Workload> {
        ROWS.iter().map(|row| row.workload)
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Name of the workload on the command line.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Tells whether clients of the workload compete for locks. Each client of `exactly-once` has
    /// its own lock.
    pub fn has_locks(self) -> bool {
        use Workload::{Ephemeral, ExactlyOnce, Multi, Register, Sequential, Session, Watch};
        !matches!(self, Register | Sequential | Ephemeral | Watch | Multi | Session | ExactlyOnce)
    }

    /// Tells whether the checker measures how soon grants or events come while there is no fault.
    pub fn is_timed(self) -> bool {
        self.has_locks() || self == Workload::Watch
    }

    /// Returns the workload with this name.
    pub fn from_name(name: &str) -> Option<Workload> {
        Workload::all().find(|workload| workload.name() == name)
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
        Workload::Watch => watch::check_in_time(entries, &operations, &mut verdict),
        Workload::LockDelay => lock_delay::check_delays(entries, &operations, &mut verdict),
        Workload::Restore => {
            lock_delay::check_delays(entries, &operations, &mut verdict);
            lock_delay::check_restores(entries, &operations, &mut verdict);
        }
        _ => {}
    }
    for operation in &operations {
        if let Some(why) = operation.error.as_deref().and_then(|error| error.strip_prefix(WRONG)) {
            verdict.found("protocol", why.to_owned(), &[operation]);
        }
    }
    verdict
}

/// Judges operations by the check of the workload, and requires a zxid in each answer that the
/// check judges by zxid.
pub fn check_operations(workload: Workload, operations: &[Operation]) -> Verdict {
    let mut verdict = (workload.row().check)(operations);
    check_zxids(workload, operations, &mut verdict);
    verdict
}

/// Makes a valid verdict unknown when acknowledged operations that are judged by zxid have no zxid.
fn check_zxids(workload: Workload, operations: &[Operation], verdict: &mut Verdict) {
    let judged =
        operations.iter().filter(|operation| operation.is_ok() && workload.row().by_zxid.contains(&&*operation.f));
    let (with, without): (Vec<_>, Vec<_>) = judged.partition(|operation| operation.zxid.is_some());
    if let Some(first) = without.first() {
        let (count, all) = (without.len(), with.len() + without.len());
        verdict.doubt(format!("{count} of {all} answers have no zxid to judge them by: {}", first.describe()));
    }
}

/// Makes a valid verdict unknown when it lacks a count that the workload needs, such as `grants`:
/// then nothing was judged. Called for whole runs only, because a part of a run may lack grants.
pub fn check_worth(workload: Workload, verdict: &mut Verdict) {
    let in_time = ["granted-in-time"].into_iter().filter(|_| workload.has_locks());
    // The figure is missing over ZooKeeper's protocol, which has no requests that wait.
    let waits = ["waits-ended"].into_iter().filter(|name| verdict.figures.contains_key(*name));
    let needed: Vec<&str> = workload.row().needed.iter().copied().chain(in_time).chain(waits).collect();
    for name in needed {
        // A figure that is a text is accepted: it says why nothing was judged.
        let judged = |figure: &serde_json::Value| figure.is_string() || figure.as_u64().is_some_and(|count| count > 0);
        if !verdict.figures.get(name).is_some_and(judged) {
            verdict.doubt(format!("nothing was judged: {name} 0"));
        }
    }
}
