//! Costly results, such as digests of the state. They are made one at a time, and the last result
//! is kept.

use std::sync::Arc;

use accept::Mutex;
use tokio::sync::Semaphore;
use zlock_client::api::StateDigest;

/// Last result of costly work, and a semaphore whose one permit belongs to the request that does
/// the work again.
pub(crate) struct Turns<T> {
    pub(crate) turn: Arc<Semaphore>,
    pub(crate) last: Arc<Mutex<T>>,
}

/// Digests of the whole state, for `GET /v1/cluster?digest`.
pub(crate) type Digests = Turns<Option<StateDigest>>;

/// Backups for `/v1/admin/backup`, one at a time.
pub(crate) type Backups = Turns<LastBackup>;

/// The last backup that this node served completely; zeros if it has served none since its start.
#[derive(Clone, Copy, Default)]
pub(crate) struct LastBackup {
    /// Moment at which the backup was complete, in seconds since 1970.
    pub(crate) at_seconds: u64,
    pub(crate) bytes: u64,
}

impl<T: Default> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns { turn: Arc::new(Semaphore::new(1)), last: Arc::default() }
    }
}
