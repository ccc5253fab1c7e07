//! A parsed request, in the form that handlers take.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use accept::{Waiting, WritePass};
use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_TYPE, EXPECT, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Extensions, Method, StatusCode, Uri, request};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt;
use replica::{Bound, Consistency};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use zlock_client::api::ProblemType;
use znode::{Acl, Error, Identity, Op, Reply, State, ZPath, ZnodeOp, Zxid};

use crate::http::at_work::{Pass, Pause};
use crate::http::bodies::{Broken, Full, Room};
use crate::http::delivery::Delivery;
use crate::http::peer::Peer;
use crate::problem::Problem;
use crate::request::caller::{Arrival, Caller};
use crate::request::door::{AtZxid, Door};
use crate::request::identity::{AUTHORIZATION, identities};
use crate::request::paths;
use crate::request::query::{Query, unreadable};

/// Largest JSON body in bytes that is parsed on the async thread, which takes a fraction of a
/// millisecond. Longer bodies go to the thread for long work.
const SHORT_BODY_BYTES: usize = 16 << 10;

/// Result of a handler.
pub(crate) type Answer = Result<Response, Problem>;

/// Guard of a long poll, which marks its connection and its request as waiting. At the bound on
/// connections, waiting connections are closed before busy ones. A waiting request does not count
/// as a request at work.
pub(crate) struct LongPoll {
    _place: Option<Waiting>,
    _pause: Option<Pause>,
}

/// A request with well-formed headers and parameters. Parameters come from the query and from the
/// members of a JSON body, which has been read.
pub(crate) struct Call {
    pub(crate) door: Arc<Door>,
    pub(crate) arrived: Instant,
    pub(crate) caller: Caller,
    /// Identities that the request has proven, apart from `world:anyone`.
    pub(crate) identities: Vec<Identity>,
    pub(crate) query: Query,
    pub(crate) parts: request::Parts,
    /// The body, empty once a handler has taken it. The mutex makes a call shareable between
    /// threads, which a body is not.
    body: Mutex<Body>,
}

/// A request whose body is unread, because its handler reads the body itself.
pub(crate) struct WithBody(pub(crate) Call);

impl FromRequest<Arc<Door>> for Call {
    type Rejection = Problem;

    async fn from_request(request: Request, door: &Arc<Door>) -> Result<Call, Problem> {
        let mut call = Call::of(request, door)?;
        call.read_parameters().await?;
        Ok(call)
    }
}

impl FromRequest<Arc<Door>> for WithBody {
    type Rejection = Problem;

    async fn from_request(request: Request, door: &Arc<Door>) -> Result<WithBody, Problem> {
        Call::of(request, door).map(WithBody)
    }
}

impl Call {
    fn of(request: Request, door: &Arc<Door>) -> Result<Call, Problem> {
        let (parts, body) = request.into_parts();
        let arrived = parts.extensions.get().map_or_else(Instant::now, |Arrival(at)| *at);
        let caller = Caller::read(&parts.headers, parts.extensions.get().copied())?;
        let super_digest = &door.config.super_digest;
        let identities = identities(AUTHORIZATION, &parts.extensions, &parts.headers, super_digest)?;
        let query = Query::parse(parts.uri.query().unwrap_or_default())?;
        let call = Call { door: Arc::clone(door), arrived, caller, identities, query, parts, body: Mutex::new(body) };
        call.look_whether_it_waits();
        Ok(call)
    }

    /// Calls [`Call::may_wait`] for a request with the parameter `wait`.
    fn look_whether_it_waits(&self) {
        if self.query.has("wait") {
            self.may_wait();
        }
    }

    /// Notes that the request may wait. It then ends when the client closes its sending side. Any
    /// other request is answered even to such a client.
    pub(crate) fn may_wait(&self) {
        if let Some(delivery) = Delivery::of(&self.parts.extensions) {
            delivery.release_end();
        }
    }

    /// Adds the parameters in the JSON body to the query.
    async fn read_parameters(&mut self) -> Result<(), Problem> {
        if self.body.get_mut().unwrap_or_else(PoisonError::into_inner).is_end_stream() {
            return Ok(());
        }
        // Parameters in a body have the bound of a query.
        let max = self.door.config.uri_bytes_max.min(self.door.config.body_bytes_max);
        let (bytes, _room) = self.body(max).await?;
        if bytes.is_empty() {
            return Ok(());
        }
        if matches!(self.parts.method, Method::GET | Method::HEAD) {
            // HTTP gives the body of a GET no meaning, and proxies may drop it.
            return Err(Problem::bad("body", "a GET has none: its parameters stand in the query"));
        }
        self.check_json_type()?;
        self.query.add_object(&bytes)?;
        self.look_whether_it_waits();
        Ok(())
    }

    /// Returns the part of the URL behind `route`, still encoded.
    pub(crate) fn raw_path(&self, route: &str) -> &str {
        self.parts.uri.path().strip_prefix(route).unwrap_or_default()
    }

    /// Parses the znode path behind `route`.
    pub(crate) fn path(&self, route: &str) -> Result<ZPath, Problem> {
        paths::decode(self.raw_path(route))
    }

    /// Parses the path of a lock or an election behind `route`.
    ///
    /// # Errors
    /// 400 for a malformed path, and for the root, which cannot be a lock.
    pub(crate) fn lock_path(&self, route: &str) -> Result<ZPath, Problem> {
        paths::not_the_root("path", self.path(route)?)
    }

    /// Parses the path of a ticket (a lock node that queues for a lock) behind `route`. Returns the
    /// ticket's path and its lock's path.
    pub(crate) fn ticket_path(&self, route: &str) -> Result<(ZPath, ZPath), Problem> {
        let ticket = self.path(route)?;
        let lock = ticket.parent().filter(|lock| !lock.is_root());
        let why = "a child of the root is no ticket, as the root is no lock; of a lock itself ask /v1/locks";
        let lock = lock.ok_or_else(|| Problem::bad("ticket", why))?;
        Ok((ticket, lock))
    }

    /// Frees the request's head before a wait that may last hours. Everything needed from the head
    /// has been read by then.
    pub(crate) fn forget_head(&mut self) {
        let mut extensions = Extensions::new();
        let kept = &mut self.parts.extensions;
        kept.remove::<Delivery>().map(|delivery| extensions.insert(delivery));
        kept.remove::<Peer>().map(|peer| extensions.insert(peer));
        (self.parts.extensions, self.parts.headers, self.parts.uri) = (extensions, HeaderMap::new(), Uri::default());
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// Reads the state with the request's parameter `consistency`; linearizable when it is missing.
    pub(crate) async fn read(&mut self) -> Result<Arc<State>, Problem> {
        let consistency = self.consistency()?;
        Ok(self.door.replica.read(consistency, self.door.read_deadline()).await?)
    }

    /// Takes the parameter `consistency`; linearizable when it is missing.
    pub(crate) fn consistency(&mut self) -> Result<Consistency, Problem> {
        match self.query.take("consistency")?.as_deref() {
            None | Some("linearizable") => Ok(Consistency::Linearizable),
            Some("local") => Ok(Consistency::Local { min_zxid: self.caller.min_zxid }),
            Some(_) => Err(Problem::bad("consistency", "linearizable or local")),
        }
    }

    /// Reads a state that includes the write at `zxid`, to show its result or to wait for a change.
    pub(crate) async fn state_with(&self, zxid: Zxid) -> Result<Arc<State>, Problem> {
        let consistency = Consistency::Local { min_zxid: zxid };
        Ok(self.door.replica.read(consistency, self.door.read_deadline()).await?)
    }

    /// Makes a long list on the thread for long work. The list shows the state of the moment at
    /// which it is made. Parameters that the caller has not taken are refused. Meanwhile the caller
    /// must keep no `Arc` of a state, as a write would have to copy the data that it changes.
    pub(crate) async fn page(mut self, make: impl FnOnce(&Call, &State) -> Answer + Send + 'static) -> Answer {
        std::mem::take(&mut self.query).finish()?;
        let door = self.door.clone();
        let source = self.source();
        door.long_work.run(source, move || make(&self, &self.door.replica.state())).await
    }

    /// Reads the body, of at most `max` bytes and within the configured time. The returned [`Room`]
    /// counts the body's bytes against the memory for bodies. The caller keeps it as long as it
    /// keeps the body or a value made of it.
    pub(crate) async fn body(&mut self, max: usize) -> Result<(Bytes, Room), Problem> {
        let body = std::mem::take(self.body.get_mut().unwrap_or_else(PoisonError::into_inner));
        let announced = body.size_hint().upper().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if announced.is_some_and(|bytes| bytes > max) {
            // A client that sent `Expect` waits for the answer before it sends the body.
            if !self.headers().contains_key(EXPECT) {
                pass_over(body).await;
            }
            return Err(too_large(max));
        }
        let body = self.door.bodies.read(body, max, self.peer().and_then(Peer::source));
        let deadline = Duration::from_millis(self.door.config.body_read_timeout_ms);
        match tokio::time::timeout(deadline, body).await {
            Ok(Ok(read)) => {
                self.is_whole();
                Ok(read)
            }
            Ok(Err(Broken::TooLarge)) => Err(too_large(max)),
            Ok(Err(Broken::Unreadable(error))) => Err(Problem::bad("body", error)),
            Ok(Err(Broken::Full(Full::Address))) => {
                Err(Problem::too_many(Bound::BodiesOfAddress, "bytes of bodies of your address"))
            }
            Ok(Err(Broken::Full(Full::Node))) => {
                let detail = "too many bodies are on their way to this node, and this one was not whole yet";
                Err(Problem::full(Bound::Bodies, detail))
            }
            Err(_) => {
                let detail = format!("the body took longer than {} ms", self.door.config.body_read_timeout_ms);
                Err(Problem::new(ProblemType::RequestTimeout, detail))
            }
        }
    }

    /// Notes that the last byte of the body has come. This marks the connection as busy, and counts
    /// as a heartbeat of the session.
    fn is_whole(&self) {
        if let Some(peer) = self.peer() {
            peer.heard();
        }
        if let Some(credential) = self.caller.credential {
            self.door.replica.touch_soon(credential);
        }
    }

    /// Reads a body that is a JSON object.
    pub(crate) async fn json<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<(T, Room), Problem> {
        self.check_json_type()?;
        let (bytes, room) = self.body(self.door.config.body_bytes_max).await?;
        Ok((self.parsed(bytes, object).await?, room))
    }

    /// Reads a body that is a JSON list.
    pub(crate) async fn json_list<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<(Vec<T>, Room), Problem> {
        self.check_json_type()?;
        let (bytes, room) = self.body(self.door.config.body_bytes_max).await?;
        let list = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|error| Problem::bad("body", error));
        Ok((self.parsed(bytes, list).await?, room))
    }

    /// Parses a body. A long body is parsed on the thread for long work.
    async fn parsed<T: Send + 'static>(
        &self,
        bytes: Bytes,
        parse: fn(&[u8]) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if bytes.len() <= SHORT_BODY_BYTES {
            return parse(&bytes);
        }
        self.door.long_work.run(self.source(), move || parse(&bytes)).await
    }

    /// Reads a body that is a JSON object. An empty body stands for the type's default.
    pub(crate) async fn json_or_default<T: DeserializeOwned + Default>(&mut self) -> Result<T, Problem> {
        self.check_json_type()?;
        let (bytes, _room) = self.body(self.door.config.body_bytes_max).await?;
        if bytes.is_empty() {
            return Ok(T::default());
        }
        object(&bytes)
    }

    /// Checks an ACL of the request. Entries of the scheme `auth` become entries for the identities
    /// that the request has proven.
    ///
    /// # Errors
    /// 400 `invalid-acl`.
    pub(crate) fn fixed_acl(&self, acl: Vec<Acl>) -> Result<Vec<Acl>, Problem> {
        let max = self.door.replica.state().limits().acl_entries_max as usize;
        znode::fixed_acl(acl, &self.identities, max).ok_or_else(|| Problem::from(Error::InvalidAcl))
    }

    /// Checks that `Content-Type` is JSON. A missing header passes, and so does the form type that
    /// `curl -d` sets by itself.
    fn check_json_type(&self) -> Result<(), Problem> {
        let Some(value) = self.headers().get(CONTENT_TYPE) else { return Ok(()) };
        let essence =
            value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if essence == "application/json" || essence == "application/x-www-form-urlencoded" || essence.ends_with("+json")
        {
            return Ok(());
        }
        let detail = "send application/json";
        Err(Problem::new(ProblemType::UnsupportedMediaType, detail))
    }

    /// Returns the client's address for the bounds on one address; `None` for an exempt address.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.peer().and_then(Peer::source)
    }

    /// Returns the client of the connection; `None` for a request that came without a connection of
    /// this server, as in tests.
    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.parts.extensions.get()
    }

    /// Marks the request as a long poll, until the result is dropped.
    pub(crate) fn waits(&self) -> Option<LongPoll> {
        let pause = self.parts.extensions.get::<Arc<Pass>>().map(Pass::pause);
        Some(LongPoll { _place: self.peer().and_then(Peer::waits), _pause: pause })
    }

    /// Makes the request to the state machine from the headers and `op`.
    pub(crate) fn request(&self, op: Op) -> znode::Request {
        let (credential, key, guard) = (self.caller.credential, self.caller.key, self.caller.guard.clone());
        let address = self.peer().filter(|_| may_end_tickets(&op)).map(Peer::addr);
        let identities = self.identities.clone();
        znode::Request { credential, key, guard, identities, address, ..znode::Request::new(op) }
    }

    /// Proposes a write. Returns the zxid and the reply.
    pub(crate) async fn propose(&self, op: Op) -> Result<(Zxid, Reply), Problem> {
        let (request, deadline) = (self.request(op), self.door.propose_deadline());
        let _pass = self.write_pass(&request, deadline).await?;
        let applied = self.door.replica.propose(request, deadline).await?;
        match applied.reply {
            Ok(reply) => Ok((applied.zxid, reply)),
            Err(refusal) => Err(self.of_a_key_alone(Problem::refused(refusal, applied.zxid))),
        }
    }

    /// Waits until the client's address may have one more write under way.
    pub(crate) async fn write_pass(&self, request: &znode::Request, deadline: Instant) -> Result<WritePass, Problem> {
        let pass = self.door.windows.enter(self.source(), request.bytes());
        let pass = tokio::time::timeout_at(deadline, pass).await;
        pass.map_err(|_| Problem::too_many(Bound::WritesOfAddress, "writes of your address"))
    }

    /// Names the header `Idempotency-Key` in the problem `session-required` of a request that has
    /// this header and no session. Other problems are returned unchanged.
    fn of_a_key_alone(&self, problem: Problem) -> Problem {
        let is_alone = self.caller.key.is_some() && self.caller.credential.is_none();
        match is_alone && problem.is(Error::SessionRequired) {
            true => problem.because(
                "`Idempotency-Key` needs a session: send the header Zlock-Session-Key with it, whose value is the \
                 `session_key` in the answer to POST /v1/sessions, or leave `Idempotency-Key` out",
            ),
            false => problem,
        }
    }
}

/// Tells whether an operation may end tickets of other sessions. The log entry of such an operation
/// has the address of the client, for the lock's history.
fn may_end_tickets(op: &Op) -> bool {
    matches!(op, Op::Revoke { .. } | Op::Znode(ZnodeOp::Delete { .. }) | Op::Multi(_))
}

/// Reads and drops the rest of a body for at most a second. Without this, closing the connection
/// while the client still sends could lose the answer.
pub(crate) async fn pass_over(mut body: Body) {
    const BYTES_MAX: usize = 16 << 20;
    const TIME_MAX: Duration = Duration::from_secs(1);
    let read = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > BYTES_MAX {
                return;
            }
        }
    };
    // The answer does not depend on how the reading ends.
    let _ = tokio::time::timeout(TIME_MAX, read).await;
}

/// Parses a JSON object. serde alone would also accept a list of the type's fields in order.
fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::bad("body", "an object is expected, not a list"));
    }
    serde_json::from_slice(body).map_err(|error| field_of::<T>(body).unwrap_or_else(|| unreadable(body, &error)))
}

/// Returns a 400 that names the field of the body where parsing failed; `None` if the error is not
/// in one field.
fn field_of<T: DeserializeOwned>(body: &[u8]) -> Option<Problem> {
    let mut parser = serde_json::Deserializer::from_slice(body);
    let error = serde_path_to_error::deserialize::<_, T>(&mut parser).err()?;
    let field = error.path().to_string();
    let why = error.inner().to_string();
    let (why, _) = why.rsplit_once(" at line ")?;
    (field != ".").then(|| Problem::bad(&field, why))
}

fn too_large(max: usize) -> Problem {
    let detail = format!("at most {max} bytes");
    Problem::new(ProblemType::BodyTooLarge, detail)
}

/// Makes a JSON answer with `zxid` as its `Zlock-Zxid`.
pub(crate) fn json(status: StatusCode, zxid: Zxid, body: &impl Serialize) -> Response {
    // Most answers fit into 512 bytes, so the buffer rarely grows.
    let mut bytes = Vec::with_capacity(512);
    serde_json::to_writer(&mut bytes, body).expect("the keys of all maps are texts, and memory takes all");
    // The newline lets a shell's prompt begin on its own line after curl.
    bytes.push(b'\n');
    answer(status, zxid, "application/json", bytes)
}

/// Makes an answer of any content type with `zxid` as its `Zlock-Zxid`.
pub(crate) fn answer(status: StatusCode, zxid: Zxid, content_type: &'static str, body: impl Into<Body>) -> Response {
    // The outermost layer adds more headers, for which the map has room.
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let mut response = empty(status, zxid);
    *response.body_mut() = body.into();
    *response.headers_mut() = headers;
    response
}

/// Makes an answer with a status and without a body.
pub(crate) fn empty(status: StatusCode, zxid: Zxid) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response.extensions_mut().insert(AtZxid(zxid));
    response
}

/// Adds a header. The caller guarantees that the value is valid in a header.
pub(crate) fn with_header(mut response: Response, name: HeaderName, value: impl AsRef<str>) -> Response {
    let value = HeaderValue::from_str(value.as_ref()).expect("it was made of digits or percent-encoded text");
    response.headers_mut().insert(name, value);
    response
}
