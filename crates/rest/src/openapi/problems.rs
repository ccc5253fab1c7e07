//! Problems (error answers) that many operations may have; the problems of a single operation are
//! listed in its [`Route`]. `tests/it/contract.rs` checks that the tests' answers have no other
//! problems.

use serde_json::{Value, json};
use zlock_client::api::ProblemType::{self, *};

use crate::route::Route;

/// Problems that any request may have.
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

/// Problems that any GET may have, because a GET may wait, or read data under an ACL.
const READ: &[ProblemType] = &[NoAuth, TooMany];

/// Problems that any write may have.
const WRITE: &[ProblemType] = &[
    UnsupportedMediaType,
    SessionRequired,
    AuthFailed,
    NoAuth,
    SessionExpired,
    LockNotHeld,
    RequestKeyReused,
    RequestKeyEvicted,
    TooManyOperations,
    LimitReached,
    TooMany,
    Restoring,
    Unknown,
    QuotaExceeded,
    LevelTooLow,
];

/// Problems that any write that creates znodes may have.
pub(crate) const CREATE: &[ProblemType] =
    &[NoNode, NodeExists, NoChildrenForEphemerals, SequenceExhausted, LockManaged];

/// Problems that any acquire may have.
pub(crate) const QUEUE: &[ProblemType] = &[
    NotAcquired,
    Deadlock,
    UpgradeConflict,
    PermitsMaxDiffers,
    LockManaged,
    LockNotManaged,
    Overlap,
    Superseded,
    TicketGone,
    NoNode,
    NoChildrenForEphemerals,
    SequenceExhausted,
];

/// Excerpts from the texts of 400 answers to any request, for rules that a JSON schema cannot
/// express. The OpenAPI document lists them as `x-rules`.
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

/// Excerpt from the 400 answer when a body has `2.0` where an integer is required. JSON Schema
/// counts `2.0` as an integer, and the parser of bodies refuses it.
pub(crate) const NO_FRACTION: &str = "invalid type: floating point";

/// Describes the error answers of an operation, by status.
pub(super) fn responses(route: &Route, method: &str) -> Vec<(u16, Value)> {
    let by_method = if method == "get" { READ } else { WRITE };
    let by_way: &[ProblemType] = if route.is_for_operators() { &[OperatorOnly] } else { &[] };
    let lists = [ANY, by_method, by_way].into_iter().chain(route.problems.iter().copied());
    let mut by_status = std::collections::BTreeMap::<u16, Vec<ProblemType>>::new();
    for kind in lists.flatten().copied() {
        let kinds = by_status.entry(kind.status()).or_default();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut declared: Vec<_> =
        by_status.into_iter().map(|(status, kinds)| (status, response(status, &kinds))).collect();
    if let Some((_, refused)) = declared.iter_mut().find(|(status, _)| *status == 400) {
        let rules: Vec<&str> = RULES.iter().chain(route.rules).copied().collect();
        let words = refused["description"].as_str().unwrap_or_default();
        refused["description"] =
            format!("{words} Rules that a schema cannot express have these texts in `detail`: {}.", rules.join("; "))
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
