//! `/openapi.json`: made from the handlers' annotations, and completed here.
//!
//! | file | has |
//! |---|---|
//! | `operations.rs`, `parameters.json`, `examples.json` | parameters by name, bodies, headers, who is let in, examples |
//! | `problems.rs` | the problems that each operation may answer |
//! | `schemas.rs`, `schemas.json` | formats and patterns of fields |

mod operations;
mod problems;
mod schemas;

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};
use utoipa::OpenApi as _;
use zlock_client::api::Problem;

use crate::api::{
    acquire, backup, drain, elections, fence, groups, health, locks, members, metrics, multilocks, node, release,
    revoke, sessions, simple_locks, txn, upgrade, znodes,
};
use crate::http::long_answers::OfTheProgram;
use crate::openapi;
use crate::request::call::{Answer, Call};
use crate::request::door::AtZxid;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "zlock", description = "Locks and znodes over HTTP.", license(name = "Apache-2.0")),
    paths(
        sessions::open,
        sessions::list,
        sessions::one,
        sessions::close,
        sessions::keep_alive,
        znodes::create,
        znodes::read,
        znodes::set,
        znodes::delete,
        txn::apply,
        acquire::acquire,
        locks::queue,
        locks::set,
        locks::list,
        locks::ticket,
        release::release,
        release::release_held,
        fence::check,
        elections::campaign,
        elections::observe,
        elections::proclaim,
        elections::resign,
        multilocks::acquire,
        multilocks::ticket,
        simple_locks::acquire,
        simple_locks::look,
        simple_locks::release,
        groups::join,
        groups::leave,
        groups::list,
        revoke::revoke,
        backup::save,
        drain::look,
        drain::begin,
        drain::end,
        members::look,
        members::add,
        members::promote,
        members::update,
        members::remove,
        members::transfer,
        upgrade::look,
        upgrade::finalize,
        node::cluster,
        node::live,
        health::cluster,
        health::ready,
        health::leader,
        health::voter,
        health::serving,
        node::version,
        metrics::metrics,
        openapi::answer
    ),
    components(schemas(Problem))
)]
struct Document;

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| completed(serde_json::to_value(Document::openapi()).expect("its keys are texts")));
static TEXT: LazyLock<Bytes> = LazyLock::new(|| format!("{}\n", *DOCUMENT).into());

fn completed(mut document: Value) -> Value {
    document["servers"] = json!([{"url": "/", "description": "the node that answered this document"}]);
    document["components"]["securitySchemes"] = json!({
        "session": {"type": "apiKey", "in": "header", "name": "Zlock-Session",
            "description": "`<id>.<secret>`, as the open of the session answered it; counts as its heartbeat"},
        "digest": {"type": "http", "scheme": "basic",
            "description": "a user and password, for ACL entries of the scheme `digest` and for the super user"},
        "certificate": {"type": "mutualTLS", "description": "its subject, for ACL entries of the scheme `x509`"},
    });
    let mut bodies = Vec::new();
    for item in
        document.get_mut("paths").and_then(Value::as_object_mut).into_iter().flat_map(|paths| paths.values_mut())
    {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            bodies.extend(operations::complete(method, operation));
        }
    }
    if let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) {
        schemas.extend(bodies);
        schemas::complete(schemas);
    }
    document
}

/// The description of this API.
pub(crate) fn document() -> &'static Value {
    &DOCUMENT
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", operation_id = "nodeOpenapi", tag = "node",
    responses((status = 200, description = "OpenAPI 3.1", body = Value)))]
pub(crate) async fn answer(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let mut response = Response::new(Body::from(TEXT.clone()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.extensions_mut().insert(AtZxid(call.door.replica().state().last_zxid()));
    // It is kept once, however many read it slowly.
    response.extensions_mut().insert(OfTheProgram);
    Ok(response)
}
