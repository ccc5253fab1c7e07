//! `GET /v1/fence`: tells proxies, by the status, whether a fencing token belongs to a present
//! holder of a lock. nginx's `auth_request` lets a request pass for any 2xx, and Envoy's
//! `ext_authz` for 200 only; both refuse a request for 403.
//!
//! The answer is sent without waiting for a body: unless nginx is configured otherwise, it copies
//! the `Content-Length` of the client's request, and sends no body.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderName, StatusCode};
use replica::Consistency;
use zlock_client::api::ProblemType::Fenced;
use zlock_client::api::{ProblemType, ZnodePath, headers};
use znode::{Credential, FencingToken, Identity, ZPath, lock};

use crate::http::layer::CONDITIONS;
use crate::problem::Problem;
use crate::request::access::check_readable;
use crate::request::call::{Answer, WithBody, empty, pass_over};
use crate::request::caller::once;
use crate::request::door::Door;
use crate::request::identity::identities;
use crate::request::paths;
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[Route { problems: &[&[Fenced]], ..route!(check) }];

/// Checks whether a token belongs to a present holder: 204 if so, else 403.
#[utoipa::path(get, path = "/v1/fence", operation_id = "fenceCheck", tag = "locks",
    params(("path" = ZnodePath, Query, example = "/team/x", description = "path of the lock"),
        ("fencing_token" = Option<String>, Query, max_length = 64,
            description = "the fencing token; a missing token, or a text that is no number, is refused like a wrong \
                token")),
    responses((status = 204, description = "A present holder of the lock has the token"),
        (status = 403,
            description = "No present holder of the lock has the token, or the request may not read the lock."),
        (status = 503, description = "The node cannot check the token at present.")))]
pub(crate) async fn check(State(door): State<Arc<Door>>, mut request: Request) -> Answer {
    // A proxy may copy these headers from the request that it checks.
    for name in CONDITIONS.iter().chain([&HeaderName::from_static(headers::IDEMPOTENCY_KEY)]) {
        request.headers_mut().remove(name);
    }
    let WithBody(mut call) = WithBody::from_request(request, &door).await?;
    let lock = call
        .query
        .path("path")?
        .ok_or_else(|| Problem::bad("path", "it is missing: name the lock that is to be held"))?;
    let token = call.query.take("fencing_token")?;
    std::mem::take(&mut call.query).finish()?;
    let asker = Asker { identities: &call.identities, session: call.caller.credential };
    answer(&call.door, &asker, StatusCode::NO_CONTENT, &lock, token.as_deref()).await
}

/// Checks a token for a proxy, such as Envoy, that sends the method and path of its client's
/// request behind `/v1/fence`: 200 if the token belongs to a present holder, else 403.
///
/// The lock, the token and the proxy's credentials are in headers that only fence checks have:
/// `Zlock-Lock`, `Zlock-Fencing-Token` and `Zlock-Authorization`. The path, the query, the body and
/// all other headers, including `Authorization` and `Origin`, belong to the client's request, and
/// are meant for the service behind the proxy.
pub(crate) async fn check_behind(State(door): State<Arc<Door>>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    // Two values are refused: one may be the proxy's, and one its client's.
    let lock = once(&parts.headers, headers::FENCE_LOCK)?;
    let lock =
        lock.ok_or_else(|| Problem::bad(headers::FENCE_LOCK, "it is missing: name the lock that is to be held"))?;
    let decode = if lock.starts_with('/') { paths::decode_in } else { paths::parse };
    let lock = decode(headers::FENCE_LOCK, lock)?;
    // Two tokens, or one that is no ASCII text, count as no token, because the proxy passes on what
    // its client sent.
    let token = once(&parts.headers, headers::FENCING_TOKEN).ok().flatten();
    let super_digest = &door.config.super_digest;
    let identities = identities(headers::FENCE_AUTHORIZATION, &parts.extensions, &parts.headers, super_digest)?;
    // The body is read in parallel: if the connection were closed while the proxy still sends, the
    // answer would be lost.
    let asker = Asker { identities: &identities, session: None };
    let answered = answer(&door, &asker, StatusCode::OK, &lock, token);
    tokio::join!(answered, pass_over(body)).0
}

/// Client that asks about a token. A session may ask about its own ticket even without read access
/// to the lock.
struct Asker<'a> {
    identities: &'a [Identity],
    session: Option<Credential>,
}

async fn answer(door: &Door, asker: &Asker<'_>, pass: StatusCode, lock: &ZPath, token: Option<&str>) -> Answer {
    // A missing or malformed token is an error of the proxy's client, so it is answered like a
    // token that holds no lock.
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
    Err(Problem::new(ProblemType::Fenced, detail).at(lock, zxid))
}

/// Turns a failed read into 503, which proxies distinguish from a refusal.
fn cannot_tell(problem: Problem) -> Problem {
    Problem::unavailable(format!("whether the lock is held cannot be told: {}", problem.detail), 1_000)
}
