//! Checker of the workload `ephemeral`: an ephemeral znode lives exactly as long as its session,
//! and no session expires early.

use std::collections::BTreeMap;

use super::grouped;
use crate::history::Operation;
use crate::verdict::Verdict;

/// Nanoseconds in a millisecond.
const MS: u64 = 1_000_000;

/// Events of one session that bound its lifetime.
#[derive(Default)]
struct Life<'a> {
    /// Time on the harness's clock before which the session must not expire, and the operation that
    /// was answered with that promise.
    safe_until: (u64, Option<&'a Operation>),
    /// The first request to close the session.
    close_asked: Option<&'a Operation>,
    /// First operation that proves that the session is over.
    over: Option<&'a Operation>,
    /// True once the client has stopped using the session, without closing it.
    abandoned: bool,
}

/// Judges `open`, `keepalive`, `create`, `look`, `delete`, `close`, `abandon` and `final-look`:
/// ephemeral znodes must exist exactly as long as their sessions. A `final-look` comes when every
/// session is closed, abandoned or lost, and had enough time to expire.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let lives = lives(operations, &mut verdict);
    let nodes = grouped(operations.iter().filter_map(|operation| Some((operation.text("path")?, operation))));
    verdict.figure("sessions", lives.len());
    verdict.figure("sessions-abandoned", lives.values().filter(|life| life.abandoned).count());
    verdict.figure("ephemerals", nodes.len());
    verdict.figure("looks", operations.iter().filter(is_look).count());
    for (path, operations) in nodes {
        let owner = operations.iter().find_map(|operation| operation.number("owner"));
        if let Some(life) = owner.and_then(|owner| lives.get(&owner)) {
            check_node(path, &operations, life, &mut verdict);
        }
    }
    verdict
}

fn lives<'a>(operations: &'a [Operation], verdict: &mut Verdict) -> BTreeMap<u64, Life<'a>> {
    let mut lives: BTreeMap<u64, Life<'a>> = BTreeMap::new();
    for operation in operations {
        let Some(owner) = operation.number("owner") else { continue };
        let life = lives.entry(owner).or_default();
        match operation.f.as_str() {
            "open" | "keepalive" if operation.is_ok() => {
                let safe_for_ms = operation.number("safe_for_ms").unwrap_or(0);
                let until = operation.time.0 + safe_for_ms * MS;
                if until > life.safe_until.0 {
                    life.safe_until = (until, Some(operation));
                }
            }
            "close" if operation.is_possible() => {
                life.close_asked.get_or_insert(operation);
                if operation.is_ok() {
                    life.over.get_or_insert(operation);
                }
            }
            "abandon" => life.abandoned = true,
            _ => {}
        }
        if operation.error.as_deref() == Some("session-expired") {
            life.over.get_or_insert(operation);
            let closing = life.close_asked.is_some_and(|close| close.call < operation.complete);
            if let (false, Some(promise)) = (closing, life.safe_until.1)
                && operation.time.1 < life.safe_until.0
            {
                let early_ms = (life.safe_until.0 - operation.time.1) / MS;
                let detail = format!("session {owner} ended {early_ms} ms before it was safe to say so");
                verdict.found("early-expiry", detail, &[promise, operation]);
            }
        }
    }
    lives
}

fn check_node(path: &str, operations: &[&Operation], life: &Life<'_>, verdict: &mut Verdict) {
    let Some(create) = operations.iter().find(|op| op.f == "create") else { return };
    let delete = operations.iter().find(|op| op.f == "delete" && op.is_possible());
    let asked_away = [delete.copied(), life.close_asked].into_iter().flatten().map(|op| op.call).min();
    // A znode that a look has seen was created, even if its create was not acknowledged.
    let mut created = Some(*create).filter(|create| create.is_ok());
    let mut gone: Option<&Operation> = None;
    for look in operations.iter().copied().filter(is_look) {
        let exists = look.result.get("exists").and_then(serde_json::Value::as_bool).unwrap_or(false);
        if exists {
            let over = life.over.filter(|over| over.complete < look.call);
            let deleted = delete.filter(|delete| delete.is_ok() && delete.complete < look.call).copied();
            if let Some(end) = over.or(deleted) {
                verdict.found("outlives-its-session", format!("{path} is there after its end"), &[create, end, look]);
            } else if look.f == "final-look" {
                let detail = format!("{path} is there long after its session was closed or left alone");
                let part = [Some(*create), life.close_asked, Some(look)];
                verdict.found("outlives-its-session", detail, &part.into_iter().flatten().collect::<Vec<_>>());
            }
            if let Some(gone) = gone.filter(|gone| gone.complete < look.call) {
                verdict.found("came-back", format!("{path} was gone and is there again"), &[create, gone, look]);
            }
            created = earlier(created, look);
            continue;
        }
        let Some(created) = created.filter(|created| created.complete < look.call) else { continue };
        gone = earlier(gone, look);
        let was_asked = asked_away.is_some_and(|asked| asked < look.complete);
        if let (false, Some(promise)) = (was_asked, life.safe_until.1)
            && look.time.1 < life.safe_until.0
        {
            let early_ms = (life.safe_until.0 - look.time.1) / MS;
            let detail = format!("{path} went {early_ms} ms before its session could have expired");
            verdict.found("early-expiry", detail, &[create, created, promise, look]);
        }
    }
}

fn is_look(operation: &&Operation) -> bool {
    matches!(operation.f.as_str(), "look" | "final-look") && operation.is_ok()
}

/// Returns the operation with the earlier completion; `other` if `known` is `None`.
fn earlier<'a>(known: Option<&'a Operation>, other: &'a Operation) -> Option<&'a Operation> {
    known.into_iter().chain([other]).min_by_key(|operation| operation.complete)
}
