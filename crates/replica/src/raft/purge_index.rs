//! The end of the part of this node's log that is purged.

use std::sync::{Arc, OnceLock};

use openraft::RaftMetrics;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::type_config::alias::WatchReceiverOf;
use storage::{LogId, TypeConfig};

/// The index up to which this node's log is purged, as Raft tells. Nothing before Raft runs.
#[derive(Clone, Default)]
pub(crate) struct PurgeIndex(Arc<OnceLock<WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>>>);

impl PurgeIndex {
    /// Takes Raft's metrics, once it runs.
    pub(crate) fn told_by(&self, metrics: WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>) {
        let _ = self.0.set(metrics);
    }

    /// Tells whether a follower that has no more than this needs an entry that is gone.
    pub(crate) fn is_needed_behind(&self, prev: Option<LogId>) -> bool {
        self.up_to().is_some_and(|purged| prev.is_none_or(|prev| prev.index < purged))
    }

    /// The index of the last entry that is gone.
    pub(crate) fn up_to(&self) -> Option<u64> {
        self.0.get()?.borrow_watched().purged.map(|purged| purged.index)
    }
}
