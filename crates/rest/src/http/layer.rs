//! The layer around every route. It checks the head, refuses requests of foreign web pages, reports
//! heartbeats of complete requests, and adds the headers that every answer has.

use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::http::header::{self, CACHE_CONTROL, CONNECTION, HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use replica::{Entrance, RequestEnd};
use tokio::time::Instant;
use tracing::{Level, debug};
use zlock_client::api::{Outcome, ProblemType, headers};
use znode::Zxid;

use crate::RestConfig;
use crate::api::znodes;
use crate::http::peer::Peer;
use crate::http::route_times::RouteTimes;
use crate::http::{long_answers, origin};
use crate::problem::Problem;
use crate::request::caller::{Arrival, Proven, credential};
use crate::request::door::{AtZxid, Door};
use crate::request::operator::is_by_admin_socket;
use crate::request::paths::{BEHIND_FENCE, FENCE};

/// Header that keeps browsers from giving an answer to a page of another origin, such as in an
/// `img` element.
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Outermost layer: checks the head of a request, and adds the headers that every answer has.
pub(crate) async fn at_the_door(
    State((door, times)): State<(Arc<Door>, Arc<RouteTimes>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let arrival = Arrival(Instant::now());
    if let Some(problem) = head_problem(&door.config, &times, &request) {
        return door.finish(problem.into_response());
    }
    // A foreign page's request must cause no work, not even a heartbeat.
    if let Some(problem) = origin::problem(&door.config, &request) {
        return door.finish(problem.into_response());
    }
    let proven = credential(request.headers());
    // A request with a body counts as a heartbeat only when the body is complete. In a fence check
    // (`/v1/fence/`), the session's header belongs to the request that the proxy asks about.
    if let Ok(Some(credential)) = proven
        && request.body().is_end_stream()
        && !request.uri().path().starts_with(BEHIND_FENCE)
    {
        door.replica.touch_soon(credential);
    }
    let source = request.extensions().get::<Peer>().and_then(Peer::source);
    // Health probes and operators are answered even beyond the bound.
    let is_bounded = request.uri().path().starts_with("/v1/") && !is_by_admin_socket(request.extensions());
    if is_bounded {
        match door.at_work.enter(source) {
            // The permit is kept until the request is answered.
            Ok(pass) => request.extensions_mut().insert(pass),
            Err(problem) => return door.finish(problem.into_response()),
        };
    }
    // The path is copied only when it is logged, because a request may wait for hours.
    let path = tracing::enabled!(Level::DEBUG).then(|| request.uri().path().to_owned());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    request.extensions_mut().insert(arrival);
    if let (Ok(Some(credential)), Some(peer)) = (&proven, request.extensions().get::<Peer>()) {
        peer.asks_for(credential);
    }
    // A malformed header is refused by the handler that needs it.
    if let Ok(credential) = proven {
        request.extensions_mut().insert(Proven(credential));
    }
    let response = long_answers::with_place(&door, &method, source, next.run(request).await);
    let response = door.finish(response);
    let elapsed = arrival.0.elapsed();
    times.note(route.as_ref(), &method, elapsed);
    let elapsed_ms = elapsed.as_millis();
    debug!(%method, path, status = response.status().as_u16(), elapsed_ms, "request");
    response
}

/// Rendering of error answers, and the headers that every answer has.
impl Door {
    /// Renders the refusal of a connection, which is sent before any request was read.
    pub(crate) fn unasked(&self, problem: Problem) -> Response {
        let zxid = self.replica.state().last_zxid();
        let mut response = problem.render(zxid);
        self.mark(response.headers_mut(), zxid);
        response
    }

    /// Renders the answer's problem, if there is one, and adds the headers that every answer has.
    fn finish(&self, response: Response) -> Response {
        let (mut parts, body) = response.into_parts();
        let mut response = match parts.extensions.remove::<Problem>() {
            None => {
                self.count(None);
                Response::from_parts(parts, body)
            }
            Some(problem) => {
                self.count(Some(problem.outcome));
                if let Some(bound) = problem.bound {
                    self.replica.count_refused(bound);
                }
                let at = problem.zxid;
                let state = self.replica.state();
                let problem = problem.of_a_full_state(&state).of_a_long_path(&state);
                let mut rendered = problem.render(self.replica.state().last_zxid());
                rendered.extensions_mut().extend(parts.extensions);
                if let Some(zxid) = at {
                    rendered.extensions_mut().insert(AtZxid(zxid));
                }
                // `Allow` and `Connection` were set by the code that made the problem.
                rendered.headers_mut().extend(parts.headers.into_iter().filter(|(name, _)| {
                    name.as_ref().is_some_and(|name| matches!(name.as_str(), "allow" | "connection"))
                }));
                rendered
            }
        };
        let zxid = match response.extensions().get::<AtZxid>() {
            Some(AtZxid(zxid)) => *zxid,
            None => self.replica.state().last_zxid(),
        };
        self.mark(response.headers_mut(), zxid);
        response
    }

    fn count(&self, outcome: Option<Outcome>) {
        let end = match outcome {
            None => RequestEnd::Done,
            Some(Outcome::Refused) => RequestEnd::Refused,
            Some(Outcome::Unavailable) => RequestEnd::Unavailable,
            Some(Outcome::Unknown) => RequestEnd::Unknown,
        };
        self.replica.count(Entrance::Http, end);
    }

    fn mark(&self, to: &mut HeaderMap, zxid: Zxid) {
        let leader = match self.replica.leader() {
            Some(leader) => HeaderValue::from(leader.id),
            None => HeaderValue::from_static("none"),
        };
        to.insert(HeaderName::from_static(headers::ZXID), HeaderValue::from(zxid.0));
        to.insert(HeaderName::from_static(headers::NODE), HeaderValue::from(self.node_id));
        to.insert(HeaderName::from_static(headers::LEADER), leader);
        // Answers show a state that changes at any time.
        to.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        to.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        to.insert(CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
        if self.is_closing() {
            to.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

fn head_problem(config: &RestConfig, times: &RouteTimes, request: &Request) -> Option<Problem> {
    let (uri, headers) = (request.uri(), request.headers());
    let uri_bytes = uri.path_and_query().map_or(0, |text| text.as_str().len());
    if uri_bytes > config.uri_bytes_max {
        let detail = format!("at most {} bytes", config.uri_bytes_max);
        return Some(Problem::new(ProblemType::UriTooLong, detail));
    }
    let header_bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers.len() > config.headers_max || header_bytes > config.header_bytes_max {
        let detail = format!("at most {} headers and {} bytes of them", config.headers_max, config.header_bytes_max);
        return Some(Problem::new(ProblemType::HeadersTooLarge, detail));
    }
    let method = request.method();
    let unread = unread_condition(method, uri.path(), headers)?;
    // A request without an operation is answered with 404 or 405.
    let has_operation = times.has(request.extensions().get::<MatchedPath>(), method);
    has_operation.then(|| Problem::bad(unread.as_str(), format!("{method} of this path does not take this header")))
}

/// Headers that make a request conditional or ask for a part of the content. A route that does not
/// read such a header refuses it, because ignoring it would do more than the client asked for.
pub(crate) static CONDITIONS: [HeaderName; 9] = [
    header::IF_NONE_MATCH,
    header::IF_MATCH,
    HeaderName::from_static(headers::IF_LOCK),
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
    header::RANGE,
    header::CONTENT_RANGE,
    header::CONTENT_ENCODING,
];

/// Returns the first of the [`CONDITIONS`] that the request has and its route does not read.
fn unread_condition<'a>(method: &Method, path: &str, headers: &'a HeaderMap) -> Option<&'a HeaderName> {
    // A fence check has the headers of the request that the proxy asks about.
    if path == FENCE || path.starts_with(BEHIND_FENCE) {
        return None;
    }
    let is_znode = path.strip_prefix(znodes::ROUTE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let read: &[HeaderName] = match *method {
        // No guard is checked with what is no request to the state machine.
        _ if path.starts_with("/v1/admin/") => &[],
        _ if path.starts_with("/v1/sessions/") && path.ends_with("/keepalive") => &[],
        Method::PUT if is_znode => &CONDITIONS[..3],
        Method::DELETE if is_znode => &CONDITIONS[1..3],
        Method::GET | Method::HEAD => &[],
        _ => &CONDITIONS[2..3],
    };
    headers.keys().find(|name| CONDITIONS.contains(name) && !read.contains(name))
}
