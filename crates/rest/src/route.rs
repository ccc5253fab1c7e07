//! A row of the one list of operations, from which both the router and the OpenAPI document are
//! made.

use std::sync::Arc;

use axum::Router;
use serde_json::Value;
use utoipa::openapi::{RefOr, Schema};
use utoipa_axum::router::UtoipaMethodRouter;
use zlock_client::api::ProblemType;

use crate::request::door::Door;

/// An operation of the API. Method, path, parameters and answers are those of its handler's
/// annotation, where `{*path}` stands for all names that follow.
pub(crate) struct Route {
    pub(crate) parts: fn() -> UtoipaMethodRouter<Arc<Door>>,
    /// The same at other paths, too, that the document does not have.
    pub(crate) spellings: &'static [&'static str],
    /// No request without a session gets through.
    pub(crate) in_session: bool,
    /// Reads the state: `consistency` and the smallest zxid go with it.
    pub(crate) reads: bool,
    /// Headers that other requests of its method may have, and this one may not.
    pub(crate) without: &'static [&'static str],
    /// What it may answer beyond what its method says.
    pub(crate) problems: &'static [&'static [ProblemType]],
    /// What a request must keep beyond the schemas: parts of what the refusal says.
    pub(crate) rules: &'static [&'static str],
}

pub(crate) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
pub(crate) const IF_LOCK: &str = "If-Lock";

/// The row of a handler that has an annotation.
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

    /// The operation by path and method, and the schemas that it names.
    pub(crate) fn described(&self) -> (Value, Vec<(String, RefOr<Schema>)>) {
        let (schemas, paths, _) = (self.parts)();
        (serde_json::to_value(paths).expect("its keys are texts"), schemas)
    }
}
