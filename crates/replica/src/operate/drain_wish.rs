//! A node that an operator has drained: another is to lead while it is.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::raft::consensus::Consensus;
use crate::stop::Stop;

/// A drained node looks again after this time whether it leads, and after twice as long each time
/// that it does: when all are drained, leadership is not to go round and round.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The operator's wish that the node is drained.
pub(crate) struct DrainWish {
    consensus: Arc<Consensus>,
    wished: watch::Sender<bool>,
}

impl DrainWish {
    pub(crate) fn new(consensus: Arc<Consensus>) -> DrainWish {
        DrainWish { consensus, wished: watch::Sender::new(false) }
    }

    /// Drains the node, or takes that back. True when it was otherwise before.
    pub(crate) fn wish(&self, drained: bool) -> bool {
        self.wished.send_replace(drained) != drained
    }

    pub(crate) fn is_wished(&self) -> bool {
        *self.wished.borrow()
    }

    /// Gives leadership away each time that this node has come to lead, until the node stops.
    pub(crate) async fn keep_away(self: Arc<Self>, stopped: Stop) {
        let mut wished = self.wished.subscribe();
        let work = async {
            let mut pause = PAUSE;
            // The sender is here.
            while wished.wait_for(|wished| *wished).await.is_ok() {
                if timeout(pause, wished.wait_for(|wished| !*wished)).await.is_ok() {
                    pause = PAUSE;
                    continue;
                }
                let leads = self.consensus.leading_term().is_some();
                if leads {
                    pause = (pause * 2).min(PAUSE_MAX);
                    self.consensus.give_leadership_away().await;
                }
            }
        };
        tokio::select! {
            biased;
            () = stopped.wait() => {}
            () = work => {}
        }
    }
}
