//! Progress of a node, as found on its disk at its start.

use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use storage::{NodeMeta, Snapshot, SnapshotStore, TypeConfig, Vote};
use znode::{DecodeError, Levels, OtherLevel, StateBuilder, Zxid};

use crate::StartError;
use crate::raft::known_cluster::KnownCluster;

/// Progress of a node, as found on its disk at its start.
pub(crate) struct StoredProgress {
    /// True if the node has a vote.
    pub(crate) joined: bool,
    /// The node's last vote; `None` if it never voted.
    pub(crate) vote: Option<Vote>,
    /// Zxid of the last entry in the node's log.
    pub(crate) last_log: Zxid,
    /// Zxid of the last entry that the node knew to be committed. Until this entry is applied
    /// again, the state is older than before the restart.
    pub(crate) committed: Zxid,
    /// Zxid of the last entry in the node's snapshot.
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

    /// Tells whether the data directory was new.
    pub(crate) fn is_new(&self) -> bool {
        !self.joined && self.last_log == Zxid(0) && self.snapshot == Zxid(0)
    }
}

/// Number of a snapshot's records that must be read to find its format level: the head, and the
/// record right behind it.
const HEAD_RECORDS: usize = 2;

/// Format level of a snapshot, if a program with the levels `known` does not know it; otherwise
/// `None`. Raft would only say that the snapshot cannot be read. Other damage is left for Raft to
/// report.
fn at_other_level(snapshot: &Snapshot, known: Levels) -> Option<OtherLevel> {
    let mut builder = StateBuilder::knowing(known);
    let mut heads = snapshot.records().take(HEAD_RECORDS);
    heads.find_map(|record| match builder.push(&record.ok()?) {
        Err(DecodeError::Level(other)) => Some(other),
        _ => None,
    })
}
