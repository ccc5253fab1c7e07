//! Gives leadership away at a drained node. An operator drains a node to take it out of service
//! while it keeps running.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::raft::consensus::Consensus;

/// Time between two checks of a drained node whether it leads. The time doubles with each check
/// that finds that the node leads, so that leadership does not go from node to node all the time
/// when all nodes are drained.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Tells whether an operator has drained the node (taken it out of service while it keeps running).
pub(crate) struct DrainWish {
    consensus: Arc<Consensus>,
    wished: watch::Sender<bool>,
}

impl DrainWish {
    pub(crate) fn new(consensus: Arc<Consensus>) -> DrainWish {
        DrainWish { consensus, wished: watch::Sender::new(false) }
    }

    /// Drains the node (`true`), or ends the drain. Returns true if that is a change.
    pub(crate) fn wish(&self, drained: bool) -> bool {
        self.wished.send_replace(drained) != drained
    }

    /// Channel of the wish: true while the node is drained.
    pub(crate) fn wished(&self) -> watch::Receiver<bool> {
        self.wished.subscribe()
    }

    pub(crate) fn is_wished(&self) -> bool {
        *self.wished.borrow()
    }

    /// Hands leadership over if this node leads, to a drained voter only if the others lack many
    /// entries. Goes on when the caller no longer waits.
    pub(crate) async fn give_leadership_away(&self) {
        let consensus = Arc::clone(&self.consensus);
        let given = tokio::spawn(async move {
            if consensus.leading_term().is_some() {
                let drained = consensus.drained_peers().await;
                consensus.give_leadership_away(&drained).await;
            }
        });
        let _ = given.await;
    }

    /// While the node is drained, gives leadership away each time that it leads. Runs until the
    /// node stops.
    pub(crate) async fn keep_away(self: Arc<Self>) {
        let mut wished = self.wished.subscribe();
        let mut pause = PAUSE;
        // The sender lives in `self`.
        while wished.wait_for(|wished| *wished).await.is_ok() {
            if timeout(pause, wished.wait_for(|wished| !*wished)).await.is_ok() {
                pause = PAUSE;
                continue;
            }
            let leads = self.consensus.leading_term().is_some();
            if leads {
                pause = (pause * 2).min(PAUSE_MAX);
                self.give_leadership_away().await;
            }
        }
    }
}
