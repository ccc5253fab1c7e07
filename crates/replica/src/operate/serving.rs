//! Waits at a node that cannot serve end.
//!
//! A node that hears no leader, or whose disk does not answer, learns of no grant and of no event.
//! A client that waits there would hold its place in a queue, or a lock, without knowing. So its
//! wait ends, and it goes to another node.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::raft::consensus::Consensus;
use crate::read::view::View;
use crate::stop::Stop;

/// How often a node looks.
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
        let mut served = true;
        loop {
            tokio::select! {
                biased;
                () = stopped.wait() => return,
                _ = tick.tick() => {}
            }
            let serves = self.consensus.serves();
            // Twice, so that a process that was paused has a moment to hear what was said
            // meanwhile.
            self.view.suspend(!serves && !served);
            served = serves;
        }
    }
}
