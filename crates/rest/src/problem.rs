//! Errors as HTTP answers. Other code passes on a [`Problem`], and does not deal with HTTP
//! statuses.

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use replica::{Bound, EventsError, WaitEnd};
use zlock_client::api::{Contender, End, EndedSession, Outcome, ProblemType, WaitsFor};
use znode::lock::TICKET_NAME_BYTES_MAX;
use znode::{Identity, LockMode, Refusal, State, ZPath, Zxid};

/// An error answer (`application/problem+json`). [`Problem::render`] makes the response once the
/// zxid of the answer is known.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) kind: ProblemType,
    pub(crate) outcome: Outcome,
    pub(crate) detail: String,
    error: Option<znode::Error>,
    path: Option<ZPath>,
    pub(crate) op_index: Option<u32>,
    extra: Option<Box<Extra>>,
    pub(crate) zxid: Option<Zxid>,
    retry_after_ms: Option<u64>,
    /// Bound of the node that was reached, for the metric of refusals.
    pub(crate) bound: Option<Bound>,
}

/// Further members of the JSON document, which only some kinds of problems have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) ended: Option<End>,
    pub(crate) ended_session: Option<EndedSession>,
    pub(crate) cycle: Vec<WaitsFor>,
    pub(crate) holder: Option<Box<Contender>>,
}

/// Delay in milliseconds for the header `Retry-After`, when a bound of this node was reached or the
/// node stops.
const RETRY_AFTER_MS: u64 = 1_000;

impl Problem {
    pub(crate) fn new(kind: ProblemType, detail: impl Into<String>) -> Problem {
        Problem {
            kind,
            outcome: kind.outcome(),
            detail: detail.into(),
            error: None,
            path: None,
            op_index: None,
            extra: None,
            zxid: None,
            retry_after_ms: None,
            bound: None,
        }
    }

    /// Returns the HTTP status of the problem's kind.
    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.kind.status()).expect("a test converts every status")
    }

    /// Makes a 400 about the parameter, header or field `name`.
    pub(crate) fn bad(name: &str, why: impl std::fmt::Display) -> Problem {
        Problem {
            error: Some(znode::Error::BadArguments),
            ..Problem::new(ProblemType::BadRequest, format!("{name}: {why}"))
        }
    }

    /// Makes the problem of a write that the state machine has refused.
    pub(crate) fn refused(refusal: Refusal, zxid: Zxid) -> Problem {
        let problem = Problem::from(refusal.error);
        Problem { path: refusal.path, op_index: refusal.op_index, zxid: Some(zxid), ..problem }
    }

    /// Makes a 429: a bound of this node was reached.
    pub(crate) fn too_many(bound: Bound, what: &str) -> Problem {
        let detail = format!("too many {what} on this node: try again or go to another node");
        let problem = Problem::new(ProblemType::TooMany, detail);
        Problem { retry_after_ms: Some(RETRY_AFTER_MS), bound: Some(bound), ..problem }
    }

    /// Makes a 503: a bound of this node for all addresses was reached.
    pub(crate) fn full(bound: Bound, why: &str) -> Problem {
        Problem { bound: Some(bound), ..Problem::unavailable(why, RETRY_AFTER_MS) }
    }

    /// Makes a 503: the request did nothing.
    pub(crate) fn unavailable(why: impl Into<String>, retry_after_ms: u64) -> Problem {
        Problem { retry_after_ms: Some(retry_after_ms), ..Problem::new(ProblemType::Unavailable, why) }
    }

    /// Makes a 503: the node is shutting down.
    pub(crate) fn stopping() -> Problem {
        Problem::unavailable("the node is shutting down: go to another node", RETRY_AFTER_MS)
    }

    /// Sets the outcome to `Unknown`, because this acquire's ticket is still in the queue, or may
    /// be. `why` is added to the detail for the client.
    pub(crate) fn with_ticket_left(self, why: &str) -> Problem {
        Problem { outcome: Outcome::Unknown, detail: format!("{}; {why}", self.detail), ..self }
    }

    pub(crate) fn unknown(why: impl Into<String>) -> Problem {
        Problem::new(ProblemType::Unknown, why)
    }

    /// Makes a 409: the wait ended before the lock was granted, and the waiter has left the queue.
    pub(crate) fn not_acquired(ticket: &ZPath, zxid: Zxid) -> Problem {
        let detail = "the wait ended before the lock was granted; the waiter has left the queue";
        Problem::new(ProblemType::NotAcquired, detail).at(ticket, zxid)
    }

    /// Makes a 410: the ticket no longer exists, or never did.
    pub(crate) fn ticket_gone(ticket: &ZPath, zxid: Zxid) -> Problem {
        let detail = "the ticket was released or withdrawn, or its session ended";
        let problem = Problem::new(ProblemType::TicketGone, detail);
        Problem { error: Some(znode::Error::NoNode), ..problem.at(ticket, zxid) }
    }

    /// Tells whether the problem of an ended ticket already has the cause of the ticket's end.
    pub(crate) fn tells_the_end(&self) -> bool {
        self.extra.is_some()
    }

    /// Turns the detail of a 410 into an explanation for a retry with an idempotency key: the key
    /// was used before, and its ticket has ended. Other problems are returned unchanged.
    pub(crate) fn of_used_key(self) -> Problem {
        match self.kind {
            ProblemType::TicketGone => self.because(
                "this Idempotency-Key was used before, and what was acquired with it was given back or taken away, or \
                 its session ended: take a new key",
            ),
            _ => self,
        }
    }

    /// Makes a 409: another request with the same idempotency key uses the ticket now.
    pub(crate) fn superseded(ticket: &ZPath, zxid: Zxid) -> Problem {
        let detail = "another request with the same idempotency key has the ticket";
        Problem::new(ProblemType::Superseded, detail).at(ticket, zxid)
    }

    /// Replaces the problem (413) of a text that is too long by a 400 with the name of the text's
    /// parameter. `texts` has the name and the length in bytes of each text parameter.
    pub(crate) fn naming(self, state: &State, texts: &[(&str, usize)]) -> Problem {
        let max = state.limits().label_bytes_max;
        let long = texts.iter().find(|(_, bytes)| *bytes > max as usize);
        let Some((name, bytes)) = long.filter(|_| self.is(znode::Error::DataTooLarge)) else { return self };
        let Problem { path, op_index, zxid, .. } = self;
        Problem { path, op_index, zxid, ..Problem::bad(name, format!("{bytes} bytes, and at most {max} are taken")) }
    }

    /// Adds the largest subtree to the problem of a full state, as a hint which znodes to delete. A
    /// problem about a path's quota is returned unchanged.
    pub(crate) fn of_a_full_state(self, state: &State) -> Problem {
        let is_quota = self.path.as_ref().is_some_and(|path| state.has_hard_quota(path));
        let largest = state.largest_subtree_for(&[]).filter(|_| self.is(znode::Error::QuotaExceeded) && !is_quota);
        let Some((path, bytes)) = largest else { return self };
        let (znodes, all, limits) = (state.znode_count(), state.state_bytes(), state.limits());
        let detail = format!(
            "the state has {znodes} znodes of {} and {all} bytes of {}, where the last fifth is for sessions and locks; \
             its largest subtree is {path} with {bytes} bytes of {}: delete something first",
            limits.znodes_max, limits.state_bytes_max, limits.subtree_bytes_max
        );
        self.because(&detail)
    }

    /// Adds the limits on paths to the problem of a path that is too long. Other problems are
    /// returned unchanged.
    pub(crate) fn of_a_long_path(self, state: &State) -> Problem {
        if !self.is(znode::Error::PathTooLong) {
            return self;
        }
        let (limits, name_bytes) = (state.limits(), TICKET_NAME_BYTES_MAX);
        let lock_bytes_max = (limits.path_bytes_max as usize).saturating_sub(name_bytes + 1);
        self.because(&format!(
            "the path is too long: at most {} bytes are taken, in at most {} names of at most {} bytes each; a lock's \
             path has at most {lock_bytes_max}, for the names of its tickets have {name_bytes} and come behind it",
            limits.path_bytes_max, limits.path_depth_max, limits.name_bytes_max
        ))
    }

    /// Adds the semaphore's number of permits to the problem of a refused acquire, if the request
    /// may read the lock. Problems with another cause are returned unchanged.
    pub(crate) fn with_permits(self, identities: &[Identity], state: &State, lock: &ZPath, mode: LockMode) -> Problem {
        let LockMode::Lease { permits, limit: asked } = mode else { return self };
        if !state.may_read(lock, identities) {
            return self;
        }
        let settings = znode::lock::queue(state, lock, 0, 0).map(|queue| queue.settings).unwrap_or_default();
        match settings.limit {
            None if self.is(znode::Error::PermitsMaxDiffers) && settings.managed => {
                self.because("the lock is managed, and so it is no semaphore")
            }
            Some(set) if self.is(znode::Error::PermitsMaxDiffers) => {
                self.because(&format!("the semaphore has {set} permits, and permits_max is {asked}"))
            }
            Some(set) if self.is(znode::Error::BadArguments) && permits > set => {
                self.because(&format!("permits: {permits} are asked for, and the semaphore has {set}"))
            }
            None if self.is(znode::Error::BadArguments) && asked == 0 => {
                self.because("permits_max: it is missing, and the semaphore has no setting yet; its first acquire must name the number")
            }
            _ => self,
        }
    }

    /// Turns the outcome `Unavailable` into `Unknown` if an earlier write of the same request was
    /// done, because `Unavailable` says that the request did nothing.
    pub(crate) fn behind_a_write(self) -> Problem {
        match self.outcome {
            Outcome::Unavailable => Problem::unknown(format!("a part of the request is done: {}", self.detail)),
            Outcome::Refused | Outcome::Unknown => self,
        }
    }

    /// Replaces the detail of the problem.
    pub(crate) fn because(mut self, detail: &str) -> Problem {
        self.detail = detail.into();
        self
    }

    /// Makes a 500. Its cause is a bug in zlock, which `detail` describes.
    pub(crate) fn internal(detail: &str) -> Problem {
        Problem::new(ProblemType::Internal, detail)
    }

    /// Adds the description of a holder of the lock.
    pub(crate) fn held_by(mut self, holder: Contender) -> Problem {
        self.extra = Some(Box::new(Extra { holder: Some(Box::new(holder)), ..Extra::default() }));
        self
    }

    /// Tells whether the problem reports the given error of the state machine.
    pub(crate) fn is(&self, error: znode::Error) -> bool {
        self.error == Some(error)
    }

    pub(crate) fn at(mut self, path: &ZPath, zxid: Zxid) -> Problem {
        self.path = Some(path.clone());
        self.zxid = Some(zxid);
        self
    }

    /// Sets the error of the state machine that the problem reports, and the further members of the
    /// document.
    pub(crate) fn with(self, error: znode::Error, extra: Extra) -> Problem {
        Problem { error: Some(error), extra: Some(Box::new(extra)), ..self }
    }

    /// Makes a 409: waiting would close a cycle of sessions that wait for each other, so the
    /// request does not wait.
    pub(crate) fn deadlock(lock: &ZPath, cycle: &[znode::lock::WaitsFor], zxid: Zxid) -> Problem {
        let edge = |edge: &znode::lock::WaitsFor| WaitsFor {
            session: edge.session.0,
            owner: edge.owner.clone(),
            path: edge.lock.as_str().into(),
            blocker: edge.blocker.as_str().into(),
        };
        let cycle = Extra { cycle: cycle.iter().map(edge).collect(), ..Extra::default() };
        Problem::from(znode::Error::Deadlock).with(znode::Error::Deadlock, cycle).at(lock, zxid)
    }

    /// Sets the index of the transaction's operation that failed.
    pub(crate) fn of_op(mut self, index: usize) -> Problem {
        self.op_index = u32::try_from(index).ok();
        self
    }

    pub(crate) fn since(mut self, zxid: Zxid) -> Problem {
        self.zxid = Some(zxid);
        self
    }

    /// Makes a 410: `since` is beyond every zxid of this cluster. That happens after a restore from
    /// an older backup.
    pub(crate) fn events_ahead(zxid: Zxid) -> Problem {
        let detail = format!(
            "`since` is beyond all that the cluster has committed, which is {zxid}: it is of another history; read \
             afresh, then ask from that zxid on"
        );
        Problem::new(ProblemType::EventsGone, detail).since(zxid)
    }

    /// Builds the JSON document of the answer. `zxid` is used if the problem has no zxid yet.
    fn document(&self, zxid: Zxid) -> zlock_client::api::Problem {
        let Extra { ended, ended_session, cycle, holder } = self.extra.as_deref().cloned().unwrap_or_default();
        zlock_client::api::Problem {
            type_uri: self.kind.uri(),
            title: self.kind.title().into(),
            status: self.kind.status(),
            detail: self.detail.clone(),
            outcome: self.outcome,
            name: self.error.map(|error| error.row().name.into()),
            code: self.error.map(znode::Error::code),
            path: self.path.as_ref().map(|path| path.as_str().into()),
            op_index: self.op_index,
            ended,
            ended_session,
            cycle,
            holder,
            zxid: self.zxid.unwrap_or(zxid).0,
        }
    }

    /// Writes the JSON document as one line of text.
    pub(crate) fn to_json(&self, zxid: Zxid) -> String {
        serde_json::to_string(&self.document(zxid)).expect("a problem has no maps and no foreign types") + "\n"
    }

    /// Renders the answer. `zxid` is used if the problem has no zxid yet.
    pub(crate) fn render(self, zxid: Zxid) -> Response {
        let mut response = (self.status(), self.to_json(zxid)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(ms) = self.retry_after_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000).max(1)));
        }
        if self.status() == StatusCode::UNAUTHORIZED {
            // The scheme is not `Basic`, because a browser would ask for the password, keep it, and
            // send it with every request of a page.
            let way = if self.kind == ProblemType::OperatorOnly { "Zlock-Operator" } else { "Zlock-Session-Key" };
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(way));
        }
        response
    }
}

/// Puts the problem into the response. The outermost layer renders it, because only that layer
/// knows the zxid.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<znode::Error> for Problem {
    fn from(error: znode::Error) -> Problem {
        let row = error.row();
        // A test checks that the table of problems has the kind of every error.
        let kind = ProblemType::from_slug(row.problem).unwrap_or(ProblemType::Internal);
        let retry = matches!(kind.status(), 429 | 503);
        Problem {
            error: Some(error),
            outcome: Outcome::Refused,
            retry_after_ms: retry.then_some(RETRY_AFTER_MS),
            ..Problem::new(kind, words(error))
        }
    }
}

/// Returns the detail text for an error of the state machine. Errors about sessions, and about
/// children of ephemeral znodes, get a text with advice for HTTP clients.
fn words(error: znode::Error) -> String {
    match error {
        znode::Error::SessionRequired => {
            "the operation needs a session: open one with POST /v1/sessions, and send the \
            `session_key` of its answer in the header Zlock-Session-Key"
                .to_owned()
        }
        znode::Error::SessionExpired => {
            "the session was closed, has expired or never was: open another one; the locks and \
            ephemeral znodes of this one are lost"
                .to_owned()
        }
        znode::Error::NoChildrenForEphemerals => {
            "this is an ephemeral znode, such as a simple lock has: it can have no children, and so no queue of a \
            lock. Either all clients of a lock use simple locks, or none does"
                .to_owned()
        }
        error => error.to_string(),
    }
}

impl From<replica::Error> for Problem {
    fn from(error: replica::Error) -> Problem {
        match error {
            replica::Error::Refused(error) => error.into(),
            replica::Error::Unavailable { reason, retry_after_ms } => Problem::unavailable(reason, retry_after_ms),
            replica::Error::Restoring { retry_after_ms } => {
                Problem { kind: ProblemType::Restoring, ..Problem::unavailable(error.to_string(), retry_after_ms) }
            }
            replica::Error::Unknown { reason } => Problem::unknown(reason),
        }
    }
}

/// Converts the reason why a wait ended. Most handlers do not convert `Deadline`, which is an
/// ordinary result for them.
impl From<WaitEnd> for Problem {
    fn from(end: WaitEnd) -> Problem {
        match end {
            WaitEnd::Deadline => Problem::unavailable("the wait is over", RETRY_AFTER_MS),
            WaitEnd::TooMany => Problem::too_many(Bound::Watches, "watches"),
            WaitEnd::CannotServe => Problem::unavailable(end.to_string(), RETRY_AFTER_MS),
            WaitEnd::Stopped => Problem::stopping(),
        }
    }
}

impl From<EventsError> for Problem {
    fn from(error: EventsError) -> Problem {
        match error {
            EventsError::Gone { oldest } => Problem {
                zxid: Some(oldest),
                ..Problem::new(
                    ProblemType::EventsGone,
                    format!(
                        "events after `since` are no longer kept: read afresh, then ask from that zxid on; the oldest `since` is {oldest}"
                    ),
                )
            },
            EventsError::Wait(end) => end.into(),
        }
    }
}

#[cfg(test)]
mod tests;
