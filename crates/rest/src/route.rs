//! [`Route`]: the description of one operation, from which the router and the OpenAPI document are
//! made.

use std::sync::Arc;

use axum::Router;
use axum::http::Method;
use serde_json::Value;
use utoipa::openapi::{RefOr, Schema};
use utoipa_axum::router::UtoipaMethodRouter;
use zlock_client::api::ProblemType;

use crate::request::door::Door;

/// An operation of the API. The utoipa annotation of its handler has the method, path, parameters
/// and answers; `{*path}` in a path takes all segments that follow.
pub(crate) struct Route {
    pub(crate) parts: fn() -> UtoipaMethodRouter<Arc<Door>>,
    /// Further paths of the operation, which the OpenAPI document leaves out.
    pub(crate) spellings: &'static [&'static str],
    /// True if every request must have a session.
    pub(crate) in_session: bool,
    /// True if the operation reads the state, and therefore takes `consistency` and
    /// `Zlock-Min-Zxid`.
    pub(crate) reads: bool,
    /// Headers that this operation refuses, although operations with its HTTP method generally take
    /// them.
    pub(crate) without: &'static [&'static str],
    /// Errors of the operation besides those that every operation of its HTTP method can have.
    pub(crate) problems: &'static [&'static [ProblemType]],
    /// Excerpts from the texts of this operation's 400 answers, for rules that a JSON schema cannot
    /// express. The OpenAPI document lists them as `x-rules`.
    pub(crate) rules: &'static [&'static str],
}

pub(crate) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
pub(crate) const IF_LOCK: &str = "If-Lock";

/// Makes the [`Route`] of a handler with a utoipa annotation.
macro_rules! route {
    ($handler:ident) => {
        $crate::route::Route::new(|| utoipa_axum::routes!($handler))
    };
}
pub(crate) use route;

impl Route {
    pub(crate) const fn new(parts: fn() -> UtoipaMethodRouter<Arc<Door>>) -> Route {
        Route { parts, spellings: &[], in_session: false, reads: false, without: &[], problems: &[], rules: &[] }
    }

    pub(crate) fn is_for_operators(&self) -> bool {
        (self.parts)().1.paths.keys().all(|path| path.starts_with("/v1/admin/"))
    }

    pub(crate) fn add_to(&self, router: Router<Arc<Door>>) -> Router<Arc<Door>> {
        let (_, paths, handler) = (self.parts)();
        let paths = paths.paths.keys().map(String::as_str).chain(self.spellings.iter().copied());
        paths.fold(router, |router, path| router.route(path, handler.clone()))
    }

    /// Returns a path, a method and an operation id for each path at which the operation is served.
    pub(crate) fn operations(&self) -> Vec<(String, Method, String)> {
        let (_, paths, _) = (self.parts)();
        let mut operations = Vec::new();
        for (path, item) in paths.paths {
            let methods = [
                (Method::GET, item.get),
                (Method::PUT, item.put),
                (Method::POST, item.post),
                (Method::PATCH, item.patch),
                (Method::DELETE, item.delete),
            ];
            for (method, operation) in methods {
                let Some(id) = operation.and_then(|operation| operation.operation_id) else { continue };
                let paths = self.spellings.iter().map(|path| (*path).to_owned()).chain([path.clone()]);
                operations.extend(paths.map(|path| (path, method.clone(), id.clone())));
            }
        }
        operations
    }

    /// Returns the operation's OpenAPI description, by path and method, and the schemas to which it
    /// refers.
    pub(crate) fn described(&self) -> (Value, Vec<(String, RefOr<Schema>)>) {
        let (schemas, paths, _) = (self.parts)();
        (serde_json::to_value(paths).expect("its keys are texts"), schemas)
    }
}
