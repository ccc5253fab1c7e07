//! `?watch=`: a long poll for a znode's events after a zxid.

use std::time::Duration;

use axum::http::StatusCode;
use replica::{Consistency, EventKinds, EventQuery, WatchKey};
use tokio::time::Instant;
use zlock_client::api::Events;
use znode::{ZPath, Zxid};

use crate::api::convert;
use crate::problem::Problem;
use crate::request::call::{Answer, Call, json};

/// Waits for the first events after the zxid in the parameter `since`. A client that passes the
/// answer's `upto` as its next `since` misses no event.
pub(crate) async fn watch(mut call: Call, path: ZPath) -> Answer {
    let (key, kinds) = match call.query.take("watch")?.as_deref() {
        Some("data") => (WatchKey::Node(path), EventKinds::DATA),
        Some("exists") => (WatchKey::Node(path), EventKinds::EXISTS),
        Some("children") => (WatchKey::Children(path), EventKinds::CHILDREN),
        Some("subtree") => (WatchKey::Subtree(path), EventKinds::ALL),
        _ => return Err(Problem::bad("watch", "data, exists, children or subtree")),
    };
    let wait_ms = call.query.duration_ms("wait", call.door.config.wait_max_ms)?.unwrap_or(0);
    let since: Option<u64> = call.query.get("since")?;
    let deadline = call.arrived + Duration::from_millis(wait_ms);
    let since = match since {
        Some(since) => {
            // By default, the node answers with the events that it has applied, and waits for more.
            if call.query.has("consistency") {
                call.read().await?;
            } else if call.caller.min_zxid > call.door.replica.state().last_zxid() {
                call.state_with(call.caller.min_zxid).await?;
            }
            std::mem::take(&mut call.query).finish()?;
            check_committed(&call, Zxid(since)).await?;
            Zxid(since)
        }
        // Without `since`, events count from the state at the time of the request.
        None => {
            let state = call.read().await?;
            std::mem::take(&mut call.query).finish()?;
            state.last_zxid()
        }
    };
    let _permit = if wait_ms > 0 { Some(call.door.wait_permit()?) } else { None };
    let _waiting = if wait_ms > 0 { call.waits() } else { None };
    call.forget_head();
    // The identities restrict the events to znodes that the request may read.
    let query = EventQuery { key, kinds, since, reader: Some(&call.identities) };
    let events = call.door.replica.events(query, deadline.max(Instant::now()));
    let batch = tokio::select! {
        batch = events => batch?,
        () = call.door.stopped() => return Err(Problem::stopping()),
    };
    let events = batch.events.into_iter().map(convert::event).collect();
    Ok(json(StatusCode::OK, batch.upto, &Events { events, upto: batch.upto.0 }))
}

/// Checks that the cluster has committed the zxid `since`, which may be beyond what this node has
/// applied.
///
/// # Errors
/// 410 when the cluster has not committed `since`; 503 when this node cannot find out.
async fn check_committed(call: &Call, since: Zxid) -> Result<(), Problem> {
    let replica = &call.door.replica;
    if since <= replica.state().last_zxid() {
        return Ok(());
    }
    let committed = replica.read(Consistency::Linearizable, call.door.read_deadline()).await?.last_zxid();
    if since <= committed { Ok(()) } else { Err(Problem::events_ahead(committed)) }
}
