//! Bounds on concurrent TLS handshakes, in total and for one address.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::defer::Defer;
use crate::windows::{Pass, Windows};

/// Divisor of the total number of concurrent handshakes. The quotient is the largest number for one
/// address.
const PARTS: usize = 8;
/// Time after which a handshake may be aborted, if another handshake waits at the total limit.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// Limiter of concurrent handshakes. A client first waits at the limit of its address, and then at
/// the limit for all addresses.
pub(crate) struct Handshakes {
    places: Semaphore,
    /// Limits the number of concurrent handshakes of each address.
    of_address: Arc<Windows>,
    /// Number of clients that wait at the limit for all addresses.
    waiting: AtomicUsize,
    wanted: Notify,
}

/// Permission for one handshake, which counts against both limits until it is dropped.
pub(crate) struct Place<'a> {
    _of_all: SemaphorePermit<'a>,
    _of_address: Pass,
}

impl Handshakes {
    pub(crate) fn new(max: usize) -> Handshakes {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        Handshakes {
            places: Semaphore::new(max),
            of_address: Windows::new(u32::try_from(max / PARTS).unwrap_or(u32::MAX).max(1)),
            waiting: AtomicUsize::new(0),
            wanted: Notify::new(),
        }
    }

    /// Waits until both limits allow another handshake. `source` is the client's address, or `None`
    /// for an exempt address, which has no limit of its own.
    pub(crate) async fn enter(&self, source: Option<IpAddr>) -> Place<'_> {
        let of_address = self.of_address.enter(source, 1).await;
        if let Ok(place) = self.places.try_acquire() {
            return Place { _of_all: place, _of_address: of_address };
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Defer(|| _ = self.waiting.fetch_sub(1, Ordering::Relaxed));
        self.wanted.notify_waiters();
        let place = self.places.acquire().await.expect("it is never closed");
        drop(waiting);
        Place { _of_all: place, _of_address: of_address }
    }

    /// Waits for [`STALLED_AFTER`], and then until another handshake waits at the total limit. The
    /// caller then aborts its own handshake, which has stalled.
    pub(crate) async fn wanted_by_others(&self) {
        tokio::time::sleep(STALLED_AFTER).await;
        loop {
            let mut wanted = pin!(self.wanted.notified());
            wanted.as_mut().enable();
            if self.waiting.load(Ordering::Relaxed) > 0 {
                return;
            }
            wanted.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_lite_poll::pending_now;

    use super::*;

    /// Helper that polls a future once.
    mod futures_lite_poll {
        use std::future::Future;
        use std::pin::Pin;
        use std::task::{Context, Waker};

        pub(super) fn pending_now<F: Future>(future: Pin<&mut F>) -> bool {
            future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
        }
    }

    fn addr(last: u8) -> Option<IpAddr> {
        Some([192, 0, 2, last].into())
    }

    #[tokio::test(start_paused = true)]
    async fn handshakes_of_one_address_do_not_delay_those_of_others() {
        let all = Handshakes::new(16);
        let _two = [all.enter(addr(1)).await, all.enter(addr(1)).await];
        let mut third = pin!(all.enter(addr(1)));
        assert!(pending_now(third.as_mut()), "an eighth of all places is the address's");
        let other = all.enter(addr(2)).await;
        drop(other);
        let exempt: Vec<_> = [all.enter(None).await, all.enter(None).await, all.enter(None).await].into();
        assert_eq!(all.places.available_permits(), 16 - 2 - exempt.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_handshake_gives_its_place_to_one_that_waits() {
        let all = Handshakes::new(1);
        let first = all.enter(addr(1)).await;
        let mut wanted = pin!(all.wanted_by_others());
        tokio::time::advance(STALLED_AFTER * 2).await;
        assert!(pending_now(wanted.as_mut()), "no one waits");
        let mut second = pin!(all.enter(addr(2)));
        assert!(pending_now(second.as_mut()));
        wanted.await;
        drop(first);
        drop(second.await);
    }
}
