//! Operators: the callers that may use the routes under `/v1/admin/`.
//!
//! An operator is the super user, a client whose certificate has a subject listed in
//! `admin.operators`, or a caller on the admin socket. File permissions let only the node's own
//! user open that socket. The layer [`operators_only`] checks every route under `/v1/admin/`, so
//! that no handler can omit the check.

use std::fmt;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router};
use zlock_client::api::ProblemType;
use znode::SUPER;

use crate::RestConfig;
use crate::http::peer::Peer;
use crate::problem::Problem;
use crate::request::door::Door;
use crate::request::identity::{AUTHORIZATION, identities};

/// Operator that makes a request. Handlers of `/v1/admin/` write it to the program's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
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

/// Layer in front of every route under `/v1/admin/`, which refuses callers who are no operators.
pub(crate) async fn operators_only(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    match Operator::of(request.extensions(), request.headers(), &door.config) {
        Ok(operator) => {
            request.extensions_mut().insert(operator);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
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

impl FromRequestParts<Arc<Door>> for Operator {
    type Rejection = Problem;

    /// Returns the operator that the layer has found. A route without the layer refuses everybody.
    async fn from_request_parts(parts: &mut Parts, _: &Arc<Door>) -> Result<Operator, Problem> {
        parts.extensions.get().cloned().ok_or_else(|| refused(HOW))
    }
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
