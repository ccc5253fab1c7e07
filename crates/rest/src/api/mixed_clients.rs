//! Clients in one queue that do not see each other, as a warning on answers about the lock.

use axum::http::HeaderName;
use axum::response::Response;
use zlock_client::api::{BlindSpot, headers};
use znode::lock::{self, Naming};
use znode::{Identity, State, ZPath};

use crate::request::call::with_header;

pub(crate) fn blind_spots(state: &State, lock: &ZPath) -> Vec<BlindSpot> {
    let word =
        |spot: lock::BlindSpot| BlindSpot { clients: name(spot.clients).into(), unseen: name(spot.unseen).into() };
    lock::lint(state, lock).into_iter().map(word).collect()
}

/// Adds the header, if there is something to warn of, and the request may know who queues.
pub(crate) fn warn(response: Response, state: &State, lock: &ZPath, identities: &[Identity]) -> Response {
    let spots = blind_spots(state, lock);
    if !spots.is_empty() && !state.may_read(lock, identities) {
        return response;
    }
    if spots.is_empty() {
        return response;
    }
    let texts: Vec<String> =
        spots.iter().map(|spot| format!("{} does not see {}", spot.clients, spot.unseen)).collect();
    with_header(response, HeaderName::from_static(headers::MIXED_FAMILIES), texts.join(", "))
}

fn name(naming: Naming) -> &'static str {
    match naming {
        Naming::Curator => "curator",
        Naming::CuratorReadWrite => "curator-rw",
        Naming::CuratorLatch => "curator-latch",
        Naming::Kazoo => "kazoo",
        Naming::Recipe => "zookeeper-recipe",
        Naming::Dash | Naming::Other => "other",
    }
}
