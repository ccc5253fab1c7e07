//! Ends waits at a node that cannot serve.
//!
//! A node that hears no leader, or whose disk does not answer, learns of no grant and no event. A
//! client that waits there could get a lock, or lose its place in a queue, without knowing. So the
//! client's wait ends when the node has been in this condition for the longest election timeout,
//! and the client goes to another node.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::raft::consensus::Consensus;
use crate::view::View;

/// Time between two checks whether the node can serve.
const LOOK: Duration = Duration::from_millis(100);

/// Task that ends callers' waits for changes while this node cannot serve.
pub(crate) struct Serving {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) view: Arc<View>,
}

impl Serving {
    /// Checks until the node stops whether it can serve, and ends callers' waits while it cannot.
    pub(crate) async fn watch(self) {
        let mut tick = interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let patience = self.consensus.election_timeout_max;
        let mut since = None;
        loop {
            tick.tick().await;
            // Counted from the first failed check, not from the last message: after a pause of the
            // process, messages that were sent meanwhile still come in.
            since = if self.consensus.serves() { None } else { since.or_else(|| Some(Instant::now())) };
            self.view.suspend(since.is_some_and(|since: Instant| since.elapsed() >= patience));
        }
    }
}
