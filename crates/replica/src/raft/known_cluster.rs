//! Facts that this node knows of its cluster, from its disk and from the entries that it has
//! applied. Connections to peers that contradict these facts are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use accept::{Mutex, Seldom};
use storage::NodeMeta;
use tokio::sync::watch;
use tokio::time::Instant;
use znode::{Cluster, ClusterUuid, Founding, Levels, OtherLevel, Zxid};

use crate::Program;

/// Largest number of nodes whose facts are kept: more than a cluster has members, because new nodes
/// call before they are added.
const MET_MAX: usize = 64;

/// Facts that a peer has told of itself.
#[derive(Clone, Debug)]
pub(crate) struct PeerFacts {
    /// Incarnation of the peer's data directory: a random number that a new directory draws.
    pub(crate) incarnation: u64,
    /// Version of zlock that the peer runs, with the format levels (versions of the format of log
    /// and snapshots) that it knows; `None` if the peer's handshake did not have them.
    pub(crate) program: Option<Program>,
    /// Preference for the peer as leader, 0 to 100; `None` if it did not tell.
    pub(crate) leader_priority: Option<u8>,
    /// Ids of the members in the peer's configuration, which may found the cluster; `None` if the
    /// peer is to join an existing cluster, or did not tell.
    pub(crate) founders: Option<BTreeSet<u64>>,
    /// Address of the peer's listener in the membership; `None` if the peer did not tell it.
    pub(crate) peer_addr: Option<String>,
}

/// Facts of the cluster: its founding (uuid and zxid base), its format level (version of the format
/// of log and snapshots), its members, and the members that were removed from it.
#[derive(Debug, Default)]
pub(crate) struct KnownCluster {
    /// Id of this node.
    node_id: u64,
    /// The program that this node runs.
    program: Program,
    founding: OnceLock<Founding>,
    /// Format level of the cluster; 0 as long as this node does not know it.
    level: AtomicU16,
    removed: Mutex<BTreeMap<u64, Zxid>>,
    /// Peer addresses of the members in the membership in force, by id; empty before there is one.
    members: Mutex<BTreeMap<u64, String>>,
    /// Facts that each peer told of itself in the last handshake with this node.
    met: Mutex<BTreeMap<u64, PeerFacts>>,
    changed: Seldom,
    /// The cluster's format level, if it is known to be above all levels that this node's program
    /// knows. The node fails as soon as there is such a level; until then the value is `None`.
    outgrown: watch::Sender<Option<OtherLevel>>,
    /// Id of the member that is to be asked for its format level, because a message in its name
    /// tells of a level that this node's program does not know. A later such message replaces the
    /// id.
    doubts: watch::Sender<u64>,
    /// Zxid of this node's removal, which a peer has reported or this node has applied; `None`
    /// while this node knows of no removal.
    own_removal: watch::Sender<Option<Zxid>>,
}

impl KnownCluster {
    /// Reads the cluster's founding from the data directory of a node that runs `program`.
    pub(crate) fn of(meta: &NodeMeta, program: Program) -> KnownCluster {
        let known = KnownCluster { node_id: meta.identity().node_id, program, ..KnownCluster::default() };
        if let Some((uuid, zxid_base, group)) = meta.founding() {
            known.note(Founding { uuid: ClusterUuid(uuid), zxid_base, group });
        }
        known
    }

    fn note(&self, founding: Founding) -> &Founding {
        self.founding.get_or_init(|| founding)
    }

    /// Learns the founding, the format level and the removed members from a state that the node has
    /// applied, or is about to apply.
    pub(crate) fn learn(&self, cluster: &Cluster) {
        self.note(*cluster.founding());
        self.level.store(cluster.level(), Ordering::Release);
        *self.removed.lock() = cluster.removed().collect();
        if let Some(zxid) = self.removed_at(self.node_id) {
            self.learn_own_removal(zxid);
        }
    }

    /// Makes the identity of the cluster durable, before any entry after the founding is applied.
    /// Blocking.
    ///
    /// # Errors
    /// When this directory has entries of another cluster, and any disk error: the node must stop.
    pub(crate) fn join(&self, meta: &NodeMeta, founding: Founding) -> io::Result<()> {
        let known = self.founding.get().copied().unwrap_or(founding);
        if known != founding {
            let (own, other) = (known.uuid, founding.uuid);
            let what = format!("this data directory is of cluster uuid {own}, and what came from its peers of {other}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        meta.set_founding((founding.uuid.0, founding.zxid_base, founding.group))?;
        self.note(founding);
        Ok(())
    }

    pub(crate) fn founding(&self) -> Option<&Founding> {
        self.founding.get()
    }

    pub(crate) fn uuid(&self) -> Option<ClusterUuid> {
        self.founding().map(|founding| founding.uuid)
    }

    pub(crate) fn group(&self) -> u32 {
        self.founding().map_or(0, |founding| founding.group)
    }

    /// Tells whether a peer with this cluster uuid may be in this cluster: the uuids are equal, or
    /// one of the two nodes does not know its uuid yet.
    pub(crate) fn may_be(&self, uuid: Option<ClusterUuid>) -> bool {
        uuid.zip(self.uuid()).is_none_or(|(theirs, own)| theirs == own)
    }

    /// Notes the facts that a peer has told of itself in a handshake. Beyond the bound, forgets a
    /// node that is not a member.
    pub(crate) fn met(&self, peer: u64, met: PeerFacts) {
        let incarnation = met.incarnation;
        let before = {
            let mut all = self.met.lock();
            if all.len() >= MET_MAX && !all.contains_key(&peer) {
                let members = self.members.lock();
                let stranger = all.keys().copied().find(|id| !members.contains_key(id));
                stranger.map(|id| all.remove(&id));
            }
            all.insert(peer, met)
        };
        if before.is_some_and(|before| before.incarnation != incarnation)
            && let Some(times) = self.changed.note(Instant::now())
        {
            tracing::warn!(peer, times, "a peer has come back with another data directory");
        }
    }

    fn last_met(&self, peer: u64) -> Option<PeerFacts> {
        self.met.lock().get(&peer).cloned()
    }

    /// Incarnation (random number) of a peer's data directory at the last handshake; `None` before
    /// the first handshake.
    pub(crate) fn incarnation_of(&self, peer: u64) -> Option<u64> {
        self.last_met(peer).map(|met| met.incarnation)
    }

    /// Preference for a peer as leader, 0 to 100, as the peer told it in the last handshake.
    pub(crate) fn priority_of(&self, peer: u64) -> Option<u8> {
        self.last_met(peer)?.leader_priority
    }

    /// Members in a peer's configuration, as the peer told them in the last handshake.
    pub(crate) fn founders_of(&self, peer: u64) -> Option<BTreeSet<u64>> {
        self.last_met(peer)?.founders
    }

    /// Tells whether a state whose last zxid is `applied` contains the cluster's founding entry.
    pub(crate) fn is_founded_at(&self, applied: Zxid) -> bool {
        self.founding().is_some_and(|founding| applied.0 > founding.zxid_base)
    }

    /// Zxid of the entry at `index`. Correct only once this node knows the cluster's founding, from
    /// its disk or from the applied entry.
    pub(crate) fn zxid(&self, index: u64) -> Zxid {
        Zxid(self.founding().map_or(0, |founding| founding.zxid_base) + index)
    }

    /// The program that this node runs.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// Program that a peer ran at the last handshake; `None` if it did not tell.
    pub(crate) fn program_of(&self, peer: u64) -> Option<Program> {
        self.last_met(peer)?.program
    }

    /// Lowest and highest format level of the cluster with which this node can go on. The lowest is
    /// the cluster's level, as far as this node knows it; the highest is the highest that its
    /// program knows. A peer that is ahead may already have applied an entry that raises the level.
    pub(crate) fn levels(&self) -> (u16, u16) {
        let Levels { min, max } = self.program.levels;
        (self.level.load(Ordering::Acquire).max(min), max)
    }

    /// Takes the lowest and highest format level that a peer told when this node connected to it.
    /// This node fails if even the lowest is beyond its program.
    pub(crate) fn note_levels(&self, (low, _): (u16, u16)) {
        if low > self.program.levels.max {
            self.outgrow(OtherLevel { level: low, known: self.program.levels });
        }
    }

    /// Notes the peer addresses of the members, by id.
    pub(crate) fn note_members(&self, addrs: BTreeMap<u64, String>) {
        *self.members.lock() = addrs;
    }

    /// Ids of the members, as far as this node knows; empty before it knows any.
    pub(crate) fn member_ids(&self) -> BTreeSet<u64> {
        self.members.lock().keys().copied().collect()
    }

    /// Peer address of this node as a member; `None` while this node does not know it.
    pub(crate) fn own_addr(&self) -> Option<String> {
        self.members.lock().get(&self.node_id).cloned()
    }

    /// Peer addresses that nodes have told of themselves in their last handshakes, by id.
    pub(crate) fn told_addrs(&self) -> Vec<(u64, String)> {
        self.met.lock().iter().filter_map(|(id, facts)| Some((*id, facts.peer_addr.clone()?))).collect()
    }

    /// Notes that this node was removed.
    pub(crate) fn learn_own_removal(&self, zxid: Zxid) {
        self.own_removal.send_if_modified(|heard| heard.replace(zxid).is_none());
    }

    /// Waits until this node knows that it was removed. Returns the zxid of the removal.
    pub(crate) async fn own_removal(&self) -> Zxid {
        let mut heard = self.own_removal.subscribe();
        match heard.wait_for(Option::is_some).await.map(|zxid| *zxid) {
            Ok(Some(zxid)) => zxid,
            _ => std::future::pending().await,
        }
    }

    /// Notes that a message in this member's name tells of a format level that this program does
    /// not know. Another sender may have forged the message, so this node must ask the member at
    /// the member's address.
    pub(crate) fn doubt_level(&self, member: u64) {
        self.doubts.send_replace(member);
    }

    /// Channel of the id of the member that must be asked for its format level.
    pub(crate) fn doubts(&self) -> watch::Receiver<u64> {
        self.doubts.subscribe()
    }

    /// Notes that the cluster is at a format level that this program does not know, so that the
    /// node fails.
    pub(crate) fn outgrow(&self, level: OtherLevel) {
        self.outgrown.send_if_modified(|outgrown| outgrown.replace(level).is_none());
    }

    /// Channel of the cluster's format level; its value is `None` as long as this program knows the
    /// level.
    pub(crate) fn outgrown(&self) -> watch::Receiver<Option<OtherLevel>> {
        self.outgrown.subscribe()
    }

    /// Zxid of the entry that removed a member; `None` if the member was not removed.
    pub(crate) fn removed_at(&self, id: u64) -> Option<Zxid> {
        self.removed.lock().get(&id).copied()
    }
}

#[cfg(test)]
mod tests {
    use sim::memory_disk::MemoryDisk;
    use znode::{LogPosition, Op, Request, State, Term, Txn};

    use super::*;

    fn founding(uuid: u8) -> Founding {
        Founding { uuid: ClusterUuid([uuid; 16]), zxid_base: 1_000, group: 0 }
    }

    fn meta() -> NodeMeta {
        let identity = storage::Identity { cluster_id: "c".into(), node_id: 1 };
        MemoryDisk::default().open(identity).unwrap().meta
    }

    #[test]
    fn a_directory_of_one_cluster_takes_nothing_of_another() {
        let (known, meta) = (KnownCluster::default(), meta());
        assert_eq!((known.uuid(), known.zxid(3)), (None, Zxid(3)));
        known.join(&meta, founding(7)).unwrap();
        assert_eq!((known.uuid(), known.zxid(3)), (Some(ClusterUuid([7; 16])), Zxid(1_003)));
        let refused = known.join(&meta, founding(8)).unwrap_err();
        assert!(refused.to_string().contains("this data directory is of cluster uuid 07070707"), "{refused}");
        // The next process finds it on the disk.
        let again = KnownCluster::of(&meta, Program::default());
        assert_eq!(again.founding(), Some(&founding(7)));
        assert!(again.may_be(None) && again.may_be(again.uuid()) && !again.may_be(Some(ClusterUuid([8; 16]))));
    }

    #[test]
    fn beyond_the_bound_a_node_that_is_no_member_is_forgotten() {
        let known = KnownCluster::default();
        known.note_members(BTreeMap::from([(1, "one:2281".into()), (3, "three:2281".into())]));
        let facts = |incarnation| PeerFacts {
            incarnation,
            program: None,
            leader_priority: None,
            founders: None,
            peer_addr: None,
        };
        for id in 1..=MET_MAX as u64 {
            known.met(id, facts(id));
        }
        known.met(3, facts(300));
        assert_eq!(known.incarnation_of(2), Some(2), "a member that is known takes no place");
        known.met(1_000, facts(1_000));
        assert_eq!(
            [1, 2, 3, 4, 1_000].map(|id| known.incarnation_of(id)),
            [Some(1), None, Some(300), Some(4), Some(1_000)]
        );
        assert_eq!(known.met.lock().len(), MET_MAX);
    }

    #[test]
    fn levels_and_removed_members_are_those_of_the_state() {
        let mut state = State::default();
        for (index, op) in (1..).zip([Op::Found(founding(7)), Op::NoteRemoved { node_id: 3 }]) {
            let request = Request::new(op);
            let at = LogPosition { term: Term(1), zxid: state.zxid_of(index, Some(&request)) };
            state.apply(at, Txn { proven: false, time_ms: 1, request }).reply.unwrap();
        }
        let request = Request::new(Op::SetLevel { level: 3 });
        let at = LogPosition { term: Term(1), zxid: state.zxid_of(3, Some(&request)) };
        state.apply(at, Txn { proven: false, time_ms: 1, request }).reply.unwrap();
        let program = Program { version: String::new(), levels: Levels { min: 2, max: 4 } };
        let known = KnownCluster::of(&meta(), program);
        assert_eq!((known.levels(), known.removed_at(3)), ((2, 4), None));
        known.learn(state.cluster().unwrap());
        assert_eq!((known.levels(), known.removed_at(3)), ((3, 4), Some(Zxid(1_002))));
        assert_eq!(known.removed_at(2), None);
        known.note_levels((4, 9));
        assert_eq!(*known.outgrown().borrow(), None);
        known.note_levels((5, 9));
        assert_eq!(known.outgrown().borrow().map(|other| other.level), Some(5));
    }

    #[test]
    fn a_node_that_applies_its_own_removal_knows_it() {
        let known = KnownCluster::of(&meta(), Program::default());
        let removal_after = |node_id| {
            let mut state = State::default();
            for (index, op) in (1..).zip([Op::Found(founding(7)), Op::NoteRemoved { node_id }]) {
                let request = Request::new(op);
                let at = LogPosition { term: Term(1), zxid: state.zxid_of(index, Some(&request)) };
                state.apply(at, Txn { proven: false, time_ms: 1, request }).reply.unwrap();
            }
            known.learn(state.cluster().unwrap());
            *known.own_removal.borrow()
        };
        // The data directory is that of node 1.
        assert_eq!(removal_after(3), None);
        assert_eq!(removal_after(1), Some(Zxid(1_002)));
    }
}
