//! OpenAPI document of `/openapi.json`, made of the [`Route`]s and of the utoipa annotations of
//! their handlers. This module completes it:
//!
//! | file | contents |
//! |---|---|
//! | `operations.rs` | headers, bodies with the parameters of the query, authentication |
//! | `problems.rs` | problems that many operations may answer |
//! | `schemas.rs` | patterns of fields by their names; enumerated parameters |
//! | `examples.rs` | names and numbers of several examples |

pub(crate) mod examples;
mod operations;
pub(crate) mod problems;
pub(crate) mod schemas;

use serde_json::{Value, json};
use utoipa::OpenApi as _;
use zlock_client::api::{PathInUrl, Problem, ZnodeName};

use crate::route::Route;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "zlock", description = "Locks and znodes over HTTP.", license(name = "Apache-2.0")),
    // The rows name the schemas of bodies. Schemas that only parameters use are listed here.
    components(schemas(PathInUrl, Problem, ZnodeName))
)]
struct Document;

/// Builds the OpenAPI document of an API with these routes.
pub(crate) fn document<'a>(routes: impl Iterator<Item = &'a Route>) -> Value {
    let mut head = Document::openapi();
    let mut described = Vec::new();
    for route in routes {
        let (paths, schemas) = route.described();
        head.components.get_or_insert_default().schemas.extend(schemas);
        described.push((route, paths));
    }
    let mut document = serde_json::to_value(head).expect("its keys are texts");
    document["servers"] = json!([{"url": "/", "description": "the node that answered this document"}]);
    document["components"]["securitySchemes"] = json!({
        "session_key": {"type": "apiKey", "in": "header", "name": "Zlock-Session-Key",
            "description": "`session_key` from the answer that opened the session; a request with it counts as a \
                heartbeat of the session"},
        "digest": {"type": "http", "scheme": "basic",
            "description": "a user and password, for ACL entries of the scheme `digest` and for the super user"},
        "certificate": {"type": "mutualTLS",
            "description": "a client certificate; its subject is for ACL entries of the scheme `x509`"},
    });
    let mut bodies = Vec::new();
    for (route, paths) in &described {
        for (path, item) in paths.as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                let mut operation = operation.clone();
                bodies.extend(operations::complete(route, method, &mut operation));
                // OpenAPI has no path parameter that spans several segments.
                document["paths"][path.replace("{*", "{")][method] = operation;
            }
        }
    }
    if let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) {
        schemas.extend(bodies);
        schemas::complete(schemas);
    }
    document
}
