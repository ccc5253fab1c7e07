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

use std::collections::BTreeMap;

use crate::answer::WRONG;
use crate::history::{self, Entry, Operation};
use crate::models::LockModel;
use crate::rows::rows;
use crate::verdict::Verdict;

pub use calm::SETTLE_NS;
pub use in_time::GRANT_MAX_NS;

/// Properties of one workload.
struct Row {
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
    name: &'static str,
    check: fn(&[Operation]) -> Verdict,
    by_zxid: &'static [&'static str],
    needed: &'static [&'static str],
) -> Row {
    Row { name, check, by_zxid, needed }
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

rows! {
    /// Workload that the harness can run on a cluster, and judge.
    Workload {
        /// Linearizable read, write and compare-and-set on many keys.
        Register("register", register::check, &["read", "write", "cas"], &["keys", "zxids-in-order"]),
        /// A linearizable mutex that only its owner can release.
        Lock("lock", |ops| lock::check(ops, LockModel { reentrant: false }), &[], &["grants"]),
        /// Fencing tokens rise, and no write under a token is lost.
        FencedLock("fenced-lock", fenced::check, &[], &["grants", "resource-updates-kept", "znode-updates-kept"]),
        /// A linearizable mutex that its owner may take again.
        ReentrantLock("reentrant-lock", |ops| lock::check(ops, LockModel { reentrant: true }), &[], &["grants"]),
        /// A linearizable read/write lock.
        RwLock("rw-lock", |ops| lock::check(ops, LockModel { reentrant: false }), &[], &["grants"]),
        /// Locks are granted in the order in which they were asked for.
        Queue("queue", queue::check, &[], &["grants"]),
        /// Sequence numbers are unique and rise.
        Sequential("sequential", sequential::check_sequential, &["create", "delete"], &["children", "zxids-in-order"]),
        /// Znodes live exactly as long as their sessions.
        Ephemeral("ephemeral", ephemeral::check, &[], &["ephemerals", "looks", "sessions"]),
        /// Every event of a watch comes exactly once and in order.
        Watch("watch", watch::check, &["create", "write", "delete"], &["events", "watchers", "told-in-time"]),
        /// Transfers between accounts are strictly serializable.
        Multi("multi", multi::check, &["transfer", "read"], &["transfers", "zxids-in-order"]),
        /// Reads never go back in time for one client.
        Session("session", session::check, &["write", "local-read"], &["local-reads", "writes"]),
        /// A request that is sent again with its idempotency key is applied once.
        ExactlyOnce("exactly-once", sequential::check_exactly_once, &[], &["acquires", "adds", "children"]),
        /// A semaphore never grants more permits than it has, and grants them in the order of the
        /// queue.
        Semaphore("semaphore", queue::check_semaphore, QUEUED, &["grants", "looks", "waits"]),
        /// An election has one leader at a time, and observers see the leaders in order.
        Election("election", election::check, QUEUED,
            &["leaders", "observations", "proclamations", "znode-updates-kept"]),
        /// All kinds of requests for the same locks: several locks are granted as a whole, no other
        /// writer comes between a read hold and its upgrade, and permits stay within the limit.
        Mixed("mixed", mixed::check, QUEUED,
            &["downgrades", "granted-backfill", "granted-strict", "leases", "looks", "upgrades", "znode-updates-kept"]),
        /// A revoked lock is lost, and its token is refused.
        Revoke("revoke", revoke::check, QUEUED, &["grants", "revocations", "znode-updates-kept"]),
        /// A lock stays blocked for its lock-delay after the session of its holder expires.
        LockDelay("lock-delay", lock_delay::check, &[], &["delays-kept", "grants"]),
        /// Tokens rise over restores from backups, two sessions never hold a lock at once, and no
        /// session survives a restore.
        Restore("restore", lock_delay::check, &[], &["grants"]),
    }
}

impl Workload {
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

/// Groups values by their keys. The values of a key keep their order.
fn grouped<K: Ord, V>(pairs: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, Vec<V>> {
    let mut groups: BTreeMap<K, Vec<V>> = BTreeMap::new();
    for (key, value) in pairs {
        groups.entry(key).or_default().push(value);
    }
    groups
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
