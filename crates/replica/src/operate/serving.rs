//! The end of waits at a node that cannot serve.
//!
//! A node that hears no leader, or whose disk does not answer, learns of no grant and of no event.
//! A client that waits there would hold its place in a queue, or a lock, without knowing. When this
//! has lasted for as long as an election may take, its wait ends, and it goes to another node.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::raft::consensus::Consensus;
use crate::stop::Stop;
use crate::view::View;

/// Time between two looks of a node.
const LOOK: Duration = Duration::from_millis(100);

/// Looks whether this node can serve those who wait at it.
pub(crate) struct Serving {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) view: Arc<View>,
}

impl Serving {
    /// Runs until the node stops.
    pub(crate) async fn watch(self, stopped: Stop) {
        let mut tick = interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let patience = self.consensus.election_timeout_max;
        let mut since = None;
        loop {
            tokio::select! {
                biased;
                () = stopped.wait() => return,
                _ = tick.tick() => {}
            }
            // Counted from a look on: a process that was paused hears what was said meanwhile.
            since = if self.consensus.serves() { None } else { since.or_else(|| Some(Instant::now())) };
            self.view.suspend(since.is_some_and(|since: Instant| since.elapsed() >= patience));
        }
    }
}
