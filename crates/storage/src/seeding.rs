//! Makes the data directory of a node whose whole history is one snapshot, as in a restored
//! cluster.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Doing, Error};
use crate::raft::types::{SnapshotMeta, Vote};
use crate::storage::{Storage, StorageConfig};

/// Directory that a new file system contains from the start. A data directory with only this entry
/// counts as empty.
const OF_THE_FILE_SYSTEM: &str = "lost+found";

/// Content of a new data directory, apart from the records of its snapshot.
#[derive(Clone, Debug)]
pub struct Seed {
    /// Uuid of the cluster, zxid base (the number that is added to a log index to form a zxid), and
    /// number of the cluster's Raft group, which is always 0.
    pub founding: ([u8; 16], u64, u32),
    /// Position of the snapshot's last entry, and the membership.
    pub meta: SnapshotMeta,
}

impl Storage {
    /// Creates a data directory with one snapshot, an empty log that begins after the snapshot's
    /// last entry, and a vote for this node in the snapshot's term. With this vote no other node
    /// can win the term. Durable on return. Blocking.
    ///
    /// After a crash during this call, the directory can have the cluster's uuid, but its node does
    /// not count as joined.
    ///
    /// # Errors
    /// `NotEmpty` when the directory has any entry but `lost+found`; otherwise any error of the
    /// disk.
    pub fn begin_with(
        config: StorageConfig,
        seed: &Seed,
        mut records: impl Iterator<Item = Vec<u8>>,
    ) -> Result<Storage, Error> {
        let (dir, node_id) = (config.data_dir.clone(), config.node_id);
        check_empty(&dir)?;
        let storage = Storage::open(config)?;
        let doing = || format!("writing the snapshot into {}", dir.display());
        storage.meta.set_founding(seed.founding).doing(doing)?;
        let mut writer = storage.snapshots.writer().doing(doing)?;
        records.try_for_each(|record| writer.push(&record)).doing(doing)?;
        writer.finish(&seed.meta).doing(doing)?;
        let doing = || format!("beginning the log in {}", dir.display());
        if let Some(last) = seed.meta.last_log_id {
            let vote = Vote::new(last.committed_leader_id().term, node_id);
            storage.log.begin_vote(&vote).doing(doing)?;
            storage.log.begin_behind(last).doing(doing)?;
        }
        // Set last: the mark lets the node vote, which is safe only with the snapshot and the vote
        // on disk.
        storage.meta.set_joined().doing(doing)?;
        Ok(storage)
    }
}

fn check_empty(dir: &Path) -> Result<(), Error> {
    let doing = || format!("looking into {}", dir.display());
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.doing(doing)?,
    };
    for entry in entries {
        if entry.doing(doing)?.file_name() != OF_THE_FILE_SYSTEM {
            return Err(Error::NotEmpty { dir: dir.into() });
        }
    }
    Ok(())
}
