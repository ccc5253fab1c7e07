//! Which handler answers what.

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, any, get, post, put};
use replica::Replica;
use tokio_util::sync::CancellationToken;
use zlock_client::api::ProblemType;

use crate::api::{
    acquire, backup, drain, elections, fence, groups, health, locks, members, metrics, multilocks, node, release,
    revoke, sessions, simple_locks, txn, upgrade, znodes,
};
use crate::http::layer::at_the_door;
use crate::problem::Problem;
use crate::request::door::Door;
use crate::request::operator::operators_only;
use crate::request::query;
use crate::{RestConfig, openapi};

/// All routes, for a server of the caller's own: the bounds of connections are [`crate::serve`]'s.
pub fn router(replica: Replica, config: RestConfig) -> Router {
    routes(Door::new(replica, config, CancellationToken::new()))
}

/// The OpenAPI document that `/openapi.json` answers.
pub fn openapi_document() -> &'static serde_json::Value {
    openapi::document()
}

/// The handlers of one path.
type Handlers = fn() -> MethodRouter<Door>;

/// What is for operators, and for no other client: every route under `/v1/admin/`, and no other. A
/// test asks for each of them as each kind of caller.
pub(crate) const ADMIN: &[(&str, Handlers)] = &[
    ("/v1/admin/backup", || get(backup::save)),
    ("/v1/admin/drain", || get(drain::look).put(drain::begin).delete(drain::end)),
    ("/v1/admin/leader", || put(members::transfer)),
    ("/v1/admin/members", || get(members::look).post(members::add)),
    ("/v1/admin/members/{id}", || put(members::update).delete(members::remove)),
    ("/v1/admin/members/{id}/promote", || post(members::promote)),
    ("/v1/admin/upgrade", || get(upgrade::look).put(upgrade::finalize)),
];

/// The routes of [`ADMIN`], behind the layer that lets operators in.
fn admin(door: &Door) -> Router<Door> {
    let routes = ADMIN.iter().fold(Router::new(), |router, (path, handlers)| router.route(path, handlers()));
    // What is not there is told to operators only, too.
    let routes = routes.route("/v1/admin", any(no_route));
    let routes = routes.route("/v1/admin/", any(no_route)).route("/v1/admin/{*rest}", any(no_route));
    routes.method_not_allowed_fallback(no_method).layer(from_fn_with_state(door.clone(), operators_only))
}

pub(crate) fn routes(door: Door) -> Router {
    let znode = || post(znodes::create).get(znodes::read).put(znodes::set).delete(znodes::delete);
    Router::new()
        .route("/v1/sessions", post(sessions::open).get(sessions::list))
        .route("/v1/sessions/{id}", get(sessions::one).delete(sessions::close))
        .route("/v1/sessions/{id}/keepalive", post(sessions::keep_alive))
        .route("/v1/znodes", znode())
        .route("/v1/znodes/", znode())
        .route("/v1/znodes/{*path}", znode())
        .route("/v1/txn", post(txn::apply))
        .route("/v1/locks", get(locks::list))
        .route("/v1/locks/", get(locks::list))
        .route(
            "/v1/locks/{*path}",
            post(acquire::acquire).get(locks::queue).put(locks::set).delete(release::release_held),
        )
        .route("/v1/revoke/{*path}", post(revoke::revoke))
        .route("/v1/tickets/{*ticket}", get(locks::ticket).delete(release::release))
        .route("/v1/fence", get(fence::check))
        .route("/v1/fence/", any(fence::check_behind))
        .route("/v1/fence/{*request}", any(fence::check_behind))
        .route(
            "/v1/elections/{*path}",
            post(elections::campaign).get(elections::observe).put(elections::proclaim).delete(elections::resign),
        )
        .route("/v1/multilocks", post(multilocks::acquire))
        .route("/v1/multilocks/{*ticket}", get(multilocks::ticket))
        .route(
            "/v1/simple-locks/{*path}",
            post(simple_locks::acquire).get(simple_locks::look).delete(simple_locks::release),
        )
        .route("/v1/groups/{*path}", post(groups::join).get(groups::list).delete(groups::leave))
        .route("/v1/cluster", get(node::cluster))
        .route("/livez", get(node::live))
        .route("/v1/cluster/health", get(health::cluster))
        .route("/readyz", get(health::ready))
        .route("/health/leader", get(health::leader).options(health::leader))
        .route("/health/voter", get(health::voter).options(health::voter))
        .route("/health/serving", get(health::serving).options(health::serving))
        .route("/version", get(node::version))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(openapi::answer))
        .merge(admin(&door))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(door.clone(), at_the_door))
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
    Problem::new(ProblemType::NoRoute, StatusCode::NOT_FOUND, detail)
}

async fn no_method(method: Method, uri: Uri) -> Problem {
    let detail = match missing(&uri) {
        Some(noun) => format!("{method} needs the path of a {noun} at the end of the URL"),
        None => format!("no {method} here: see the header Allow (curl -i shows it), and /openapi.json"),
    };
    Problem::new(ProblemType::MethodNotAllowed, StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// Resources under `/v1` that clients use most.
const RESOURCES: [&str; 10] =
    ["cluster", "elections", "fence", "groups", "locks", "multilocks", "sessions", "tickets", "txn", "znodes"];

fn meant_resource(path: &str) -> Option<&'static str> {
    let name = path.trim_start_matches('/').split('/').find(|name| !matches!(*name, "v1" | "v2"))?;
    // Another version, or none, of a name that is right.
    query::meant(name, RESOURCES.into_iter()).filter(|known| !path.starts_with(&format!("/v1/{known}/")))
}

/// What an URL ought to have named, when it ends before: the variable of a script was empty.
fn missing(uri: &Uri) -> Option<&'static str> {
    match uri.path().trim_end_matches('/') {
        "/v1/locks" => Some("lock"),
        "/v1/tickets" => Some("ticket"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
