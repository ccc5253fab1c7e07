//! Digests of the state, which cost much.

use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use zlock_client::api::StateDigest;

/// Digests of the state: one is made at a time, and the last one is kept.
pub(crate) struct Digests {
    pub(crate) turn: Arc<Semaphore>,
    pub(crate) last: Arc<Mutex<Option<StateDigest>>>,
}

impl Default for Digests {
    fn default() -> Digests {
        Digests { turn: Arc::new(Semaphore::new(1)), last: Arc::default() }
    }
}
