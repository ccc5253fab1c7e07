//! The router and the OpenAPI document, both made of the [`Route`]s in the files of `api/`.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{any, options};
use bytes::Bytes;
use replica::Replica;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use zlock_client::api::ProblemType;

use crate::api::{self, fence, health};
use crate::http::layer::at_the_door;
use crate::http::long_answers::OfTheProgram;
use crate::http::route_times::RouteTimes;
use crate::problem::Problem;
use crate::request::call::{self, Answer, Call};
use crate::request::door::Door;
use crate::request::operator::{OperatorGate, operators_only};
use crate::request::query;
use crate::route::{Route, route};
use crate::{RestConfig, openapi};

const ROUTES: &[Route] = &[route!(answer)];

/// Returns the [`Route`] of every operation, each once.
fn rows() -> impl Iterator<Item = &'static Route> {
    api::ROUTES.iter().copied().flatten().chain(ROUTES)
}

/// Returns the router with all routes, for a caller that runs its own server. Unlike
/// [`crate::serve`], the router does not bound the number of connections.
pub fn router(replica: Replica, config: RestConfig) -> Router {
    routes(Door::new(replica, config, CancellationToken::new()))
}

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| openapi::document(rows()));
static TEXT: LazyLock<Bytes> = LazyLock::new(|| format!("{}\n", *DOCUMENT).into());

/// Returns the OpenAPI document that `/openapi.json` answers.
pub fn openapi_document() -> &'static Value {
    &DOCUMENT
}

/// Shows the OpenAPI document.
#[utoipa::path(get, path = "/openapi.json", operation_id = "nodeOpenapi", tag = "node",
    responses((status = 200, description = "OpenAPI 3.1", body = Value, example = json!({"openapi": "3.1.0",
        "info": {"title": "zlock", "version": "0.1.0"}, "paths": {}}))))]
async fn answer(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    // The first request makes the document, which takes 25 ms.
    let text = call.door.long_work.run(call.source(), || Ok(TEXT.clone())).await?;
    let zxid = call.door.replica.state().last_zxid();
    let mut response = call::answer(StatusCode::OK, zxid, "application/json", text);
    // All readers share one copy of the text, so it is not counted among the long answers.
    response.extensions_mut().insert(OfTheProgram);
    Ok(response)
}

/// Makes the routes under `/v1/admin/`, with the layer that refuses callers who are no operators.
fn admin(door: &Arc<Door>) -> Router<Arc<Door>> {
    let routes = rows().filter(|row| row.is_for_operators()).fold(Router::new(), |router, row| row.add_to(router));
    // Callers who are no operators get 401 for a missing route, too.
    let routes = routes.route("/v1/admin", any(no_route));
    let routes = routes.route("/v1/admin/", any(no_route)).route("/v1/admin/{*rest}", any(no_route));
    routes.method_not_allowed_fallback(no_method).layer(from_fn_with_state(OperatorGate::new(door), operators_only))
}

pub(crate) fn routes(door: Arc<Door>) -> Router {
    let times = Arc::new(RouteTimes::new(&door.replica, rows()));
    let for_all = rows().filter(|row| !row.is_for_operators()).fold(Router::new(), |router, row| row.add_to(router));
    // Routes that the OpenAPI document leaves out: the requests of proxies about other requests,
    // with any method, and health probes with OPTIONS, a method that no client uses.
    for_all
        .route("/v1/fence/", any(fence::check_behind))
        .route("/v1/fence/{*request}", any(fence::check_behind))
        .route("/health/leader", options(health::leader))
        .route("/health/voter", options(health::voter))
        .route("/health/serving", options(health::serving))
        .merge(admin(&door))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state((door.clone(), times), at_the_door))
        .with_state(door)
}

async fn no_route(uri: Uri) -> Problem {
    let detail = match (missing(&uri), uri.path()) {
        (Some(noun), _) => format!("the path of a {noun} is missing at the end of the URL"),
        (None, path) if path.len() > 1 && path.ends_with('/') => "leave out the slash at the end of the URL".to_owned(),
        (None, path) => match meant_resource(path) {
            Some(known) => format!("is /v1/{known} meant? See /openapi.json for what there is"),
            None => "see /openapi.json for what there is".to_owned(),
        },
    };
    Problem::new(ProblemType::NoRoute, detail)
}

async fn no_method(method: Method, uri: Uri) -> Problem {
    let detail = match missing(&uri) {
        Some(noun) => format!("{method} needs the path of a {noun} at the end of the URL"),
        None => format!("no {method} here: see the header Allow (curl -i shows it), and /openapi.json"),
    };
    Problem::new(ProblemType::MethodNotAllowed, detail)
}

/// Resources under `/v1` that are suggested when a URL has a misspelled name.
const RESOURCES: [&str; 12] = [
    "cluster",
    "elections",
    "fence",
    "groups",
    "history",
    "locks",
    "multilocks",
    "sessions",
    "settings",
    "tickets",
    "txn",
    "znodes",
];

fn meant_resource(path: &str) -> Option<&'static str> {
    let name = path.trim_start_matches('/').split('/').find(|name| !matches!(*name, "v1" | "v2"))?;
    // The resource's name is right, and the version before it is wrong or missing.
    query::meant(name, RESOURCES.into_iter()).filter(|known| !path.starts_with(&format!("/v1/{known}/")))
}

/// Returns the noun for the path that is missing at the end of a URL, as when a variable of a
/// script is empty: `lock` for `/v1/locks/`. `None` for any other URL.
fn missing(uri: &Uri) -> Option<&'static str> {
    match uri.path().trim_end_matches('/') {
        "/v1/locks" => Some("lock"),
        "/v1/tickets" => Some("ticket"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
