//! Index up to which this node's log is purged.

use std::sync::{Arc, OnceLock};

use openraft::RaftMetrics;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::type_config::alias::WatchReceiverOf;
use storage::{LogId, TypeConfig};

/// Index of the last purged entry of this node's log, read from Raft's metrics. The metrics are
/// missing before Raft runs.
#[derive(Clone, Default)]
pub(crate) struct PurgeIndex(Arc<OnceLock<WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>>>);

impl PurgeIndex {
    /// Sets Raft's metrics, from which the index is read, once Raft runs.
    pub(crate) fn told_by(&self, metrics: WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>) {
        let _ = self.0.set(metrics);
    }

    /// Tells whether a follower whose last entry is `prev` needs an entry that was purged.
    pub(crate) fn is_needed_behind(&self, prev: Option<LogId>) -> bool {
        self.up_to().is_some_and(|purged| prev.is_none_or(|prev| prev.index < purged))
    }

    /// Index of the last entry that was purged; `None` if none was.
    pub(crate) fn up_to(&self) -> Option<u64> {
        self.0.get()?.borrow_watched().purged.map(|purged| purged.index)
    }
}
