//! Operators: the callers that may use the routes under `/v1/admin/`.
//!
//! An operator is the super user, a client whose certificate has a subject listed in
//! `admin.operators`, or a caller on the admin socket. File permissions let only the node's own
//! user open that socket. The layer [`operators_only`] checks and logs every request under
//! `/v1/admin/`, so that no handler can omit the check or the log line.

use std::fmt;
use std::sync::Arc;

use accept::Seldom;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router};
use tokio::time::Instant;
use tracing::{info, warn};
use zlock_client::api::ProblemType;
use znode::SUPER;

use crate::RestConfig;
use crate::http::peer::Peer;
use crate::problem::Problem;
use crate::request::door::Door;
use crate::request::identity::{AUTHORIZATION, identities};

/// Operator that makes a request.
#[derive(Debug)]
enum Operator {
    /// The super user, who has sent its password.
    Super,
    /// A client with this certificate subject.
    Subject(String),
    /// A caller on the admin socket.
    Socket,
}

/// Mark in the extensions of a request that came by the admin socket.
#[derive(Clone, Copy, Debug)]
struct ByAdminSocket;

/// Makes every caller of the router an operator, for a server that only operators reach, such as
/// the admin socket.
pub fn for_operators(router: Router) -> Router {
    router.layer(Extension(ByAdminSocket))
}

/// Tells whether the request came by the admin socket.
pub(crate) fn is_by_admin_socket(extensions: &Extensions) -> bool {
    extensions.get::<ByAdminSocket>().is_some()
}

/// State of [`operators_only`].
#[derive(Clone)]
pub(crate) struct OperatorGate {
    door: Arc<Door>,
    /// Limit on the log lines about callers who are no operators.
    refused: Arc<Seldom>,
}

impl OperatorGate {
    pub(crate) fn new(door: &Arc<Door>) -> OperatorGate {
        OperatorGate { door: Arc::clone(door), refused: Arc::default() }
    }
}

/// Layer in front of every route under `/v1/admin/`. It logs each request of an operator, and
/// refuses callers who are no operators.
pub(crate) async fn operators_only(State(gate): State<OperatorGate>, request: Request, next: Next) -> Response {
    let (method, uri) = (request.method(), request.uri());
    let addr = request.extensions().get::<Peer>().map(|peer| tracing::field::display(peer.addr()));
    // The operator and the path are logged as strings, which are quoted, so that no caller's text
    // can forge a log line.
    match Operator::of(request.extensions(), request.headers(), &gate.door.config) {
        Ok(operator) => {
            let (operator, path) = (operator.to_string(), uri.path_and_query().map_or("", |path| path.as_str()));
            info!(operator, addr, %method, path, "an operator's request");
            next.run(request).await
        }
        Err(problem) => {
            if let Some(times) = gate.refused.note(Instant::now()) {
                warn!(addr, %method, path = uri.path(), times, "a caller who is no operator was refused");
            }
            problem.into_response()
        }
    }
}

impl Operator {
    /// Returns the kind of operator that sent a request.
    ///
    /// # Errors
    /// 401 for any other caller, with the ways to become an operator.
    fn of(extensions: &Extensions, headers: &HeaderMap, config: &RestConfig) -> Result<Operator, Problem> {
        if is_by_admin_socket(extensions) {
            return Ok(Operator::Socket);
        }
        let identities = identities(AUTHORIZATION, extensions, headers, &config.super_digest)?;
        let subjects = identities.iter().filter(|identity| identity.scheme == "x509").map(|identity| &identity.id);
        if let Some(subject) = subjects.into_iter().find(|subject| config.operators.contains(subject)) {
            return Ok(Operator::Subject(subject.clone()));
        }
        if !identities.iter().any(|identity| identity.scheme == SUPER) {
            return Err(refused(HOW));
        }
        // Without TLS, others on the network could have read the password and used it themselves.
        match extensions.get::<Peer>() {
            Some(peer) if peer.is_secure() || peer.is_local() => Ok(Operator::Super),
            _ => Err(refused(READABLE)),
        }
    }
}

const HOW: &str = "this is for operators: ask on the node's machine by its admin socket (zlock --admin-socket PATH, \
    curl --unix-socket PATH; the key admin.socket names it), or with a certificate whose subject is listed in \
    admin.operators, or as the super user (admin.super_digest) with https or from the node's machine";
const READABLE: &str = "the super user's password came over plain HTTP from another machine, where others can read it: \
    ask with https, or on the node's machine, and choose another password";

fn refused(why: &str) -> Problem {
    Problem::new(ProblemType::OperatorOnly, why)
}

/// Formats the operator for the program's log.
impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operator::Super => f.write_str("super"),
            Operator::Subject(subject) => write!(f, "x509:{subject}"),
            Operator::Socket => f.write_str("admin-socket"),
        }
    }
}
