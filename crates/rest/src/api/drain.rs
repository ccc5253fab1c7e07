//! `/v1/admin/drain`: makes a running node give up leadership and report itself as not ready, so
//! that balancers send no new clients.

use axum::http::StatusCode;
use zlock_client::api::Drain;

use crate::request::call::{Answer, Call, json};
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[route!(look), route!(begin), route!(end)];

/// Tells whether an operator has drained this node.
#[utoipa::path(get, path = "/v1/admin/drain", operation_id = "adminDrainLook", tag = "admin",
    responses((status = 200,
        description = "Whether the node is drained", body = Drain, example = json!({"node_id": 1, "draining": false,
        "leads": true, "leader": 1}))))]
pub(crate) async fn look(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    Ok(told(&call))
}

/// Drains this node: it passes leadership on and reports itself as not ready, until the drain ends
/// or the node stops.
#[utoipa::path(put, path = "/v1/admin/drain", operation_id = "adminDrainBegin", tag = "admin",
    responses((status = 200, description = "The node is drained", body = Drain, example = json!({"node_id": 1,
        "draining": true, "leads": false, "leader": 2}))))]
pub(crate) async fn begin(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    call.door.replica.set_drained(true).await;
    Ok(told(&call))
}

/// Ends the drain of this node.
#[utoipa::path(delete, path = "/v1/admin/drain", operation_id = "adminDrainEnd", tag = "admin",
    responses((status = 200, description = "The node is no longer drained", body = Drain, example = json!({"node_id": 1,
        "draining": false, "leads": false, "leader": 2}))))]
pub(crate) async fn end(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    call.door.replica.set_drained(false).await;
    Ok(told(&call))
}

fn told(call: &Call) -> axum::response::Response {
    let status = call.door.replica.status();
    let leads = status.leader == Some(status.node_id);
    let drain =
        Drain { node_id: status.node_id, draining: call.door.replica.is_drained(), leads, leader: status.leader };
    json(StatusCode::OK, status.applied, &drain)
}
