//! Comparison of this node's state with the states of the other members.
//!
//! Each node asks all other members for the hashes of their histories at the last entry that it has
//! applied. A node whose hash differs from that of a majority stops, the leader too. A node asks
//! for itself and believes no message that says it differs, because a stranger may have sent it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use znode::HistoryHash;

use crate::Failure;
use crate::raft::agreement::{Verdict, judge};
use crate::raft::consensus::Consensus;
use crate::raft::peers::Peer;
use crate::raft::transport::{Answer, Ask};
use crate::view::View;
use crate::view::life::Life;

/// Time between two comparisons. A difference is found within a second.
const INTERVAL: Duration = Duration::from_millis(250);
/// Time that a comparison waits for further answers once a majority has agreed.
const REST: Duration = Duration::from_millis(100);

/// Task that compares this node's state with the states of the other members.
pub(crate) struct Comparison {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) view: Arc<View>,
    pub(crate) life: Arc<Life>,
}

impl Comparison {
    /// Compares until the node stops.
    pub(crate) async fn watch(self) {
        let mut tick = interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = self.consensus.agreement.suspected() => {}
                _ = tick.tick() => {}
            }
            self.compare().await;
        }
    }

    /// Compares the states after the last entry that this node has applied.
    async fn compare(&self) {
        let Some((index, own)) = self.view.histories.lock().newest() else { return };
        let (consensus, membership) = (&self.consensus, self.consensus.membership());
        let members: BTreeSet<u64> = membership.nodes().map(|(id, _)| *id).collect();
        let mut deadline = Instant::now() + consensus.peer_timeout;
        let peers = consensus.peers.all().into_iter().filter(|(id, _)| members.contains(id));
        let ask = |(id, peer): (u64, Arc<Peer>)| async move {
            (id, peer.control.ask(Ask::History { index }, deadline).await)
        };
        let mut asked: FuturesUnordered<_> = peers.map(ask).collect();
        let mut hashes = BTreeMap::from([(consensus.node_id, own)]);
        let mut verdict = judge(membership.get_joint_config(), &hashes);
        while let Ok(Some((id, answer))) = timeout_at(deadline, asked.next()).await {
            let Ok(Answer::History(Some(hash))) = answer else { continue };
            hashes.insert(id, HistoryHash(hash));
            verdict = judge(membership.get_joint_config(), &hashes);
            match verdict {
                Verdict::Majority(hash) if hash != own => break,
                Verdict::Majority(_) => deadline = deadline.min(Instant::now() + REST),
                // Without delay: until a majority is known, this node may be the one that is wrong.
                Verdict::Divided => self.note_divided(true, &hashes),
                Verdict::TooFew => {}
            }
        }
        if let Verdict::Majority(majority) = verdict {
            self.conclude(index, (own, majority), &hashes, &members);
        }
    }

    /// Acts on the hash that a majority has after the entry at `index`.
    fn conclude(
        &self,
        index: u64,
        (own, majority): (HistoryHash, HistoryHash),
        hashes: &BTreeMap<u64, HistoryHash>,
        members: &BTreeSet<u64>,
    ) {
        let zxid = self.consensus.zxid(index);
        if own != majority {
            let agreed: Vec<u64> = hashes.iter().filter(|(_, hash)| **hash == majority).map(|(id, _)| *id).collect();
            self.life.fail(Failure::Contradiction(format!(
                "this node's state differs from that of the majority: after zxid {zxid} (entry {index}) the hash of its history \
                 is {own}, and {majority} at the nodes {agreed:?}. Keep its data directory for a report, wipe the node and let it \
                 rejoin; see docs/storage-trouble.md, \"A node whose state differs\""
            )));
            return;
        }
        let agreement = &self.consensus.agreement;
        agreement.note_agreed(zxid);
        for id in agreement.note_answers(majority, hashes, members) {
            let hash = hashes.get(&id).map(ToString::to_string);
            tracing::error!(member = id, %zxid, hash, %majority, "the state of a member differs from that of the majority");
        }
        self.note_divided(false, hashes);
    }

    fn note_divided(&self, divided: bool, hashes: &BTreeMap<u64, HistoryHash>) {
        if !self.consensus.agreement.note_divided(divided) {
            return;
        }
        if divided {
            tracing::error!(?hashes, "the states of members differ, and no majority is known to agree");
        } else {
            tracing::info!("a majority of the members agrees again");
        }
    }
}
