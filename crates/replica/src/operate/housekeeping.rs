//! What a node looks after now and then: free space, a snapshot when many bytes of log have come
//! together, and how far its log has come for the rules that peers keep to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Duration, interval};

use crate::node::Node;
use crate::raft::state_machine::blocking;

const INTERVAL: Duration = Duration::from_millis(500);

impl Node {
    /// The first look, before the node serves.
    pub(crate) fn begin_housekeeping(&self) {
        self.note_disk(self.disk_guard().map(|guard| guard.is_low()));
        self.widen_horizon();
    }

    /// Notes whether there is space, and tells of changes.
    fn note_disk(&self, is_low: Option<io::Result<bool>>) {
        let Some(is_low) = is_low else { return };
        let was_unknown = self.space_unknown.swap(is_low.is_err(), Ordering::Relaxed);
        match is_low {
            Ok(low) if self.disk_low.swap(low, Ordering::Relaxed) != low => {
                let free_disk_min_bytes = self.config.free_disk_min_bytes;
                if low {
                    tracing::warn!(free_disk_min_bytes, "the disk is low on space: clients' writes are refused");
                } else {
                    tracing::info!(free_disk_min_bytes, "the disk has space again");
                }
            }
            Ok(_) => {}
            Err(error) if !was_unknown => tracing::warn!(%error, "free disk space cannot be read"),
            Err(_) => {}
        }
    }

    /// Tells the rules for peers how far this node has come.
    fn widen_horizon(&self) {
        let metrics = self.metrics();
        self.identity.horizon.reach(metrics.current_term, metrics.last_log_index.unwrap_or(0));
    }
}

pub(crate) async fn keep_house(node: Arc<Node>) {
    let stopped = node.stopped();
    let mut tick = interval(INTERVAL);
    loop {
        tokio::select! {
            biased;
            () = stopped.wait() => return,
            _ = tick.tick() => {}
        }
        node.widen_horizon();
        if let Some(guard) = node.disk_guard() {
            // A disk that does not answer this either must not hold up anything else.
            let look = blocking(move || Ok(guard.is_low()));
            let looked = tokio::select! {
                biased;
                () = stopped.wait() => return,
                looked = look => looked,
            };
            node.note_disk(Some(looked.and_then(|is_low| is_low)));
        }
        if node.unsaved_bytes.load(Ordering::Relaxed) >= node.config.snapshot_log_bytes {
            node.unsaved_bytes.store(0, Ordering::Relaxed);
            let _ = node.raft.trigger().snapshot().await;
        }
    }
}
