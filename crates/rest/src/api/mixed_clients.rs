//! Warning, on answers about a lock, that clients in its queue do not see each other.

use axum::http::HeaderName;
use axum::response::Response;
use zlock_client::api::{BlindSpot, headers};
use znode::lock;
use znode::{Identity, State, ZPath};

use crate::request::call::with_header;

pub(crate) fn blind_spots(state: &State, lock: &ZPath) -> Vec<BlindSpot> {
    let spots = lock::lint(state, lock).into_iter();
    spots
        .map(|spot| BlindSpot {
            clients: spot.clients.to_string(),
            unseen: spot.unseen.to_string(),
            child: spot.child.map(|name| name.to_string()),
        })
        .collect()
}

/// Adds the header if the queue has blind spots and the request may read the lock.
pub(crate) fn warn(response: Response, state: &State, lock: &ZPath, identities: &[Identity]) -> Response {
    let spots = lock::lint(state, lock);
    if spots.is_empty() || !state.may_read(lock, identities) {
        return response;
    }
    let texts: Vec<String> = spots.iter().map(lock::BlindSpot::to_string).collect();
    with_header(response, HeaderName::from_static(headers::MIXED_FAMILIES), texts.join(", "))
}
