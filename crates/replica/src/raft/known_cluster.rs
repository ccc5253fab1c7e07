//! What this node knows of its cluster, from its disk and from the entries that it has applied. Its
//! peers are asked to agree with it.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use storage::NodeMeta;
use tokio::time::Instant;
use znode::{Cluster, ClusterUuid, Founding, LEVEL, Zxid};

use crate::operate::seldom::Seldom;

/// Which cluster it is, at which level, and who was removed from it.
#[derive(Debug, Default)]
pub(crate) struct KnownCluster {
    founding: OnceLock<Founding>,
    /// 0 as long as this node does not know.
    level: AtomicU16,
    removed: Mutex<BTreeMap<u64, Zxid>>,
    /// The data directories of the peers, as they said when they were met last.
    incarnations: Mutex<BTreeMap<u64, u64>>,
    changed: Seldom,
}

impl KnownCluster {
    /// What the data directory says.
    pub(crate) fn of(meta: &NodeMeta) -> KnownCluster {
        let known = KnownCluster::default();
        if let Some((uuid, zxid_base, group)) = meta.founding() {
            known.note(Founding { uuid: ClusterUuid(uuid), zxid_base, group });
        }
        known
    }

    fn note(&self, founding: Founding) -> &Founding {
        self.founding.get_or_init(|| founding)
    }

    /// The node has applied, or is about to apply, what says this.
    pub(crate) fn learn(&self, cluster: &Cluster) {
        self.note(*cluster.founding());
        self.level.store(cluster.level(), Ordering::Release);
        *self.removed_ids() = cluster.removed().collect();
    }

    /// Makes durable which cluster this is, before any entry behind the founding one is applied.
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

    /// Whether a peer with this uuid may be of the same cluster: one of the two need not know yet.
    pub(crate) fn may_be(&self, uuid: Option<ClusterUuid>) -> bool {
        uuid.zip(self.uuid()).is_none_or(|(theirs, own)| theirs == own)
    }

    /// Notes which data directory a peer has.
    pub(crate) fn met(&self, peer: u64, incarnation: u64) {
        let before = self.incarnations.lock().unwrap_or_else(PoisonError::into_inner).insert(peer, incarnation);
        if before.is_some_and(|before| before != incarnation)
            && let Some(times) = self.changed.note(Instant::now())
        {
            tracing::warn!(peer, times, "a peer has come back with another data directory");
        }
    }

    /// Whether the founding is applied where the last zxid is this one.
    pub(crate) fn is_founded_at(&self, applied: Zxid) -> bool {
        self.founding().is_some_and(|founding| applied.0 > founding.zxid_base)
    }

    /// The zxid of an entry, given that everything up to it is applied.
    pub(crate) fn zxid(&self, index: u64) -> Zxid {
        Zxid(self.founding().map_or(0, |founding| founding.zxid_base) + index)
    }

    /// The levels that the other end must know: the cluster's, or any of this program's.
    pub(crate) fn levels(&self) -> (u16, u16) {
        match self.level.load(Ordering::Acquire) {
            0 => (1, LEVEL),
            level => (level, level),
        }
    }

    /// When a node was removed.
    pub(crate) fn removed_at(&self, id: u64) -> Option<Zxid> {
        self.removed_ids().get(&id).copied()
    }

    fn removed_ids(&self) -> MutexGuard<'_, BTreeMap<u64, Zxid>> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use storage::memory::MemoryDisk;
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
        let again = KnownCluster::of(&meta);
        assert_eq!(again.founding(), Some(&founding(7)));
        assert!(again.may_be(None) && again.may_be(again.uuid()) && !again.may_be(Some(ClusterUuid([8; 16]))));
    }

    #[test]
    fn levels_and_removed_members_are_those_of_the_state() {
        let mut state = State::default();
        for (index, op) in (1..).zip([Op::Found(founding(7)), Op::NoteRemoved { node_id: 3 }]) {
            let request = Request::new(op);
            let at = LogPosition { term: Term(1), zxid: state.zxid_of(index, Some(&request)) };
            state.apply(at, Txn { time_ms: 1, request }).reply.unwrap();
        }
        let known = KnownCluster::default();
        assert_eq!((known.levels(), known.removed_at(3)), ((1, LEVEL), None));
        known.learn(state.cluster().unwrap());
        assert_eq!((known.levels(), known.removed_at(3)), ((1, 1), Some(Zxid(1_002))));
        assert_eq!(known.removed_at(2), None);
    }
}
