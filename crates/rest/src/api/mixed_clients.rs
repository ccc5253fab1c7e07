//! Warning about mixed clients: kinds of clients in one lock's queue that do not count each other's
//! lock nodes, and so may hold the lock at once.

use axum::http::HeaderName;
use axum::response::Response;
use zlock_client::api::{MixedClients, headers};
use znode::lock;
use znode::{Identity, State, ZPath};

use crate::request::call::with_header;

pub(crate) fn of(state: &State, lock: &ZPath) -> Vec<MixedClients> {
    let shown = |mixed: lock::MixedPair| MixedClients {
        clients: mixed.clients.to_string(),
        unseen: mixed.unseen.to_string(),
        child: mixed.child.map(|name| name.to_string()),
    };
    lock::mixed_clients(state, lock).into_iter().map(shown).collect()
}

/// Adds a warning header if the lock's queue has clients of different libraries that do not see
/// each other's lock nodes. A request without read access to the lock gets no header.
pub(crate) fn warn(response: Response, state: &State, lock: &ZPath, identities: &[Identity]) -> Response {
    let mixed = lock::mixed_clients(state, lock);
    if mixed.is_empty() || !state.may_read(lock, identities) {
        return response;
    }
    let texts: Vec<String> = mixed.iter().map(lock::MixedPair::to_string).collect();
    with_header(response, HeaderName::from_static(headers::MIXED_CLIENTS), texts.join(", "))
}
