//! Which problems each operation may answer. `tests/it/contract.rs` compares it with every answer
//! that the other tests get.

use serde_json::{Value, json};
use zlock_client::api::ProblemType::{self, *};

use crate::problem::statuses;

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
const CREATE: &[ProblemType] = &[NoNode, NodeExists, NoChildrenForEphemerals, SequenceExhausted, LockManaged];

/// Any write that enters a queue.
const QUEUE: &[ProblemType] = &[
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

/// Any change of the members.
const MEMBERS: &[&[ProblemType]] = &[&[
    OperatorOnly,
    NoMember,
    AlreadyMember,
    IdUsedBefore,
    MemberUnreachable,
    MemberHasOtherData,
    ChangeInProgress,
    TooManyLearners,
    LearnerLagging,
    LearnerSilent,
    WouldLoseQuorum,
    LastVoter,
    AnotherNodeAnswers,
]];

/// What an operation may answer beyond what its method says.
fn own(id: &str) -> &'static [&'static [ProblemType]] {
    match id {
        "adminMembersAdd" | "adminMembersUpdate" | "adminMembersPromote" | "adminMembersRemove" => MEMBERS,
        "adminLeaderTransfer" => &[&[OperatorOnly, TransferFailed]],
        "adminUpgradeFinalize" => &[&[OperatorOnly, MembersNotReady]],
        // All else that is for operators.
        id if id.starts_with("admin") => &[&[OperatorOnly]],
        "sessionsLook" => &[&[NoSession, SessionExpired]],
        "znodesCreate" => &[CREATE, &[InvalidAcl]],
        "znodesRead" => &[&[NoNode, EventsGone]],
        "znodesSet" => &[&[NoNode, BadVersion, InvalidAcl]],
        "znodesDelete" => &[&[NoNode, NotEmpty, BadVersion]],
        "txnApply" => &[CREATE, &[NotEmpty, BadVersion, InvalidAcl]],
        "locksAcquire" | "electionsCampaign" => &[QUEUE, &[BlockedByOwnSession, NotOwner]],
        "multilocksAcquire" => &[QUEUE],
        "locksRelease" => &[&[NoNode, NotHolder, SeveralHeld]],
        "fenceCheck" => &[&[LockNotHeld]],
        "locksSet" => &[CREATE, &[NotEmpty, LimitDiffers, UpgradeConflict]],
        "locksRevoke" => &[&[NoNode, TicketGone]],
        "ticketsLook" | "multilocksLook" => &[&[TicketGone]],
        "ticketsRelease" => &[&[NoNode, NotOwner, LockNotManaged, HandOverRefused]],
        "electionsProclaim" | "electionsResign" => &[&[NoNode]],
        "simpleLocksAcquire" => &[CREATE, &[NotAcquired, TicketGone]],
        "simpleLocksRelease" => &[&[NoNode]],
        "groupsJoin" => &[CREATE, &[TicketGone]],
        _ => &[],
    }
}

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

/// Operations that tell by the status alone, with an empty body.
fn is_bodiless(id: &str) -> bool {
    ["healthLeader", "healthVoter", "healthServing"].contains(&id)
}

/// To JSON Schema `2.0` is an integer. A body that is read into types takes it for none.
const NO_FRACTION: &str = "invalid type: floating point";

/// The same of one operation.
fn own_rules(id: &str) -> &'static [&'static str] {
    match id {
        "sessionsOpen" => &[NO_FRACTION, "control characters are not taken"],
        "sessionsClose" | "sessionsKeepAlive" => &["another session than that of the URL"],
        "locksList" => &["not a znode path", "not a cursor of this node"],
        "locksAcquire" => &[
            "limit: none is set for this semaphore",
            "are asked for, and the semaphore has",
            "of them, and limit is",
            "permits and limit belong to mode=semaphore",
            "not the path of a ticket of this lock",
            "belongs to acquires without Idempotency-Key and owner",
        ],
        "multilocksAcquire" => &[
            NO_FRACTION,
            "limit: none is set for this semaphore",
            "are asked for, and the semaphore has",
            "of them, and limit is",
            "permits and limit belong to mode=semaphore",
        ],
        "electionsCampaign" => &["belongs to acquires without Idempotency-Key and owner"],
        "electionsProclaim" => {
            &["no other lock", "not a lock node of this election", "ticket and fencing_token go together"]
        }
        "simpleLocksAcquire" => &["the root is there already"],
        "simpleLocksRelease" => &["who took it", "a release depends on the lock that it gives back"],
        "znodesCreate" => &["the root is there already", "the mode needs one", "only with mode=persistent-ttl"],
        "znodesRead" => &["given together with children"],
        "locksSet" => &[NO_FRACTION],
        "txnApply" => &[
            NO_FRACTION,
            "the root is there already",
            "the mode needs one",
            "only with mode=persistent-ttl",
            "given together with data",
        ],
        _ => &[],
    }
}

/// The declarations of all problems of an operation, by status.
pub(super) fn responses(id: &str, method: &str) -> Vec<(u16, Value)> {
    let by_method = if method == "get" { READ } else { WRITE };
    let lists = [ANY, by_method].into_iter().chain(own(id).iter().copied());
    let mut by_status = std::collections::BTreeMap::<u16, Vec<ProblemType>>::new();
    for kind in lists.flatten().copied() {
        for status in statuses(kind) {
            let kinds = by_status.entry(*status).or_default();
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    let mut declared: Vec<_> =
        by_status.into_iter().map(|(status, kinds)| (status, response(status, &kinds))).collect();
    if let Some((_, unavailable)) = declared.iter_mut().find(|(status, _)| *status == 503) {
        match id {
            "nodeReady" => unavailable["content"]["text/plain"] = json!({"schema": {"type": "string"}}),
            id if is_bodiless(id) => {
                unavailable["x-may-be-empty"] = true.into();
                unavailable["description"] = "It is not so, and the body is empty; or the node cannot answer.".into();
            }
            _ => {}
        }
    }
    if let Some((_, refused)) = declared.iter_mut().find(|(status, _)| *status == 400) {
        let rules: Vec<&str> = RULES.iter().chain(own_rules(id)).copied().collect();
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
