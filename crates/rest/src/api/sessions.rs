//! `/v1/sessions`: opening, keeping alive, closing and listing sessions.

use std::str::FromStr;

use axum::http::StatusCode;
use axum::http::header::LOCATION;
use replica::{Bound, Touch};
use zlock_client::api::ProblemType::{NoSession, SessionExpired};
use zlock_client::api::{
    ClientDetails, Deletion, KeepAlive, Millis, NewSession, OpenSession, SessionInfo, SessionKey, SessionList,
    ZnodePath,
};
use znode::{ClientInfo, Error, Identity, Op, Reply, SUPER, Session, SessionId, State, ZPath};

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
    request_body(content = Option<OpenSession>, example = json!({"timeout": "30s", "label": "docs"})),
    responses((status = 201, description = "The session with its key, which is not shown again", body = NewSession,
        example = json!({"session": 6, "session_key": "6.bce47f6588e95331355307d186b88217",
        "timeout_ms": 30000, "safe_for_ms": 29400}))))]
pub(crate) async fn open(WithBody(mut call): WithBody) -> Answer {
    std::mem::take(&mut call.query).finish_beside(&["timeout", "label", "client"])?;
    let wish: OpenSession = call.json_or_default().await?;
    let timeout_ms = match wish.timeout {
        Some(Millis(ms)) => u32::try_from(ms).unwrap_or(u32::MAX),
        None => call.door.config.session_timeout_default_ms,
    };
    let mut key = SessionKey { id: 0, secret: [0; 16] };
    getrandom::fill(&mut key.secret).map_err(|error| Problem::unavailable(error.to_string(), 1_000))?;
    // A session key in the request must not affect the new session.
    call.caller.credential = None;
    let address = call.peer().and_then(Peer::counted_addr);
    if address.is_some_and(|address| !call.door.session_rates.take(address)) {
        return Err(Problem::too_many(Bound::SessionRate, "new sessions from your address"));
    }
    check_seen("label", &wish.label)?;
    let client = client(wish.client.unwrap_or_default(), call.peer())?;
    let texts =
        [("label", wish.label.len()), ("client.host", client.host.len()), ("client.program", client.program.len())];
    let op = Op::OpenSession { secret_hash: secret_hash(&key), timeout_ms, label: wish.label, address, client };
    let opened = call.propose(op).await.map_err(|problem| match problem.is(Error::SessionRequired) {
        true => problem.because("`Idempotency-Key` needs a session, and this request opens one: leave the header out"),
        false => problem.naming(&call.door.replica.state(), &texts),
    });
    let (zxid, Reply::SessionOpened { session, timeout_ms }) = opened? else {
        return Err(Problem::internal("an open was not answered as one"));
    };
    key.id = session.0;
    let opened = NewSession {
        session: session.0,
        session_key: key.to_string(),
        timeout_ms,
        timeout_asked_ms: wish.timeout.map(|asked| asked.0).filter(|asked| *asked != u64::from(timeout_ms)),
        safe_for_ms: safe_for_ms(timeout_ms),
    };
    Ok(with_header(json(StatusCode::CREATED, zxid, &opened), LOCATION, format!("/v1/sessions/{session}")))
}

/// Makes the description of a session's client, from the client's own details and the address of
/// its connection.
fn client(details: ClientDetails, peer: Option<&Peer>) -> Result<ClientInfo, Problem> {
    let ClientDetails { host, pid, program } = details;
    for (name, text) in [("client.host", &host), ("client.program", &program)] {
        check_seen(name, text)?;
    }
    Ok(ClientInfo { host, pid, program, address: peer.map(Peer::addr) })
}

/// Keeps a session alive. The leader confirms the heartbeat.
#[utoipa::path(post, path = "/v1/sessions/{session}/keepalive", operation_id = "sessionsKeepAlive", tag = "sessions",
    params(("session" = u64, Path, minimum = 1, example = 6)),
    responses((status = 200,
        description = "The leader has confirmed the heartbeat", body = KeepAlive, example = json!({"session": 6,
        "timeout_ms": 30000, "safe_for_ms": 29400}))))]
pub(crate) async fn keep_alive(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let id = own_session(&call, "/keepalive")?;
    let touch = call.door.replica.touch(call.caller.session()?, call.door.read_deadline()).await?;
    let Touch { timeout_ms, .. } = touch;
    let kept = KeepAlive { session: id.0, timeout_ms, safe_for_ms: safe_for_ms(timeout_ms) };
    Ok(json(StatusCode::OK, call.door.replica.state().last_zxid(), &kept))
}

/// Closes a session, and deletes its ephemeral znodes and locks at once.
#[utoipa::path(delete, path = "/v1/sessions/{session}", operation_id = "sessionsClose", tag = "sessions",
    params(("session" = u64, Path, minimum = 1, example = 6)),
    responses((status = 200,
        description = "The session is closed", body = Deletion, example = json!({"zxid": ZXID + 27}))))]
pub(crate) async fn close(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let session = own_session(&call, "")?;
    let (zxid, _) = call.propose(Op::CloseSession { session }).await?;
    Ok(json(StatusCode::OK, zxid, &Deletion { zxid: zxid.0 }))
}

/// Shows one session without its secret. A session that has ended is answered with 410 and the way
/// it ended, or with 404 once that is forgotten.
#[utoipa::path(get, path = "/v1/sessions/{session}", operation_id = "sessionsLook", tag = "sessions",
    params(("session" = u64, Path, minimum = 1, example = 6), ("page_size" = Option<u64>, Query, minimum = 1),
        ("after" = Option<ZnodePath>, Query)),
    responses((status = 200,
        description = "The session, and a page of those of its ephemeral znodes that the request may see",
        body = SessionInfo, example = json!({"session": 6, "timeout_ms": 30000, "label": "docs",
        "opened_at_ms": 1795248151061_u64, "ephemeral_count": 1, "ephemerals": [TICKET]}))))]
pub(crate) async fn one(mut call: Call) -> Answer {
    let id = session_id(&call, "")?;
    // The page is made later, of this state or a newer one.
    call.read().await?;
    let page_size = call.query.page_size(call.door.config.page_max)?;
    let after = call.query.path("after")?;
    call.page(move |call, state| page_of_one(call, state, id, after.as_ref(), page_size)).await
}

fn page_of_one(call: &Call, state: &State, id: SessionId, after: Option<&ZPath>, page_size: usize) -> Answer {
    let Some(session) = state.session(id) else {
        return Err(history::no_session(&call.identities, state, id));
    };
    let own = call.caller.credential.filter(|credential| credential.session == id);
    let own = own.is_some_and(|credential| state.authenticate(&credential).is_ok());
    // The session itself sees all names; other clients see names in directories that they may read.
    let shown = |path: &&ZPath| own || state.may_read_name(path, &call.identities);
    let rest = session.ephemerals_from(after);
    let mut ephemerals: Vec<String> = rest.filter(shown).take(page_size + 1).map(|path| path.as_str().into()).collect();
    let cursor = cut(&mut ephemerals, page_size).cloned();
    let client = convert::client(&session.client).filter(|_| own || shows_client(&call.identities, state, session));
    Ok(json(StatusCode::OK, state.last_zxid(), &SessionInfo { ephemerals, cursor, client, ..info(session) }))
}

/// Lists sessions in pages.
#[utoipa::path(get, path = "/v1/sessions", operation_id = "sessionsList", tag = "sessions",
    params(("page_size" = Option<u64>, Query, minimum = 1), ("after" = Option<u64>, Query)),
    responses((status = 200, description = "Sessions, sorted by number", body = SessionList,
        example = json!({"sessions": [{"session": 6, "timeout_ms": 30000, "label": "docs", "opened_at_ms": 1795248151061_u64,
        "ephemeral_count": 0}]}))))]
pub(crate) async fn list(mut call: Call) -> Answer {
    // The page is made later, of this state or a newer one.
    call.read().await?;
    let page_size = call.query.page_size(call.door.config.page_max)?;
    let after = SessionId(call.query.get("after")?.unwrap_or(0));
    let page = move |call: &Call, state: &State| {
        let shown = |session: &Session| {
            let client = convert::client(&session.client).filter(|_| shows_client(&call.identities, state, session));
            SessionInfo { client, ..info(session) }
        };
        let mut sessions: Vec<SessionInfo> = state.sessions_from(after).take(page_size + 1).map(shown).collect();
        let cursor = cut(&mut sessions, page_size).map(|last| last.session);
        Ok(json(StatusCode::OK, state.last_zxid(), &SessionList { sessions, cursor }))
    };
    call.page(page).await
}

/// Largest number of a session's ephemeral znodes that are checked for read access.
const LOOKS_MAX: usize = 8;

/// Tells whether the answer may describe the client of a session. The request must come from the
/// super user, or be allowed to read one of the session's znodes: readers of a ticket see its
/// client anyway.
fn shows_client(identities: &[Identity], state: &State, session: &Session) -> bool {
    let is_super = identities.iter().any(|identity| identity.scheme == SUPER);
    is_super || session.ephemerals().take(LOOKS_MAX).any(|path| shows(identities, state, path))
}

fn info(session: &Session) -> SessionInfo {
    SessionInfo {
        session: session.id.0,
        timeout_ms: session.timeout_ms,
        label: session.label.to_string(),
        opened_at_ms: session.opened_ms,
        ephemeral_count: session.ephemeral_count() as u64,
        client: None,
        ephemerals: Vec::new(),
        cursor: None,
    }
}

/// Parses the session's number in the URL, between `/v1/sessions/` and the ending `behind`.
fn session_id(call: &Call, behind: &str) -> Result<SessionId, Problem> {
    let text = call.raw_path("/v1/sessions/").strip_suffix(behind).unwrap_or_default();
    let id = u64::from_str(text).ok().filter(|_| !text.starts_with('+'));
    id.map(SessionId).ok_or_else(|| Problem::bad("session", "not the number of a session"))
}

/// Parses the session's number in the URL as [`session_id`] does. It must be the number of the
/// request's own session.
fn own_session(call: &Call, behind: &str) -> Result<SessionId, Problem> {
    let id = session_id(call, behind)?;
    if call.caller.session()?.session != id {
        return Err(Problem::bad("Zlock-Session-Key", "another session than that of the URL"));
    }
    Ok(id)
}
