//! Times at which a client certainly waited in a queue, and checks of queues against them.

use std::collections::BTreeMap;

use super::holds::{Hold, by_lock};
use crate::history::Operation;
use crate::verdict::Verdict;

/// A wait in a queue that answers prove, from the zxid of the answer to `enqueue` to the last zxid
/// of an answer that says that the client still waits.
#[derive(Clone, Debug)]
pub(super) struct Wait<'a> {
    /// Path of the lock.
    pub(super) lock: &'a str,
    /// Id of the session that waits.
    pub(super) owner: u64,
    /// Token of the grant that ended the wait; `None` if no answer has it.
    pub(super) token: Option<u64>,
    /// First zxid of the wait.
    pub(super) begin: u64,
    /// Last zxid of the wait.
    pub(super) until: u64,
    /// Operations that prove the wait.
    pub(super) shown: Vec<&'a Operation>,
}

/// Returns the waits that answers prove: an acknowledged `enqueue` without a token begins a wait,
/// and each `await` without a token prolongs it.
pub(super) fn waits(operations: &[Operation]) -> Vec<Wait<'_>> {
    let mut waits: Vec<Wait<'_>> = Vec::new();
    let mut open: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.is_ok()) {
        let (Some(lock), Some(owner)) = (operation.text("lock"), operation.number("owner")) else { continue };
        let (token, key) = (operation.number("token"), (lock, owner));
        match (operation.f.as_str(), operation.zxid, token) {
            ("enqueue", Some(at), None) => {
                open.insert(key, waits.len());
                waits.push(Wait { lock, owner, token, begin: at, until: at, shown: vec![operation] });
            }
            ("await", Some(at), None) => {
                if let Some(wait) = open.get(&key).map(|i| &mut waits[*i]) {
                    wait.until = wait.until.max(at);
                    wait.shown.truncate(1);
                    wait.shown.push(operation);
                }
            }
            ("await", _, Some(_)) => {
                if let Some(i) = open.remove(&key) {
                    waits[i].token = token;
                }
            }
            _ => _ = open.remove(&key),
        }
    }
    waits
}

/// Checks that locks are granted in the order of the queue: while a session waits, no session that
/// is behind it in the queue holds the lock.
///
/// The order in the queue is that of the tickets' czxids. In a queue without overtaking, a grant's
/// token is the czxid of its ticket. For a waiter without a token, the zxid of the answer to
/// `enqueue` is used, which is at least the ticket's czxid.
pub(super) fn check_order(waits: &[Wait<'_>], holds: &[Hold<'_>], verdict: &mut Verdict) {
    let locks = by_lock(holds);
    for wait in waits {
        let place = wait.token.unwrap_or(wait.begin);
        let granted = locks.get(wait.lock).into_iter().flatten().take_while(|hold| hold.begin <= wait.until);
        if let Some(hold) = granted.filter(|hold| hold.owner != wait.owner).find(|hold| hold.token > place) {
            let detail = format!(
                "{}: session {} held with token {} while {}, who came before, still waited at zxid {}",
                wait.lock, hold.owner, hold.token, wait.owner, wait.until
            );
            verdict.found("overtaken", detail, &[&wait.shown[..], &hold.shown[..]].concat());
        }
    }
}

/// Checks that the queue as `look` shows it agrees with the answers to clients. The field `holders`
/// of a look has the sessions that hold the lock.
///
/// A look must name every session that certainly held at its zxid, and no session that certainly
/// waited.
pub(super) fn check_looks(operations: &[Operation], holds: &[Hold<'_>], waits: &[Wait<'_>], verdict: &mut Verdict) {
    let locks = by_lock(holds);
    let mut looks = 0;
    for look in operations.iter().filter(|operation| operation.f == "look" && operation.is_ok()) {
        let (Some(lock), Some(at), Some(holders)) = (look.text("lock"), look.zxid, look.field("holders")) else {
            continue;
        };
        looks += 1;
        let holders: Vec<u64> =
            holders.as_array().into_iter().flatten().filter_map(serde_json::Value::as_u64).collect();
        for hold in locks.get(lock).into_iter().flatten().filter(|hold| hold.begin <= at && at <= hold.until) {
            if !holders.contains(&hold.owner) {
                let detail = format!("{lock}: session {} held it at zxid {at} and is not shown", hold.owner);
                verdict.found("holder-not-shown", detail, &[&hold.shown[..], &[look]].concat());
            }
        }
        let waited = |wait: &&Wait<'_>| wait.lock == lock && wait.begin <= at && at <= wait.until;
        for wait in waits.iter().filter(waited).filter(|wait| holders.contains(&wait.owner)) {
            let detail = format!("{lock}: session {} is shown as a holder at zxid {at}, while it waited", wait.owner);
            verdict.found("holds-while-it-waits", detail, &[&wait.shown[..], &[look]].concat());
        }
        let (held, limit) = (look.number("held").unwrap_or(0), look.number("limit").unwrap_or(u64::MAX));
        if held > limit {
            verdict.found("over-limit", format!("{lock}: {held} of {limit} permits are shown as held"), &[look]);
        }
    }
    verdict.figure("looks", looks);
}
