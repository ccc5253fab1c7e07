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
use crate::request::cursors::Cursors;
use crate::request::query::at_most;
use crate::request::turns::{Backups, Digests};

/// The state behind the routes.
pub(crate) struct Door {
    pub(crate) replica: Replica,
    pub(crate) config: RestConfig,
    pub(crate) node_id: u64,
    waits: Arc<Semaphore>,
    /// Requests at work.
    pub(crate) at_work: AtWork,
    /// Memory for bodies.
    pub(crate) bodies: Bodies,
    /// Thread for long lists and bodies.
    pub(crate) long_work: LongWork,
    /// Where lists go on behind names that are not for the request to know.
    pub(crate) cursors: Cursors,
    pub(crate) digests: Digests,
    pub(crate) backups: Backups,
    /// How often one address may open a session.
    pub(crate) session_rates: Rates,
    /// Windows for writes.
    pub(crate) windows: WriteWindows,
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

    /// Resolves when the door closes.
    pub(crate) async fn stopped(&self) {
        self.stopping.cancelled().await;
    }

    /// From here on the node is not ready, and all else goes on.
    pub(crate) fn stops_soon(&self) {
        self.drain.stops.store(true, Ordering::Relaxed);
    }

    /// From here on the node is not ready, and each connection ends with its next answer.
    pub(crate) fn close(&self) {
        self.drain.closes.store(true, Ordering::Relaxed);
    }

    /// Whether the door is about to close.
    pub(crate) fn is_closing(&self) -> bool {
        self.drain.closes.load(Ordering::Relaxed)
    }

    /// Why clients should go elsewhere though the node could serve them.
    pub(crate) fn drains(&self) -> Option<&'static str> {
        if self.drain.stops.load(Ordering::Relaxed) || self.is_closing() {
            return Some("the node stops soon");
        }
        self.replica.is_drained().then_some("an operator has drained the node")
    }

    /// The lock-delay of an acquire; the state would cut a longer wish without a word.
    ///
    /// # Errors
    /// 400 beyond the longest.
    pub(crate) fn lock_delay_ms(&self, wish_ms: Option<u64>) -> Result<u32, Problem> {
        let max_ms = self.replica.state().limits().lock_delay_max_ms;
        let wish_ms = at_most("lock_delay", wish_ms.unwrap_or(0), u64::from(max_ms))?;
        Ok(u32::try_from(wish_ms).unwrap_or(max_ms))
    }

    /// A place among those who wait.
    ///
    /// # Errors
    /// 429 when there is none; 503 when the door closes, which takes all places.
    pub(crate) fn wait_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        if self.stopping.is_cancelled() {
            return Err(Problem::stopping());
        }
        self.waits.clone().try_acquire_owned().map_err(|_| Problem::too_many("waiting requests"))
    }

    /// How many wait.
    pub(crate) fn waits(&self) -> usize {
        let all = self.config.waits_max.min(Semaphore::MAX_PERMITS);
        all.saturating_sub(self.waits.available_permits())
    }

    /// Resolves when no caller waits any more, and nothing is being withdrawn.
    pub(crate) async fn quiet(&self) {
        let all = u32::try_from(self.config.waits_max.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        // It is never closed; the permits go back at once.
        let _ = self.waits.acquire_many(all).await;
    }

    /// When a write that begins now is given up.
    pub(crate) fn propose_deadline(&self) -> Instant {
        Instant::now() + std::time::Duration::from_millis(self.config.propose_timeout_ms)
    }

    /// When an operator's order that begins now is given up: a change of the members may take two
    /// elections.
    pub(crate) fn order_deadline(&self) -> Instant {
        self.propose_deadline() + std::time::Duration::from_millis(self.config.propose_timeout_ms)
    }

    /// When a read that begins now is given up.
    pub(crate) fn read_deadline(&self) -> Instant {
        Instant::now() + std::time::Duration::from_millis(self.config.read_timeout_ms)
    }
}
