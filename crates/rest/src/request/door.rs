//! What all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use accept::{Rates, WriteWindows};
use replica::Replica;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use znode::Zxid;

use crate::RestConfig;
use crate::http::at_work::AtWork;
use crate::http::bodies::Bodies;
use crate::http::long_work::LongWork;
use crate::problem::Problem;
use crate::request::backups::Backups;
use crate::request::cursors::Cursors;
use crate::request::digests::Digests;
use crate::request::query::at_most;

/// The state behind the routes. Clones are the same door.
#[derive(Clone)]
pub(crate) struct Door {
    inner: Arc<Inner>,
}

struct Inner {
    replica: Replica,
    config: RestConfig,
    node_id: u64,
    waits: Arc<Semaphore>,
    at_work: AtWork,
    bodies: Bodies,
    long_work: LongWork,
    cursors: Cursors,
    digests: Digests,
    backups: Backups,
    session_rates: Rates,
    windows: WriteWindows,
    stopping: CancellationToken,
    drain: Drain,
}

/// How far the end of the door has come.
#[derive(Default)]
struct Drain {
    /// The node stops soon.
    stops: AtomicBool,
    /// The door is about to close: each connection ends with its next answer.
    closes: AtomicBool,
}

/// Where in history an answer stands; becomes the header `Zlock-Zxid`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtZxid(pub(crate) Zxid);

impl Door {
    pub(crate) fn new(replica: Replica, config: RestConfig, stopping: CancellationToken) -> Door {
        let node_id = replica.status().node_id;
        let waits = Arc::new(Semaphore::new(config.waits_max.min(Semaphore::MAX_PERMITS)));
        let (bodies, digests) = (Bodies::new(config.bodies_bytes_max), Digests::default());
        let session_rates = Rates::new(config.session_rate_max);
        let (cursors, drain) = (Cursors::default(), Drain::default());
        let backups = Backups::default();
        let inner = Inner {
            replica,
            config,
            node_id,
            waits,
            at_work: AtWork::default(),
            bodies,
            long_work: LongWork::default(),
            cursors,
            digests,
            backups,
            session_rates,
            windows: WriteWindows::default(),
            stopping,
            drain,
        };
        Door { inner: Arc::new(inner) }
    }

    pub(crate) fn replica(&self) -> &Replica {
        &self.inner.replica
    }

    pub(crate) fn config(&self) -> &RestConfig {
        &self.inner.config
    }

    /// This node's id.
    pub(crate) fn node_id(&self) -> u64 {
        self.inner.node_id
    }

    /// Resolves when the door closes.
    pub(crate) async fn stopped(&self) {
        self.inner.stopping.cancelled().await;
    }

    /// From here on the node is not ready, and all else goes on.
    pub(crate) fn stops_soon(&self) {
        self.inner.drain.stops.store(true, Ordering::Relaxed);
    }

    /// From here on the node is not ready, and each connection ends with its next answer.
    pub(crate) fn close(&self) {
        self.inner.drain.closes.store(true, Ordering::Relaxed);
    }

    /// Whether the door is about to close.
    pub(crate) fn is_closing(&self) -> bool {
        self.inner.drain.closes.load(Ordering::Relaxed)
    }

    /// Why clients should go elsewhere though the node could serve them.
    pub(crate) fn drains(&self) -> Option<&'static str> {
        if self.inner.drain.stops.load(Ordering::Relaxed) || self.is_closing() {
            return Some("the node stops soon");
        }
        self.replica().is_drained().then_some("an operator has drained the node")
    }

    /// The lock-delay of an acquire; the state would cut a longer wish without a word.
    ///
    /// # Errors
    /// 400 beyond the longest.
    pub(crate) fn lock_delay_ms(&self, wish_ms: Option<u64>) -> Result<u32, Problem> {
        let max_ms = self.replica().state().limits().lock_delay_max_ms;
        let wish_ms = at_most("lock_delay", wish_ms.unwrap_or(0), u64::from(max_ms))?;
        Ok(u32::try_from(wish_ms).unwrap_or(max_ms))
    }

    /// A place among those who wait.
    ///
    /// # Errors
    /// 429 when there is none; 503 when the door closes, which takes all places.
    pub(crate) fn wait_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        if self.inner.stopping.is_cancelled() {
            return Err(Problem::stopping());
        }
        self.inner.waits.clone().try_acquire_owned().map_err(|_| Problem::too_many("waiting requests"))
    }

    /// How many wait.
    pub(crate) fn waits(&self) -> usize {
        let all = self.config().waits_max.min(Semaphore::MAX_PERMITS);
        all.saturating_sub(self.inner.waits.available_permits())
    }

    /// Resolves when no caller waits any more, and nothing is being withdrawn.
    pub(crate) async fn quiet(&self) {
        let all = u32::try_from(self.config().waits_max.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        // It is never closed; the permits go back at once.
        let _ = self.inner.waits.acquire_many(all).await;
    }

    /// Requests at work.
    pub(crate) fn at_work(&self) -> &AtWork {
        &self.inner.at_work
    }

    /// Memory for bodies.
    pub(crate) fn bodies(&self) -> &Bodies {
        &self.inner.bodies
    }

    /// Thread for long lists and bodies.
    pub(crate) fn long_work(&self) -> &LongWork {
        &self.inner.long_work
    }

    /// Where lists go on behind names that are not for the request to know.
    pub(crate) fn cursors(&self) -> &Cursors {
        &self.inner.cursors
    }

    /// Digests of the state.
    pub(crate) fn digests(&self) -> &Digests {
        &self.inner.digests
    }

    /// Backups.
    pub(crate) fn backups(&self) -> &Backups {
        &self.inner.backups
    }

    /// How often one address may open a session.
    pub(crate) fn session_rates(&self) -> &Rates {
        &self.inner.session_rates
    }

    /// Windows for writes.
    pub(crate) fn windows(&self) -> &WriteWindows {
        &self.inner.windows
    }

    /// When a write that begins now is given up.
    pub(crate) fn propose_deadline(&self) -> Instant {
        Instant::now() + std::time::Duration::from_millis(self.config().propose_timeout_ms)
    }

    /// When an operator's order that begins now is given up: a change of the members may take two
    /// elections.
    pub(crate) fn order_deadline(&self) -> Instant {
        self.propose_deadline() + std::time::Duration::from_millis(self.config().propose_timeout_ms)
    }

    /// When a read that begins now is given up.
    pub(crate) fn read_deadline(&self) -> Instant {
        Instant::now() + std::time::Duration::from_millis(self.config().read_timeout_ms)
    }
}
