//! Work of a leader whose disk does not answer. It hands over leadership if the other nodes are a
//! quorum, and goes on as the leader until then. `disk_watch.rs` detects the stall.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::raft::consensus::Consensus;

/// Time after which a leader that found no successor asks again.
const PAUSE: Duration = Duration::from_millis(500);

/// Checks the disk, and hands leadership over when the disk stalls.
pub(crate) struct DiskStall {
    pub(crate) consensus: Arc<Consensus>,
}

impl DiskStall {
    /// Term in which this node leads although its disk lacks entries that the other nodes have
    /// committed; `None` if there is none.
    fn leads_in_vain(&self) -> Option<u64> {
        let metrics = self.consensus.metrics();
        let term = self.consensus.leader_term(&metrics)?;
        let own = metrics.replication.iter().flatten().find(|(id, _)| **id == self.consensus.node_id);
        let behind = own.is_some_and(|(_, flushed)| *flushed < metrics.cluster_committed);
        (behind && !self.consensus.hands_over_in(term)).then_some(term)
    }

    /// Hands leadership over to a voter with a steady disk, the one with the most entries, if a
    /// quorum has steady disks. A disk is steady if it has not stalled for a while.
    async fn hand_over_for_the_disk(&self, term: u64) {
        let mut steady = self.consensus.peers.standings(Instant::now() + self.consensus.peer_timeout).await;
        steady.retain(|(_, standing)| standing.steady && standing.joined);
        let metrics = self.consensus.metrics();
        let leads = self.consensus.leader_term(&metrics) == Some(term) && self.consensus.disk_watch.stalls();
        let membership = self.consensus.membership();
        let is_steady = |id: u64| steady.iter().any(|(other, _)| *other == id);
        let has_majority = |set: &BTreeSet<u64>| set.iter().filter(|id| is_steady(**id)).count() > set.len() / 2;
        let quorum = membership.get_joint_config().iter().all(has_majority);
        let followers = metrics.replication.iter().flatten();
        let able = followers.filter(|(id, _)| is_steady(**id) && membership.voter_ids().any(|voter| voter == **id));
        let best = able.max_by_key(|(_, matched)| **matched);
        match best.filter(|_| leads && quorum) {
            Some((successor, _)) => {
                tracing::warn!(term, successor, "handing leadership over: the disk does not answer");
                self.consensus.hand_over_to(*successor, term).await;
            }
            None => sleep(PAUSE).await,
        }
    }

    /// Checks the disk's writes until the node stops.
    pub(crate) async fn watch(self) {
        let watch = &self.consensus.disk_watch;
        let mut tick = interval(watch.every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut under_way: FuturesUnordered<HandOver<'_>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(()) = under_way.next(), if !under_way.is_empty() => continue,
                _ = tick.tick() => {}
            }
            watch.look_at_commits(self.consensus.own_log(), Instant::now());
            if let Some(waited) = watch.look(Instant::now()) {
                self.tell(waited);
            }
            if watch.stalls()
                && under_way.is_empty()
                && let Some(term) = self.leads_in_vain()
            {
                under_way.push(Box::pin(self.hand_over_for_the_disk(term)));
            }
        }
    }

    fn tell(&self, waited: Duration) {
        let waited_ms = waited.as_millis() as u64;
        if self.consensus.disk_watch.stalls() {
            tracing::warn!(waited_ms, "the disk does not answer: this node is not ready, and takes no votes");
        } else {
            tracing::info!(waited_ms, "the disk answers again");
        }
        self.consensus.leader_watch.look_again();
    }
}

type HandOver<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
