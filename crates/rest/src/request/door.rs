//! What all requests share, and the layer around every route.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use replica::{Entrance, Replica, RequestEnd};
use tls::Rates;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use zlock_client::api::{Outcome, ProblemType, headers};
use znode::Zxid;

use crate::RestConfig;
use crate::api::fence;
use crate::api::node::Digests;
use crate::http::bodies::Bodies;
use crate::http::{long_answers, origin};
use crate::problem::Problem;
use crate::request::caller::{Arrival, Proven, credential};
use crate::request::cursors::Cursors;

/// Browsers give an answer to no page of another place, also not as a picture.
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The state behind the routes. Clones are the same door.
#[derive(Clone)]
pub(crate) struct Door {
    inner: Arc<Inner>,
}

struct Inner {
    replica: Replica,
    config: RestConfig,
    node_id: u64,
    waits: Arc<Semaphore>,
    bodies: Bodies,
    cursors: Cursors,
    digests: Digests,
    session_rates: Rates,
    stopping: CancellationToken,
    draining: AtomicBool,
}

/// Where in history an answer stands; becomes the header `Zlock-Zxid`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtZxid(pub(crate) Zxid);

impl Door {
    pub(crate) fn new(replica: Replica, config: RestConfig, stopping: CancellationToken) -> Door {
        let node_id = replica.status().node_id;
        let waits = Arc::new(Semaphore::new(config.waits_max.min(Semaphore::MAX_PERMITS)));
        let (bodies, digests) = (Bodies::new(config.bodies_bytes_max), Digests::default());
        let session_rates = Rates::new(config.session_rate_max);
        let (cursors, draining) = (Cursors::default(), AtomicBool::new(false));
        let inner =
            Inner { replica, config, node_id, waits, bodies, cursors, digests, session_rates, stopping, draining };
        Door { inner: Arc::new(inner) }
    }

    pub(crate) fn replica(&self) -> &Replica {
        &self.inner.replica
    }

    pub(crate) fn config(&self) -> &RestConfig {
        &self.inner.config
    }

    /// Resolves when the door closes.
    pub(crate) async fn stopped(&self) {
        self.inner.stopping.cancelled().await;
    }

    /// From here on the node is not ready, and each connection ends with its next answer.
    pub(crate) fn drain(&self) {
        self.inner.draining.store(true, Ordering::Relaxed);
    }

    /// Whether the door is about to close.
    pub(crate) fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::Relaxed)
    }

    /// A place among those who wait.
    ///
    /// # Errors
    /// 429 when there is none; 503 when the door closes, which takes all places.
    pub(crate) fn wait_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        if self.inner.stopping.is_cancelled() {
            return Err(Problem::stopping());
        }
        self.inner.waits.clone().try_acquire_owned().map_err(|_| Problem::too_many("waiting requests"))
    }

    /// How many wait.
    pub(crate) fn waits(&self) -> usize {
        let all = self.config().waits_max.min(Semaphore::MAX_PERMITS);
        all.saturating_sub(self.inner.waits.available_permits())
    }

    /// Resolves when nobody waits any more, and nothing is being withdrawn.
    pub(crate) async fn quiet(&self) {
        let all = u32::try_from(self.config().waits_max.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        // It is never closed; the permits go back at once.
        let _ = self.inner.waits.acquire_many(all).await;
    }

    /// Memory for bodies.
    pub(crate) fn bodies(&self) -> &Bodies {
        &self.inner.bodies
    }

    /// Where lists go on behind names that are not for the request to know.
    pub(crate) fn cursors(&self) -> &Cursors {
        &self.inner.cursors
    }

    /// Digests of the state.
    pub(crate) fn digests(&self) -> &Digests {
        &self.inner.digests
    }

    /// How often one address may open a session.
    pub(crate) fn session_rates(&self) -> &Rates {
        &self.inner.session_rates
    }

    /// When a write that begins now is given up.
    pub(crate) fn propose_deadline(&self) -> Instant {
        Instant::now() + std::time::Duration::from_millis(self.config().propose_timeout_ms)
    }

    /// When a read that begins now is given up.
    pub(crate) fn read_deadline(&self) -> Instant {
        Instant::now() + std::time::Duration::from_millis(self.config().read_timeout_ms)
    }

    /// Puts on an answer what every answer has.
    fn finish(&self, response: Response) -> Response {
        let (mut parts, body) = response.into_parts();
        let mut response = match parts.extensions.remove::<Problem>() {
            None => {
                self.count(None);
                Response::from_parts(parts, body)
            }
            Some(problem) => {
                self.count(Some(problem.outcome()));
                let at = problem.zxid;
                let mut rendered = problem.render(self.replica().state().last_zxid());
                rendered.extensions_mut().extend(parts.extensions);
                if let Some(zxid) = at {
                    rendered.extensions_mut().insert(AtZxid(zxid));
                }
                // `Allow` and `Connection` were put there by those who met the problem.
                rendered.headers_mut().extend(parts.headers.into_iter().filter(|(name, _)| {
                    name.as_ref().is_some_and(|name| matches!(name.as_str(), "allow" | "connection"))
                }));
                rendered
            }
        };
        let zxid = match response.extensions().get::<AtZxid>() {
            Some(AtZxid(zxid)) => *zxid,
            None => self.replica().state().last_zxid(),
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
        self.replica().count(Entrance::Http, end);
    }

    fn mark(&self, to: &mut HeaderMap, zxid: Zxid) {
        let leader = match self.replica().leader() {
            Some(leader) => HeaderValue::from(leader.id),
            None => HeaderValue::from_static("none"),
        };
        to.insert(HeaderName::from_static(headers::ZXID), HeaderValue::from(zxid.0));
        to.insert(HeaderName::from_static(headers::NODE), HeaderValue::from(self.inner.node_id));
        to.insert(HeaderName::from_static(headers::LEADER), leader);
        to.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        to.insert(CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
        if self.is_draining() {
            to.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// The outermost layer: bounds of the head, pages of elsewhere, the heartbeat of a whole request,
/// the headers of every answer.
pub(crate) async fn at_the_door(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let arrival = Arrival(Instant::now());
    if let Some(problem) = head_problem(door.config(), request.uri(), request.headers()) {
        return door.finish(problem.into_response());
    }
    // Before anything is done for it, the heartbeat included.
    if let Some(problem) = origin::problem(door.config(), &request) {
        return door.finish(problem.into_response());
    }
    let proven = credential(request.headers());
    // Of one that has a body, the session is heard when that is whole. Behind a question about a
    // fence it is another request's.
    if let Ok(Some(credential)) = proven
        && request.body().is_end_stream()
        && !request.uri().path().starts_with(fence::BEHIND)
    {
        door.replica().touch_soon(credential);
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(arrival);
    // What is malformed is told where it is needed.
    if let Ok(credential) = proven {
        request.extensions_mut().insert(Proven(credential));
    }
    let response = long_answers::with_place(&door, &method, next.run(request).await);
    let response = door.finish(response);
    let elapsed_ms = arrival.0.elapsed().as_millis();
    debug!(%method, path, status = response.status().as_u16(), elapsed_ms, "request");
    response
}

fn head_problem(config: &RestConfig, uri: &Uri, headers: &HeaderMap) -> Option<Problem> {
    let uri_bytes = uri.path_and_query().map_or(0, |text| text.as_str().len());
    if uri_bytes > config.uri_bytes_max {
        let detail = format!("at most {} bytes", config.uri_bytes_max);
        return Some(Problem::new(ProblemType::UriTooLong, StatusCode::URI_TOO_LONG, detail));
    }
    let header_bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers.len() > config.headers_max || header_bytes > config.header_bytes_max {
        let detail = format!("at most {} headers and {} bytes of them", config.headers_max, config.header_bytes_max);
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Some(Problem::new(ProblemType::HeadersTooLarge, status, detail));
    }
    None
}
