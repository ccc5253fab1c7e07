//! `GET /v1/fence`: whether a fencing token is a present holder's, in statuses that proxies
//! understand. nginx's `auth_request` lets a request pass for 2xx, Envoy's `ext_authz` for 200 and
//! nothing else; both refuse it for 403.
//!
//! The body is not waited for: nginx tells the length of the body of the request that it is about,
//! and sends none, unless it is configured to leave that header out.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use replica::Consistency;
use zlock_client::api::ProblemType::LockNotHeld;
use zlock_client::api::{ProblemType, ZnodePath, headers};
use znode::{Credential, FencingToken, Identity, ZPath, lock};

use crate::problem::Problem;
use crate::request::access::check_readable;
use crate::request::call::{Answer, WithBody, empty, pass_over};
use crate::request::caller::once;
use crate::request::door::Door;
use crate::request::identity::identities;
use crate::request::paths;
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[Route { problems: &[&[LockNotHeld]], ..route!(check) }];

/// Says whether a token is a present holder's: 204, else 403.
#[utoipa::path(get, path = "/v1/fence", operation_id = "fenceCheck", tag = "locks",
    params(("lock" = ZnodePath, Query, example = "/team/x", description = "the lock"),
        ("token" = Option<String>, Query, max_length = 64,
            description = "the fencing token; absent or no number is refused as any other")),
    responses((status = 204, description = "It is a present holder's"),
        (status = 403, description = "It is not, or the request may not read the lock."),
        (status = 503, description = "It cannot be told now.")))]
pub(crate) async fn check(WithBody(mut call): WithBody) -> Answer {
    let lock = call
        .query
        .path("lock")?
        .ok_or_else(|| Problem::bad("lock", "it is missing: name the lock that is to be held"))?;
    let token = call.query.take("token")?;
    std::mem::take(&mut call.query).finish()?;
    let asker = Asker { identities: &call.identities, session: call.caller.credential };
    answer(&call.door, &asker, StatusCode::NO_CONTENT, &lock, token.as_deref()).await
}

/// The same for a proxy that asks with the method, and behind the path, of the request that it is
/// about, as Envoy does: 200, else 403.
///
/// The lock, the token and the proxy's own credentials are in headers of their own. The path, the
/// query, the body and all other headers are the other request's, its `Authorization` and its
/// `Origin` among them, and are for the service behind the proxy.
pub(crate) async fn check_behind(State(door): State<Arc<Door>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    // Of two, the proxy may have set one, and its client the other.
    let lock = once(&parts.headers, headers::FENCE_LOCK)?;
    let lock =
        lock.ok_or_else(|| Problem::bad(headers::FENCE_LOCK, "it is missing: name the lock that is to be held"))?;
    let lock = paths::parse(headers::FENCE_LOCK, lock)?;
    // Of two tokens, or of what is no text, none holds anything: the proxy passes on what its
    // client sent.
    let token = once(&parts.headers, headers::FENCE_TOKEN).ok().flatten();
    let super_digest = &door.config.super_digest;
    let identities = identities(headers::FENCE_AUTHORIZATION, &parts.extensions, &parts.headers, super_digest)?;
    // An answer that comes while the proxy still sends would be lost with the connection.
    let asker = Asker { identities: &identities, session: None };
    let answered = answer(&door, &asker, StatusCode::OK, &lock, token);
    tokio::join!(answered, pass_over(body)).0
}

/// The one who asks. A session may ask for its own ticket, whether it may read the lock or not.
struct Asker<'a> {
    identities: &'a [Identity],
    session: Option<Credential>,
}

async fn answer(door: &Door, asker: &Asker<'_>, pass: StatusCode, lock: &ZPath, token: Option<&str>) -> Answer {
    // What a client of the proxy did not send, or made up, is a token that holds nothing: no fault
    // of the proxy.
    let plain = token.filter(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit()));
    let token = plain.and_then(|token| token.parse().ok()).map(FencingToken);
    let read = door.replica.read(Consistency::Linearizable, door.read_deadline()).await;
    let state = read.map_err(|error| cannot_tell(error.into()))?;
    let proven = asker.session.filter(|credential| state.authenticate(credential).is_ok());
    let own = |token| proven.is_some_and(|credential| lock::is_held_by(&state, lock, token, credential.session));
    if !token.is_some_and(own) {
        check_readable(asker.identities, &state, lock)?;
    }
    let zxid = state.last_zxid();
    if token.is_some_and(|token| lock::is_held_with(&state, lock, token)) {
        return Ok(empty(pass, zxid));
    }
    let detail = match token {
        Some(token) => format!("the lock is not held with token {token}"),
        None => "the request shows no fencing token, which is a number".into(),
    };
    Err(Problem::new(ProblemType::LockNotHeld, detail).at(lock, zxid))
}

/// What kept the node from looking: a proxy must not take it for an answer.
fn cannot_tell(problem: Problem) -> Problem {
    Problem::unavailable(format!("whether the lock is held cannot be told: {}", problem.detail), 1_000)
}
