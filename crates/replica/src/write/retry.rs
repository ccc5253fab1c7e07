//! Retries of calls that certainly changed nothing, with growing pauses.

use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::RaftServerMetrics;
use openraft::type_config::alias::WatchReceiverOf;
use storage::TypeConfig;
use tokio::time::{Instant, timeout};

use crate::Error;
use crate::raft::consensus::Consensus;
use crate::view::life::Life;

/// Shortest pause between two tries to reach a leader; [`PAUSE_MAX`] is the longest.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(64);
/// Time before the deadline in which no try begins, so that the last try still has time for an
/// answer.
const ANSWER_MAX: Duration = Duration::from_millis(500);

const OUT_OF_TOUCH: &str =
    "no quorum: for longer than an election takes, no leader is heard, or this leader has lost its quorum";

/// Retries of a call that needs a leader, as long as the tries certainly changed nothing. Pauses
/// grow, so that thousands of callers that wait for an election leave the processor to the
/// election. All of them wake at once when Raft's leader or role changes.
pub(crate) struct Retry {
    give_up: Instant,
    pause: Duration,
    /// Receiver of changes of Raft's role, one for all tries: a new receiver would take the present
    /// role for a change.
    changes: Option<WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>>,
}

impl Retry {
    /// Makes the retries of one call. They end shortly before the deadline, and earlier if the call
    /// has lasted for the time in which a leader without contact counts as disconnected. An
    /// election takes less time, and clients should get an answer soon.
    pub(crate) fn new(consensus: &Consensus, deadline: Instant) -> Retry {
        let now = Instant::now();
        let patience = consensus.disconnected_after();
        // No try begins just before the deadline: its outcome would be unknown, whereas the last
        // try certainly changed nothing.
        let left = deadline.saturating_duration_since(now);
        let give_up = now + patience.min(left - ANSWER_MAX.min(left / 4));
        Retry { give_up, pause: PAUSE_MIN, changes: None }
    }

    /// Waits until the next try: for a pause, or until Raft's role or leader changes. Returns an
    /// error when another try would be of no use; `reason` is why the last try failed.
    pub(crate) async fn again(&mut self, life: &Life, consensus: &Consensus, reason: String) -> Result<(), Error> {
        if let Some(end) = life.end() {
            return Err(Error::unavailable(end));
        }
        if consensus.is_out_of_touch() {
            return Err(Error::Unavailable { reason: OUT_OF_TOUCH.into(), retry_after_ms: 1_000 });
        }
        if Instant::now() + self.pause >= self.give_up {
            return Err(Error::unavailable(reason));
        }
        let changes = self.changes.get_or_insert_with(|| consensus.role_changes());
        let changed = async {
            // Raft has ended, so no role changes any more. The node soon fails with the reason.
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        match timeout(self.pause, changed).await {
            Ok(()) => self.pause = PAUSE_MIN,
            Err(_) => self.pause = (self.pause * 2).min(PAUSE_MAX),
        }
        Ok(())
    }
}
