//! Work that a node does now and then: free space, a snapshot when many bytes of log have come
//! together, and how far its log has come for the rules that peers keep to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::{Duration, interval};

use crate::local::disk_space::DiskSpace;
use crate::raft::consensus::Consensus;
use crate::raft::transport::Identity;
use crate::stop::Stop;

const INTERVAL: Duration = Duration::from_millis(500);

pub(crate) struct Housekeeping {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) identity: Identity,
    pub(crate) space: Arc<DiskSpace>,
    pub(crate) log_since_snapshot_bytes: Arc<AtomicU64>,
    /// Bytes of the log without a snapshot, from which one is made.
    pub(crate) snapshot_log_bytes: u64,
}

impl Housekeeping {
    /// Tells the rules for peers how far this node has come.
    pub(crate) fn widen_horizon(&self) {
        let metrics = self.consensus.metrics();
        self.identity.horizon.reach(metrics.current_term, metrics.last_log_index.unwrap_or(0));
    }

    /// Runs until the node stops.
    pub(crate) async fn keep_house(self, stopped: Stop) {
        let mut tick = interval(INTERVAL);
        loop {
            tokio::select! {
                biased;
                () = stopped.wait() => return,
                _ = tick.tick() => {}
            }
            self.widen_horizon();
            if let Some(guard) = self.space.guard() {
                // A disk that does not answer this either must not hold up anything else.
                let look = self.consensus.host.blocking(move || Ok(guard.is_low()));
                let looked = tokio::select! {
                    biased;
                    () = stopped.wait() => return,
                    looked = look => looked,
                };
                self.space.note(looked.and_then(|is_low| is_low));
            }
            // Raft passes this over while it builds one. Bytes count from the beginning of a build.
            if self.log_since_snapshot_bytes.load(Ordering::Relaxed) >= self.snapshot_log_bytes {
                let _ = self.consensus.raft.trigger().snapshot().await;
            }
        }
    }
}
