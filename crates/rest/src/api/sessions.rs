//! `/v1/sessions`: opening, keeping alive, closing and listing sessions.

use std::str::FromStr;

use axum::http::StatusCode;
use axum::http::header::LOCATION;
use replica::Touch;
use zlock_client::api::ProblemType::{NoSession, SessionExpired};
use zlock_client::api::{
    ClientDetails, Deleted, KeptAlive, OpenSession, SessionInfo, SessionKey, SessionList, SessionOpened, ZnodePath,
};
use znode::{ClientInfo, Identity, Op, Reply, SUPER, Session, SessionId, State, ZPath};

use crate::api::convert;
use crate::api::history;
use crate::http::heartbeat::safe_for_ms;
use crate::http::peer::Peer;
use crate::openapi::examples::{TICKET, ZXID};
use crate::openapi::problems::NO_FRACTION;
use crate::problem::Problem;
use crate::request::access::shows;
use crate::request::call::{Answer, Call, WithBody, json, with_header};
use crate::request::caller::secret_hash;
use crate::request::query::cut;
use crate::request::texts::check_seen;
use crate::route::{IDEMPOTENCY_KEY, IF_LOCK, Route, route};

pub(crate) const ROUTES: &[Route] = &[
    Route { without: &[IDEMPOTENCY_KEY], rules: &[NO_FRACTION, "control characters are not taken"], ..route!(open) },
    Route { reads: true, ..route!(list) },
    Route {
        in_session: true,
        without: &[IDEMPOTENCY_KEY, IF_LOCK],
        rules: &["another session than that of the URL"],
        ..route!(keep_alive)
    },
    Route { reads: true, problems: &[&[NoSession, SessionExpired]], ..route!(one) },
    Route { in_session: true, rules: &["another session than that of the URL"], ..route!(close) },
];

/// Opens a session.
#[utoipa::path(post, path = "/v1/sessions", operation_id = "sessionsOpen", tag = "sessions",
    request_body(content = Option<OpenSession>, example = json!({"timeout_ms": 30000, "label": "docs"})),
    responses((status = 201, description = "The session; nobody is told the secret again", body = SessionOpened,
        example = json!({"id": 6, "secret": "bce47f6588e95331355307d186b88217",
        "session": "6.bce47f6588e95331355307d186b88217", "timeout_ms": 30000, "safe_for_ms": 29400}))))]
pub(crate) async fn open(WithBody(mut call): WithBody) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let wish: OpenSession = call.json_or_default().await?;
    let timeout_ms = match wish.timeout_ms {
        Some(ms) => u32::try_from(ms).unwrap_or(u32::MAX),
        None => call.door.config.session_timeout_default_ms,
    };
    let mut key = SessionKey { id: 0, secret: [0; 16] };
    getrandom::fill(&mut key.secret).map_err(|error| Problem::unavailable(error.to_string(), 1_000))?;
    // The session of the request has no part in the new one.
    call.caller.credential = None;
    let address = call.peer().and_then(Peer::counted_addr);
    if address.is_some_and(|address| !call.door.session_rates.take(address)) {
        return Err(Problem::too_many("new sessions from your address"));
    }
    check_seen("label", &wish.label)?;
    let client = client(wish.client.unwrap_or_default(), call.peer())?;
    let texts =
        [("label", wish.label.len()), ("client.host", client.host.len()), ("client.program", client.program.len())];
    let op = Op::OpenSession { secret_hash: secret_hash(&key), timeout_ms, label: wish.label, address, client };
    let opened = call.propose(op).await.map_err(|problem| problem.naming(&call.door.replica.state(), &texts));
    let (zxid, Reply::SessionOpened { session, timeout_ms }) = opened? else {
        return Err(Problem::internal("an open was not answered as one"));
    };
    key.id = session.0;
    let opened = SessionOpened {
        id: session.0,
        secret: key.secret_hex(),
        session: key.to_string(),
        timeout_ms,
        timeout_asked_ms: wish.timeout_ms.filter(|asked| *asked != u64::from(timeout_ms)),
        safe_for_ms: safe_for_ms(timeout_ms),
    };
    Ok(with_header(json(StatusCode::CREATED, zxid, &opened), LOCATION, format!("/v1/sessions/{session}")))
}

/// Client of a session: its own description, and the address that it was seen at.
fn client(details: ClientDetails, peer: Option<&Peer>) -> Result<ClientInfo, Problem> {
    let ClientDetails { host, pid, program } = details;
    for (name, text) in [("client.host", &host), ("client.program", &program)] {
        if text.chars().any(char::is_control) {
            return Err(Problem::bad(name, "control characters are not taken"));
        }
        check_seen(name, text)?;
    }
    Ok(ClientInfo { host, pid, program, address: peer.map(Peer::addr) })
}

/// Keeps a session alive; the leader answers.
#[utoipa::path(post, path = "/v1/sessions/{id}/keepalive", operation_id = "sessionsKeepAlive", tag = "sessions",
    params(("id" = u64, Path, minimum = 1, example = 6)),
    responses((status = 200, description = "The leader has heard", body = KeptAlive, example = json!({"id": 6,
        "timeout_ms": 30000, "safe_for_ms": 29400}))))]
pub(crate) async fn keep_alive(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let id = own_session(&call, "/keepalive")?;
    let touch = call.door.replica.touch(call.caller.session()?, call.door.read_deadline()).await?;
    let Touch { timeout_ms, .. } = touch;
    let kept = KeptAlive { id: id.0, timeout_ms, safe_for_ms: safe_for_ms(timeout_ms) };
    Ok(json(StatusCode::OK, call.door.replica.state().last_zxid(), &kept))
}

/// Closes a session: its ephemerals and locks go at once.
#[utoipa::path(delete, path = "/v1/sessions/{id}", operation_id = "sessionsClose", tag = "sessions",
    params(("id" = u64, Path, minimum = 1, example = 6)),
    responses((status = 200, description = "It is closed", body = Deleted, example = json!({"zxid": ZXID + 27}))))]
pub(crate) async fn close(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let session = own_session(&call, "")?;
    let (zxid, _) = call.propose(Op::CloseSession { session }).await?;
    Ok(json(StatusCode::OK, zxid, &Deleted { zxid: zxid.0 }))
}

/// Shows one session without its secret. An ended session is 410, with its end while that is
/// remembered.
#[utoipa::path(get, path = "/v1/sessions/{id}", operation_id = "sessionsLook", tag = "sessions",
    params(("id" = u64, Path, minimum = 1, example = 6), ("limit" = Option<u64>, Query, minimum = 1),
        ("after" = Option<ZnodePath>, Query)),
    responses((status = 200,
        description = "The session and a page of those of its ephemerals that the request may know",
        body = SessionInfo, example = json!({"id": 6, "timeout_ms": 30000, "label": "docs",
        "opened_ms": 1795248151061_u64, "ephemeral_count": 1, "ephemerals": [TICKET]}))))]
pub(crate) async fn one(mut call: Call) -> Answer {
    let id = session_id(&call, "")?;
    // The page shows this state or a later one.
    call.read().await?;
    let limit = call.query.limit(call.door.config.page_max)?;
    let after = call.query.path("after")?;
    call.page(move |call, state| page_of_one(call, state, id, after.as_ref(), limit)).await
}

fn page_of_one(call: &Call, state: &State, id: SessionId, after: Option<&ZPath>, limit: usize) -> Answer {
    let Some(session) = state.session(id) else {
        return Err(history::no_session(&call.identities, state, id));
    };
    let own = call.caller.credential.filter(|credential| credential.session == id);
    let own = own.is_some_and(|credential| state.authenticate(&credential).is_ok());
    // The session itself sees all names. Others see those in lists that they may read.
    let shown = |path: &&ZPath| own || state.may_read_name(path, &call.identities);
    let rest = session.ephemerals_from(after);
    let mut ephemerals: Vec<String> = rest.filter(shown).take(limit + 1).map(|path| path.as_str().into()).collect();
    let next = cut(&mut ephemerals, limit).cloned();
    let client = convert::client(&session.client).filter(|_| own || shows_client(&call.identities, state, session));
    Ok(json(StatusCode::OK, state.last_zxid(), &SessionInfo { ephemerals, next, client, ..info(session) }))
}

/// Lists sessions by pages.
#[utoipa::path(get, path = "/v1/sessions", operation_id = "sessionsList", tag = "sessions",
    params(("limit" = Option<u64>, Query, minimum = 1), ("after" = Option<u64>, Query)),
    responses((status = 200, description = "Sessions by id", body = SessionList,
        example = json!({"sessions": [{"id": 6, "timeout_ms": 30000, "label": "docs", "opened_ms": 1795248151061_u64,
        "ephemeral_count": 0}]}))))]
pub(crate) async fn list(mut call: Call) -> Answer {
    // The page shows this state or a later one.
    call.read().await?;
    let limit = call.query.limit(call.door.config.page_max)?;
    let after = SessionId(call.query.get("after")?.unwrap_or(0));
    let page = move |call: &Call, state: &State| {
        let shown = |session: &Session| {
            let client = convert::client(&session.client).filter(|_| shows_client(&call.identities, state, session));
            SessionInfo { client, ..info(session) }
        };
        let mut sessions: Vec<SessionInfo> = state.sessions_from(after).take(limit + 1).map(shown).collect();
        let next = cut(&mut sessions, limit).map(|session| session.id);
        Ok(json(StatusCode::OK, state.last_zxid(), &SessionList { sessions, next }))
    };
    call.page(page).await
}

/// Znodes of one session that are searched for one that the request may read.
const LOOKS_MAX: usize = 8;

/// Tells whether the request may know the client's address: it must be able to read a znode of the
/// session, whose data shows the address as well.
fn shows_client(identities: &[Identity], state: &State, session: &Session) -> bool {
    let is_super = identities.iter().any(|identity| identity.scheme == SUPER);
    is_super || session.ephemerals().take(LOOKS_MAX).any(|path| shows(identities, state, path))
}

fn info(session: &Session) -> SessionInfo {
    SessionInfo {
        id: session.id.0,
        timeout_ms: session.timeout_ms,
        label: session.label.to_string(),
        opened_ms: session.opened_ms,
        ephemeral_count: session.ephemeral_count() as u64,
        client: None,
        ephemerals: Vec::new(),
        next: None,
    }
}

/// Parses the session in the URL, between `/v1/sessions/` and `behind`.
fn session_id(call: &Call, behind: &str) -> Result<SessionId, Problem> {
    let text = call.raw_path("/v1/sessions/").strip_suffix(behind).unwrap_or_default();
    let id = u64::from_str(text).ok().filter(|_| !text.starts_with('+'));
    id.map(SessionId).ok_or_else(|| Problem::bad("id", "not a session id"))
}

/// Parses the session in the URL, which must be the caller's own.
fn own_session(call: &Call, behind: &str) -> Result<SessionId, Problem> {
    let id = session_id(call, behind)?;
    if call.caller.session()?.session != id {
        return Err(Problem::bad("Zlock-Session", "another session than that of the URL"));
    }
    Ok(id)
}
