//! Semaphores: locks with a number of permits.

use crate::client::Client;
use crate::client::lock::Lock;
use crate::{Error, Guard};

impl Client {
    /// Returns a semaphore of `permits_max` permits. The first acquire, or
    /// [`Client::set_settings`], sets this number; an acquire with another number is refused with
    /// `PermitsMaxDiffers`. With `None` the number in the lock's settings applies.
    pub fn semaphore(&self, path: impl Into<String>, permits_max: impl Into<Option<u32>>) -> Semaphore {
        Semaphore { client: self.clone(), path: path.into(), permits_max: permits_max.into() }
    }
}

/// A semaphore whose permits are acquired like locks, made by [`Client::semaphore`].
#[derive(Clone, Debug)]
pub struct Semaphore {
    client: Client,
    path: String,
    permits_max: Option<u32>,
}

impl Semaphore {
    /// Returns a [`Lock`] for a number of permits, which are acquired all together or not at all.
    pub fn permits(&self, permits: u32) -> Lock {
        let mut lock = Lock::new(self.client.clone(), self.path.clone(), Some("semaphore"));
        lock.permits = Some((permits, self.permits_max));
        lock
    }

    /// Waits for one permit in the order of the queue.
    ///
    /// # Errors
    /// As [`Lock::acquire`]; `Refused` with `PermitsMaxDiffers` when the semaphore has another
    /// number of permits.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.permits(1).acquire().await
    }

    /// Takes one permit if there is one; returns `None` otherwise.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.permits(1).try_acquire().await
    }
}
