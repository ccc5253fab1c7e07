//! Periodic work of a node: it measures free space, requests a snapshot when the log has grown by
//! many bytes, and updates the term and the last index with which peers' messages are checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::{Duration, interval};

use crate::local::disk_space::DiskSpace;
use crate::raft::consensus::Consensus;
use crate::raft::transport::Identity;

const INTERVAL: Duration = Duration::from_millis(500);

pub(crate) struct Housekeeping {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) identity: Identity,
    pub(crate) space: Arc<DiskSpace>,
    pub(crate) log_since_snapshot_bytes: Arc<AtomicU64>,
    /// Bytes of applied entries, counted from the last snapshot, after which the next one is
    /// requested.
    pub(crate) snapshot_log_bytes: u64,
}

impl Housekeeping {
    /// Updates the horizon: this node's present term and last index. Peers' messages whose term or
    /// index is far beyond the horizon are refused.
    pub(crate) fn widen_horizon(&self) {
        let metrics = self.consensus.metrics();
        self.identity.horizon.reach(metrics.current_term, metrics.last_log_index.unwrap_or(0));
    }

    /// Periodically measures free space, requests snapshots and updates the bounds for peers'
    /// messages, until the node stops.
    pub(crate) async fn keep_house(self) {
        let mut tick = interval(INTERVAL);
        loop {
            tick.tick().await;
            self.widen_horizon();
            if let Some(guard) = self.space.guard() {
                let looked = self.consensus.host.blocking(move || Ok(guard.is_low())).await;
                self.space.note(looked.and_then(|is_low| is_low));
            }
            // Raft ignores this while it builds a snapshot. Bytes count from the beginning of a
            // build.
            if self.log_since_snapshot_bytes.load(Ordering::Relaxed) >= self.snapshot_log_bytes {
                let _ = self.consensus.raft.trigger().snapshot().await;
            }
        }
    }
}
