//! State of the HTTP server that all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use accept::{Rates, WriteWindows};
use replica::{Bound, Replica};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use znode::Zxid;

use crate::RestConfig;
use crate::http::at_work::AtWork;
use crate::http::bodies::Bodies;
use crate::http::long_work::LongWork;
use crate::problem::Problem;
use crate::request::cursors::Cursors;
use crate::request::query::at_most;
use crate::request::turns::{Backups, Digests};

/// State of the HTTP server that all routes use.
pub(crate) struct Door {
    pub(crate) replica: Replica,
    pub(crate) config: RestConfig,
    pub(crate) node_id: u64,
    waits: Arc<Semaphore>,
    /// Bound on the number of requests at work.
    pub(crate) at_work: AtWork,
    /// Counts of the bytes of request bodies and long answers, with their bounds.
    pub(crate) bodies: Bodies,
    /// Thread that makes long lists and parses long bodies.
    pub(crate) long_work: LongWork,
    /// Encrypted cursors of pages, for names that a request may not know.
    pub(crate) cursors: Cursors,
    pub(crate) digests: Digests,
    pub(crate) backups: Backups,
    /// Bound for each address on the number of new sessions a second.
    pub(crate) session_rates: Rates,
    /// Bounds on the bytes of writes in progress, for each address.
    pub(crate) windows: WriteWindows,
    stopping: CancellationToken,
    drain: Drain,
}

/// Progress of the server's shutdown.
#[derive(Default)]
struct Drain {
    /// True from the beginning of the shutdown: the node reports itself as not ready.
    stops: AtomicBool,
    /// True shortly before the listeners close: each connection ends after its next answer.
    closes: AtomicBool,
}

/// Zxid of the state that an answer shows; becomes the header `Zlock-Zxid`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtZxid(pub(crate) Zxid);

impl Door {
    pub(crate) fn new(replica: Replica, config: RestConfig, stopping: CancellationToken) -> Arc<Door> {
        Arc::new(Door {
            node_id: replica.status().node_id,
            waits: Arc::new(Semaphore::new(config.waits_max.min(Semaphore::MAX_PERMITS))),
            at_work: AtWork::default(),
            bodies: Bodies::new(config.bodies_bytes_max),
            long_work: LongWork::default(),
            cursors: Cursors::default(),
            digests: Digests::default(),
            backups: Backups::default(),
            session_rates: Rates::new(config.session_rate_max),
            windows: WriteWindows::default(),
            stopping,
            drain: Drain::default(),
            replica,
            config,
        })
    }

    /// Resolves when the server has closed its listeners and ends all waits.
    pub(crate) async fn stopped(&self) {
        self.stopping.cancelled().await;
    }

    /// Makes the node report itself as not ready; requests are served as before.
    pub(crate) fn stops_soon(&self) {
        self.drain.stops.store(true, Ordering::Relaxed);
    }

    /// Makes the node report itself as not ready, and ends each connection after its next answer.
    pub(crate) fn close(&self) {
        self.drain.closes.store(true, Ordering::Relaxed);
    }

    /// Tells whether connections end after their next answer, because the server is about to stop.
    pub(crate) fn is_closing(&self) -> bool {
        self.drain.closes.load(Ordering::Relaxed)
    }

    /// Returns the reason why clients should use another node, although this node still serves: it
    /// stops soon, or an operator has drained it. `None` without such a reason.
    pub(crate) fn drains(&self) -> Option<&'static str> {
        if self.drain.stops.load(Ordering::Relaxed) || self.is_closing() {
            return Some("the node stops soon");
        }
        self.replica.is_drained().then_some("an operator has drained the node")
    }

    /// Returns the lock-delay of an acquire in milliseconds: `wish_ms`, or 0 if the request names
    /// none.
    ///
    /// # Errors
    /// 400 for a delay beyond the limit, to which the state machine would shorten it silently.
    pub(crate) fn lock_delay_ms(&self, wish_ms: Option<u64>) -> Result<u32, Problem> {
        let max_ms = self.replica.state().limits().lock_delay_max_ms;
        let wish_ms = at_most("lock_delay", wish_ms.unwrap_or(0), u64::from(max_ms))?;
        Ok(u32::try_from(wish_ms).unwrap_or(max_ms))
    }

    /// Counts a request as waiting until the returned permit is dropped.
    ///
    /// # Errors
    /// 429 when `waits_max` requests wait already; 503 when the server stops.
    pub(crate) fn wait_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        if self.stopping.is_cancelled() {
            return Err(Problem::stopping());
        }
        self.waits.clone().try_acquire_owned().map_err(|_| Problem::too_many(Bound::Waits, "waiting requests"))
    }

    /// Returns the number of waiting requests.
    pub(crate) fn waits(&self) -> usize {
        let all = self.config.waits_max.min(Semaphore::MAX_PERMITS);
        all.saturating_sub(self.waits.available_permits())
    }

    /// Waits until no request waits, and no ticket of a vanished client is being withdrawn.
    pub(crate) async fn quiet(&self) {
        let all = u32::try_from(self.config.waits_max.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        // The semaphore is never closed; the permits are given back at once.
        let _ = self.waits.acquire_many(all).await;
    }

    /// Returns the deadline of a write that begins now.
    pub(crate) fn propose_deadline(&self) -> Instant {
        Instant::now() + std::time::Duration::from_millis(self.config.propose_timeout_ms)
    }

    /// Returns the deadline of an operator's command that begins now: twice that of a write,
    /// because a change of the members may take two elections.
    pub(crate) fn order_deadline(&self) -> Instant {
        self.propose_deadline() + std::time::Duration::from_millis(self.config.propose_timeout_ms)
    }

    /// Returns the deadline of a read that begins now.
    pub(crate) fn read_deadline(&self) -> Instant {
        Instant::now() + std::time::Duration::from_millis(self.config.read_timeout_ms)
    }
}
