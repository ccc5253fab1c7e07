//! Keeps this node's peers (the nodes that it connects to) equal to the other members, and ends the
//! node when it was removed from the membership.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::{Instant, sleep};
use znode::Zxid;

use crate::Failure;
use crate::local::vote_gate::VoteGate;
use crate::raft::consensus::Consensus;
use crate::raft::transport::{Answer, Ask, Lane};
use crate::view::life::Life;

/// Pause after a member was asked for its format level. The question may have been caused by a
/// message of a stranger (a sender that is no member), and a stranger must not make this node open
/// one connection after another.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between two checks whether this node has a vote, because no event announces that.
const LOOK: Duration = Duration::from_millis(500);

/// Updates this node's peers to the members each time that the membership changes, and fails the
/// node when it was removed. Runs until the node stops.
pub(crate) async fn follow_members(consensus: Arc<Consensus>, gate: Arc<VoteGate>, life: Arc<Life>) {
    let mut changes = consensus.role_changes();
    let removed = consensus.cluster.own_removal();
    tokio::pin!(removed);
    let mut doubts = consensus.cluster.doubts();
    loop {
        let membership = consensus.membership();
        if membership.nodes().next().is_some() {
            let addrs = membership.nodes().map(|(id, member)| (*id, member.peer_addr.clone()));
            consensus.cluster.note_members(addrs.collect());
            consensus.peers.adopt(&membership, !gate.joined());
        }
        if gate.joined() && !consensus.hears_leader() && consensus.leading_term().is_none() {
            ask_whether_removed(&consensus).await;
        }
        tokio::select! {
            biased;
            zxid = &mut removed => return life.fail(Failure::Removed { zxid }),
            changed = changes.changed() => if changed.is_err() { return },
            Ok(()) = doubts.changed() => {
                let member = *doubts.borrow_and_update();
                call(&consensus, member).await;
                sleep(PAUSE).await;
            }
            () = sleep(LOOK) => {}
        }
    }
}

/// Asks the peers whether this node was removed, because the entry that notes the removal may not
/// have reached this node.
async fn ask_whether_removed(consensus: &Consensus) {
    let known = |answer| match answer {
        Answer::Members(known) => Some(known),
        _ => None,
    };
    let answers = consensus.peers.ask_all(Ask::Members, known, Instant::now() + consensus.peer_timeout).await;
    // Both ends have compared their uuids when they connected. An answer without a uuid does not
    // count.
    let removed = answers.into_iter().find_map(|(_, known)| known.uuid.and(known.asker_removed));
    if let Some(zxid) = removed {
        consensus.cluster.learn_own_removal(Zxid(zxid));
    }
}

/// Connects to a member at its configured address, only for the handshake: both ends tell their
/// format levels. A level that this node's program does not know ends this node.
async fn call(consensus: &Consensus, member: u64) {
    if let Some(peer) = consensus.peers.get(member) {
        let _ = peer.target(Lane::Control).connect().await;
    }
}
