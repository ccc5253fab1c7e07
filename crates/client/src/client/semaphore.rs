//! Semaphores: so many at once.

use crate::client::Client;
use crate::client::lock::Lock;
use crate::{Error, Guard};

impl Client {
    /// A semaphore of so many permits. The first client says how many, or [`Client::set_lock`]; a
    /// client that says another number is refused with `LimitDiffers`. With `None` those that are
    /// set count.
    pub fn semaphore(&self, path: impl Into<String>, limit: impl Into<Option<u32>>) -> Semaphore {
        Semaphore { client: self.clone(), path: path.into(), limit: limit.into() }
    }
}

/// Permits that are taken and given back. Made by [`Client::semaphore`].
#[derive(Clone, Debug)]
pub struct Semaphore {
    client: Client,
    path: String,
    limit: Option<u32>,
}

impl Semaphore {
    /// So many permits, all or none: a [`Lock`] that is acquired as any other.
    pub fn permits(&self, permits: u32) -> Lock {
        let mut lock = Lock::new(self.client.clone(), self.path.clone(), Some("semaphore"));
        lock.permits = Some((permits, self.limit));
        lock
    }

    /// Waits for one permit, in order.
    ///
    /// # Errors
    /// As [`Lock::acquire`]; `Refused` with `LimitDiffers` when the semaphore has another limit.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.permits(1).acquire().await
    }

    /// Takes one permit if there is one.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.permits(1).try_acquire().await
    }
}
