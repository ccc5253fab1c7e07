//! The progress that a node finds stored on its disk when it starts.

use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use storage::{NodeMeta, Snapshot, SnapshotStore, TypeConfig, Vote};
use znode::{DecodeError, Levels, OtherLevel, StateBuilder, Zxid};

use crate::StartError;
use crate::raft::known_cluster::KnownCluster;

/// The progress of a node as its disk has it: the ends of what is stored.
pub(crate) struct StoredProgress {
    /// True if the node has a vote.
    pub(crate) joined: bool,
    /// The node's last vote.
    pub(crate) vote: Option<Vote>,
    /// The last entry of its log.
    pub(crate) last_log: Zxid,
    /// The last one that it knew to be committed: what must be applied again before it knows what
    /// it knew.
    pub(crate) committed: Zxid,
    /// The last one in its snapshot.
    pub(crate) snapshot: Zxid,
}

impl StoredProgress {
    pub(crate) async fn read<L>(
        log: &mut L,
        meta: &NodeMeta,
        snapshots: &SnapshotStore,
        cluster: &KnownCluster,
    ) -> Result<StoredProgress, StartError>
    where
        L: RaftLogStorage<TypeConfig>,
    {
        let unreadable = |error: std::io::Error| StartError::Storage(error.to_string());
        let zxid = |index: Option<u64>| index.map_or(Zxid(0), |index| cluster.zxid(index));
        let vote = log.get_log_reader().await.read_vote().await.map_err(unreadable)?;
        let committed = log.read_committed().await.map_err(unreadable)?.map(|id| id.index);
        let last_log = log.get_log_state().await.map_err(unreadable)?.last_log_id.map(|id| id.index);
        if let Some(other) =
            snapshots.current().and_then(|snapshot| at_other_level(&snapshot, cluster.program().levels))
        {
            return Err(StartError::Level(other));
        }
        let snapshot = snapshots.current().and_then(|snapshot| snapshot.meta().last_log_id).map(|id| id.index);
        let (last_log, committed, snapshot) = (zxid(last_log), zxid(committed), zxid(snapshot));
        Ok(StoredProgress { joined: meta.joined(), vote, last_log, committed, snapshot })
    }

    /// Tells whether there was nothing.
    pub(crate) fn is_new(&self) -> bool {
        !self.joined && self.last_log == Zxid(0) && self.snapshot == Zxid(0)
    }
}

/// Records of a snapshot that say of which level it is: its head, and what stands right behind it.
const HEAD_RECORDS: usize = 2;

/// The level of a snapshot, where a program with these levels does not know it. Raft would only say
/// that it cannot be read. Other damage is left to Raft.
fn at_other_level(snapshot: &Snapshot, known: Levels) -> Option<OtherLevel> {
    let mut builder = StateBuilder::knowing(known);
    let mut heads = snapshot.records().take(HEAD_RECORDS);
    heads.find_map(|record| match builder.push(&record.ok()?) {
        Err(DecodeError::Level(other)) => Some(other),
        _ => None,
    })
}
