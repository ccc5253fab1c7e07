//! Makes the data directory of a node whose whole history is one snapshot, as in a restored
//! cluster.

use std::fs;
use std::io;
use std::path::Path;

use crate::directory::node_meta::{Identity, NodeMeta};
use crate::error::{Doing, Error};
use crate::raft::types::{SnapshotMeta, Vote};
use crate::storage::{Storage, StorageConfig};

/// Directory that a file system itself puts into a new volume.
const OF_THE_FILE_SYSTEM: &str = "lost+found";

/// Content of a new data directory, apart from the records of its snapshot.
#[derive(Clone, Debug)]
pub struct Seed {
    /// Uuid, zxid base and group of the cluster.
    pub founding: ([u8; 16], u64, u32),
    /// The last entry of the snapshot and the members.
    pub meta: SnapshotMeta,
}

impl Storage {
    /// Makes a data directory with one snapshot, a log that begins behind it, and a vote for this
    /// node in the snapshot's term, so that no other node is elected in that term. Durable on
    /// return. Blocking.
    ///
    /// A directory that a crash leaves incomplete has the cluster's uuid, but its node does not
    /// count as joined.
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
        // Last: with this mark the node may vote, and by now it has everything that it needs for
        // that.
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

/// Identity of the node whose data a directory holds, without opening it; `None` for a directory
/// without data.
///
/// # Errors
/// As [`Storage::open`].
pub fn owner_of(dir: &Path) -> Result<Option<Identity>, Error> {
    NodeMeta::identity_in(dir)
}
