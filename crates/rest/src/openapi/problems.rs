//! Problems that many operations may answer; those of one stand in its row. `tests/it/contract.rs`
//! compares both with every answer that the other tests get.

use serde_json::{Value, json};
use zlock_client::api::ProblemType::{self, *};

use crate::route::Route;

/// Any request may be answered so.
const ANY: &[ProblemType] = &[
    BadRequest,
    ForeignOrigin,
    ForeignHost,
    RequestTimeout,
    BodyTooLarge,
    UriTooLong,
    HeadersTooLarge,
    Internal,
    Unavailable,
];

/// Any that reads what an ACL may protect, or waits.
const READ: &[ProblemType] = &[NoAuth, TooMany];

/// Any that goes through the log.
const WRITE: &[ProblemType] = &[
    UnsupportedMediaType,
    SessionRequired,
    AuthFailed,
    NoAuth,
    SessionExpired,
    LockNotHeld,
    RequestKeyReused,
    RequestKeyEvicted,
    LimitReached,
    TooMany,
    Restoring,
    Unknown,
    QuotaExceeded,
    LevelTooLow,
];

/// Any write that makes znodes.
pub(crate) const CREATE: &[ProblemType] =
    &[NoNode, NodeExists, NoChildrenForEphemerals, SequenceExhausted, LockManaged];

/// Any write that enters a queue.
pub(crate) const QUEUE: &[ProblemType] = &[
    NotAcquired,
    Deadlock,
    UpgradeConflict,
    LimitDiffers,
    LockManaged,
    LockNotManaged,
    Overlap,
    Superseded,
    TicketGone,
    NoNode,
    NoChildrenForEphemerals,
    SequenceExhausted,
];

/// What any request must keep beyond the schemas: parts of what the refusal says.
const RULES: &[&str] = &[
    "unknown parameter",
    "given twice",
    "an argument breaks a rule",
    "not UTF-8",
    "If-Lock: not a znode path",
    "at most",
    "the root is no lock",
    "is invisible or turns the text around",
];

/// To JSON Schema `2.0` is an integer. A body that is read into types takes it for none.
pub(crate) const NO_FRACTION: &str = "invalid type: floating point";

/// The declarations of all problems of an operation, by status.
pub(super) fn responses(route: &Route, method: &str) -> Vec<(u16, Value)> {
    let by_method = if method == "get" { READ } else { WRITE };
    let by_way: &[ProblemType] = if route.is_for_operators() { &[OperatorOnly] } else { &[] };
    let lists = [ANY, by_method, by_way].into_iter().chain(route.problems.iter().copied());
    let mut by_status = std::collections::BTreeMap::<u16, Vec<ProblemType>>::new();
    for kind in lists.flatten().copied() {
        for status in kind.statuses() {
            let kinds = by_status.entry(*status).or_default();
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    let mut declared: Vec<_> =
        by_status.into_iter().map(|(status, kinds)| (status, response(status, &kinds))).collect();
    if let Some((_, refused)) = declared.iter_mut().find(|(status, _)| *status == 400) {
        let rules: Vec<&str> = RULES.iter().chain(route.rules).copied().collect();
        let words = refused["description"].as_str().unwrap_or_default();
        refused["description"] =
            format!("{words} It also stands for rules that no schema tells, with these words: {}.", rules.join("; "))
                .into();
        refused["x-rules"] = rules.into();
    }
    declared
}

fn response(status: u16, kinds: &[ProblemType]) -> Value {
    let words: Vec<String> = kinds.iter().map(|kind| format!("`{}`: {}.", kind.slug(), kind.title())).collect();
    let uris: Vec<String> = kinds.iter().map(|kind| kind.uri()).collect();
    let schema = json!({"$ref": "#/components/schemas/Problem"});
    let mut response = json!({
        "description": words.join(" "),
        "content": {"application/problem+json": {"schema": schema}},
        "x-problem-types": uris,
    });
    if matches!(status, 429 | 503) {
        let seconds = json!({"type": "integer", "minimum": 1});
        response["headers"]["Retry-After"] = json!({"description": "seconds", "schema": seconds});
    }
    if status == 401 {
        response["headers"]["WWW-Authenticate"] = json!({"schema": {"type": "string"}});
    }
    response
}
