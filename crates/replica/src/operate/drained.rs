//! A node that an operator has drained: another is to lead while it is.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::raft::consensus::Consensus;
use crate::stop::Stop;

/// Time that a leader waits for its successor.
const HAND_OVER_MAX: Duration = Duration::from_millis(1_000);
/// A drained node looks again after this time whether it leads, and after twice as long each time
/// that it does: when all are drained, leadership is not to go round and round.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The operator's wish that the node is drained.
pub(crate) struct Drained {
    consensus: Arc<Consensus>,
    wished: watch::Sender<bool>,
}

impl Drained {
    pub(crate) fn new(consensus: Arc<Consensus>) -> Drained {
        Drained { consensus, wished: watch::Sender::new(false) }
    }

    /// Drains the node, or takes that back. True when it was otherwise before.
    pub(crate) fn wish(&self, drained: bool) -> bool {
        self.wished.send_replace(drained) != drained
    }

    pub(crate) fn is_wished(&self) -> bool {
        *self.wished.borrow()
    }

    /// Gives leadership to the member that is furthest of those that follow this leader, and waits
    /// for its election, but not for long. Where none follows, this node leads on.
    pub(crate) async fn give_away(&self) {
        let metrics = self.consensus.metrics();
        let Some(term) = self.consensus.leader_term(&metrics) else { return };
        if self.consensus.hands_over_in(term) {
            return;
        }
        let recent = self.consensus.disconnected_after();
        let follows = |id: u64| {
            let since = self.consensus.peers.get(id).and_then(|peer| peer.following.since(term));
            since.is_some_and(|since| since.elapsed() < recent)
        };
        let followers = metrics.replication.iter().flatten().filter(|(id, _)| follows(**id));
        let Some((successor, _)) = followers.max_by_key(|(_, matched)| **matched) else { return };
        tracing::info!(term, successor, "handing leadership over: this node is drained");
        if !self.consensus.hand_over_to(*successor, term).await {
            return;
        }
        let mut changes = self.consensus.role_changes();
        let elected =
            async { while changes.borrow_watched().vote.leader_id.term == term && changes.changed().await.is_ok() {} };
        // Else the next look finds out.
        let _ = timeout(HAND_OVER_MAX, elected).await;
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
                    self.give_away().await;
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
