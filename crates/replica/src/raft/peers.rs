//! Peers of this node: the other members of the membership in force, or of the configuration as
//! long as there is no membership. Members come, go and move while a node runs.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use accept::Mutex;
use futures_util::future::join_all;
use storage::{Durations, StoredMembership, WORK};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::raft::purge_index::PurgeIndex;
use crate::raft::quorum_contact::{self, Following};
use crate::raft::reach::Reach;
use crate::raft::transport::{Addresses, Answer, Ask, Channel, Identity, Lane, Standing, Target};
use crate::stop::Stop;

/// One peer, and the connections to it that all tasks of this node share.
pub(crate) struct Peer {
    identity: Identity,
    id: u64,
    addrs: Arc<Addresses>,
    peer_timeout: Duration,
    /// Newest append or heartbeat of this leader that the peer has accepted, and the last entry
    /// that the peer has acknowledged.
    pub(crate) following: Arc<Following>,
    /// Round trips of this node's pings to the peer.
    pub(crate) round_trips: Arc<Durations>,
    /// Outcome of the last try to connect to the peer.
    pub(crate) reach: Arc<Reach>,
    /// Number of snapshots that the peer has received.
    sent: Arc<AtomicU64>,
    /// Number of failures to send the peer a snapshot, and the last failure.
    send_failures: Arc<SendFailures>,
    /// Connection for votes and for questions about the ensemble.
    pub(crate) control: Channel,
    /// Connection for proposals, heartbeats of sessions and read indexes.
    pub(crate) forward: Channel,
}

impl Peer {
    pub(crate) fn target(&self, lane: Lane) -> Target {
        let (identity, addrs, reach) = (self.identity.clone(), Arc::clone(&self.addrs), Arc::clone(&self.reach));
        Target { identity, to: self.id, addrs, lane, peer_timeout: self.peer_timeout, reach, is_peer: true }
    }

    /// `host:port` of the peer's listener.
    pub(crate) fn addr(&self) -> Arc<str> {
        self.addrs.current()
    }

    /// Notes whether a snapshot was sent to the peer; `failed` is the error. Raft tries again after
    /// a pause, so only a change of the outcome is logged.
    pub(crate) fn note_snapshot(&self, failed: Option<&io::Error>) {
        self.sent.fetch_add(u64::from(failed.is_none()), Ordering::Relaxed);
        if self.send_failures.note(failed.map(io::Error::kind)) {
            match failed {
                Some(error) => tracing::warn!(to = self.id, %error, "a snapshot was not sent"),
                None => tracing::info!(to = self.id, "a snapshot was sent at last"),
            }
        }
    }
}

/// Failures to send a snapshot to one peer.
#[derive(Debug, Default)]
struct SendFailures {
    count: AtomicU64,
    /// Failure of the last try; `None` after a success.
    last: Mutex<Option<io::ErrorKind>>,
}

impl SendFailures {
    /// Notes the outcome of a try, and counts it if it failed. Returns true if the outcome differs
    /// from that of the try before.
    fn note(&self, failed: Option<io::ErrorKind>) -> bool {
        self.count.fetch_add(u64::from(failed.is_some()), Ordering::Relaxed);
        std::mem::replace(&mut *self.last.lock(), failed) != failed
    }
}

/// All peers of this node. Clones share the connections.
#[derive(Clone)]
pub(crate) struct Peers {
    table: Arc<RwLock<PeerTable>>,
    parts: Arc<PeerParts>,
    pub(crate) purge_index: PurgeIndex,
    pub(crate) peer_timeout: Duration,
    /// Wakes its waiters each time that a peer has accepted an append or heartbeat of this leader.
    noted: Arc<Notify>,
}

/// Values that all peers share.
struct PeerParts {
    identity: Identity,
    stop: Stop,
    /// Configured members without this node, each with the address of its peer listener.
    seeds: BTreeMap<u64, String>,
}

#[derive(Default)]
struct PeerTable {
    by_id: BTreeMap<u64, Arc<Peer>>,
    /// Counts of sent snapshots and of lost entries, summed over the peers that are no members any
    /// more.
    gone: PeerTally,
}

/// Counts of sent snapshots and of lost entries since this node started, each summed over all
/// peers.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerTally {
    /// Number of snapshots that peers have received.
    pub snapshots_sent: u64,
    /// Number of failures to send a snapshot to a peer.
    pub snapshot_send_failures: u64,
    /// Number of times that a peer turned out to have lost entries that it had acknowledged to this
    /// leader.
    pub entries_lost: u64,
}

impl PeerTally {
    fn with(self, peer: &Peer) -> PeerTally {
        PeerTally {
            snapshots_sent: self.snapshots_sent + peer.sent.load(Ordering::Relaxed),
            snapshot_send_failures: self.snapshot_send_failures + peer.send_failures.count.load(Ordering::Relaxed),
            entries_lost: self.entries_lost + peer.following.losses(),
        }
    }
}

impl Peers {
    /// Makes a peer of each configured member but this node. `peer_timeout` is the longest time of
    /// a round trip, connecting included.
    pub(crate) fn new(identity: &Identity, members: &[crate::Member], peer_timeout: Duration, stop: &Stop) -> Peers {
        let others = members.iter().filter(|member| member.id != identity.node_id);
        let seeds = others.map(|member| (member.id, member.peer_addr.clone())).collect();
        let parts = Arc::new(PeerParts { identity: identity.clone(), stop: stop.clone(), seeds });
        let peers = Peers {
            table: Arc::default(),
            parts: Arc::clone(&parts),
            purge_index: PurgeIndex::default(),
            peer_timeout,
            noted: Arc::default(),
        };
        for (id, addr) in &parts.seeds {
            peers.reach(*id, addr);
        }
        peers
    }

    /// Makes a peer of the node that listens at `addr`, unless it is a peer at that address
    /// already.
    pub(crate) fn reach(&self, id: u64, addr: &str) {
        if id == self.parts.identity.node_id {
            return;
        }
        let has = |table: &PeerTable| table.by_id.get(&id).is_some_and(|peer| peer.addrs.first() == addr);
        if has(&self.table()) {
            return;
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if !has(&table) {
            let peer = self.make(id, addr, table.by_id.get(&id));
            table.by_id.insert(id, Arc::new(peer));
        }
    }

    /// Returns a target to connect to a node that is no peer, to ask the node whether it may become
    /// a peer.
    pub(crate) fn stranger(&self, id: u64, addr: &str) -> Target {
        let (identity, addrs) = (self.parts.identity.clone(), Arc::new(Addresses::new(addr, None)));
        let (lane, reach, peer_timeout) = (Lane::Control, Arc::default(), self.peer_timeout);
        Target { identity, to: id, addrs, lane, peer_timeout, reach, is_peer: false }
    }

    fn make(&self, id: u64, addr: &str, before: Option<&Arc<Peer>>) -> Peer {
        let addrs = Arc::new(Addresses::new(addr, self.parts.seeds.get(&id).map(String::as_str)));
        let (identity, reach, peer_timeout) = (&self.parts.identity, Arc::<Reach>::default(), self.peer_timeout);
        let open = |lane| {
            let (identity, addrs, reach) = (identity.clone(), Arc::clone(&addrs), Arc::clone(&reach));
            Channel::open(
                Target { identity, to: id, addrs, lane, peer_timeout, reach, is_peer: true },
                self.parts.stop.clone(),
            )
        };
        let (control, forward) = (open(Lane::Control), open(Lane::Forward));
        // A peer that listens at another address keeps its counts and contact times.
        let (following, sent, send_failures) = before.map_or_else(
            || (Arc::new(Following::new(Arc::clone(&self.noted))), Arc::default(), Arc::default()),
            |peer| (Arc::clone(&peer.following), Arc::clone(&peer.sent), Arc::clone(&peer.send_failures)),
        );
        let round_trips = before.map_or_else(|| Arc::new(Durations::new(WORK)), |peer| Arc::clone(&peer.round_trips));
        Peer {
            identity: identity.clone(),
            id,
            addrs,
            peer_timeout,
            following,
            round_trips,
            reach,
            sent,
            send_failures,
            control,
            forward,
        }
    }

    /// Makes exactly the members of this membership the peers. A node without a vote passes true
    /// for `with_seeds`: then the configured members stay peers, too.
    pub(crate) fn adopt(&self, membership: &StoredMembership, with_seeds: bool) {
        let members: BTreeMap<u64, &str> =
            membership.nodes().map(|(id, member)| (*id, member.peer_addr.as_str())).collect();
        if members.is_empty() {
            return;
        }
        members.iter().for_each(|(id, addr)| self.reach(*id, addr));
        let stays = |id: &u64| members.contains_key(id) || with_seeds && self.parts.seeds.contains_key(id);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let PeerTable { by_id, gone } = &mut *table;
        by_id.retain(|id, peer| {
            let stays = stays(id);
            if !stays {
                *gone = gone.with(peer);
            }
            stays
        });
    }

    fn table(&self) -> RwLockReadGuard<'_, PeerTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all peers for their progress. Returns the answers that come before the deadline, by id.
    pub(crate) async fn standings(&self, deadline: Instant) -> Vec<(u64, Standing)> {
        let standing = |answer| match answer {
            Answer::Standing(standing) => Some(standing),
            _ => None,
        };
        self.ask_all(Ask::Standing, standing, deadline).await
    }

    /// Asks all peers the question `ask`. Returns the answers that come before the deadline, by id,
    /// as `of` converts them. Answers for which `of` returns `None` are left out.
    pub(crate) async fn ask_all<T>(
        &self,
        ask: Ask,
        of: impl Fn(Answer) -> Option<T>,
        deadline: Instant,
    ) -> Vec<(u64, T)> {
        let ask = |(id, peer): (u64, Arc<Peer>)| {
            let ask = ask.clone();
            async move { (id, peer.control.ask(ask, deadline).await) }
        };
        let answers = join_all(self.all().into_iter().map(ask)).await.into_iter();
        answers.filter_map(|(id, answer)| Some((id, of(answer.ok()?)?))).collect()
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<Peer>> {
        self.table().by_id.get(&id).cloned()
    }

    /// Time at which this leader sent the latest frame of `term` that a quorum of this membership
    /// has accepted; `None` if there is no such frame. This node counts as part of the quorum if it
    /// votes.
    pub(crate) fn followed_since(&self, term: u64, membership: &StoredMembership) -> Option<Instant> {
        self.taken_by_quorum(membership, |following| following.since(term))
    }

    /// Time at which this node, as the leader of any term, sent the latest frame that a quorum of
    /// this membership has accepted.
    pub(crate) fn followed_last(&self, membership: &StoredMembership) -> Option<Instant> {
        self.taken_by_quorum(membership, |following| following.last().map(|(_, sent)| sent))
    }

    fn taken_by_quorum(
        &self,
        membership: &StoredMembership,
        taken: impl Fn(&Following) -> Option<Instant>,
    ) -> Option<Instant> {
        let table = self.table();
        let since = |id| table.by_id.get(&id).and_then(|peer| taken(&peer.following));
        let own = self.parts.identity.node_id;
        quorum_contact::quorum(membership.get_joint_config(), own, since)
    }

    /// Waits until a peer accepts an append or heartbeat of this leader.
    pub(crate) fn noted(&self) -> tokio::sync::futures::Notified<'_> {
        self.noted.notified()
    }

    /// Counts of sent snapshots and of lost entries since this node started, each summed over all
    /// peers.
    pub(crate) fn tally(&self) -> PeerTally {
        let table = self.table();
        table.by_id.values().fold(table.gone, |tally, peer| tally.with(peer))
    }

    pub(crate) fn all(&self) -> Vec<(u64, Arc<Peer>)> {
        self.table().by_id.iter().map(|(id, peer)| (*id, Arc::clone(peer))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use storage::{Member, Membership};

    use super::*;

    #[test]
    fn a_snapshot_that_is_tried_again_and_again_is_told_once_for_each_change() {
        let (send_failures, full, refused) =
            (SendFailures::default(), Some(io::ErrorKind::StorageFull), Some(io::ErrorKind::ConnectionRefused));
        let told = [None, full, full, full, refused, refused, None, None, full].map(|end| send_failures.note(end));
        assert_eq!(told, [false, true, false, false, true, false, true, false, true]);
        assert_eq!(send_failures.count.load(Ordering::Relaxed), 6);
    }

    fn membership(members: &[(u64, &str)]) -> StoredMembership {
        let voters: BTreeSet<u64> = members.iter().map(|(id, _)| *id).collect();
        let nodes: BTreeMap<u64, Member> = members
            .iter()
            .map(|(id, addr)| (*id, Member { peer_addr: (*addr).to_owned(), ..Member::default() }))
            .collect();
        StoredMembership::new(None, Membership::new(vec![voters], nodes).unwrap())
    }

    #[tokio::test]
    async fn peers_are_those_of_the_membership_and_keep_what_is_known_of_them() {
        let seed = |id, addr: &str| crate::Member { id, peer_addr: addr.into(), http_addr: String::new() };
        let configured = [seed(1, "a:1"), seed(2, "b:1"), seed(3, "c:1")];
        let identity = Identity::new("c", 1, &[1, 2, 3]);
        let peers = Peers::new(&identity, &configured, Duration::from_secs(1), &Stop::default());
        let ids = || peers.all().into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(), [2, 3]);
        let now = Instant::now();
        peers.get(2).unwrap().following.note(4, now);
        peers.get(3).unwrap().note_snapshot(None);
        // Before there is a membership the configured ones stay, and a node without a vote keeps
        // them.
        peers.adopt(&StoredMembership::default(), false);
        assert_eq!(ids(), [2, 3]);
        let moved = membership(&[(1, "a:1"), (2, "b:2"), (4, "d:1")]);
        peers.adopt(&moved, true);
        assert_eq!(ids(), [2, 3, 4]);
        peers.adopt(&moved, false);
        assert_eq!(ids(), [2, 4]);
        let second = peers.get(2).unwrap();
        assert_eq!((&*second.addr(), second.following.since(4)), ("b:2", Some(now)));
        assert_eq!(peers.tally().snapshots_sent, 1, "counters never fall");
        // Of three voters this node and node 2 are a quorum.
        assert_eq!(peers.followed_since(4, &moved), Some(now));
    }
}
