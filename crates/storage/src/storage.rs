//! Opens everything that a node has on disk, and checks that the parts fit together.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::codec::LogIdRecord;
use crate::database::Database;
use crate::disk_guard::DiskGuard;
use crate::error::{Doing, Error};
use crate::failpoint;
use crate::fatal::Fatal;
use crate::layout::Layout;
use crate::log_store::LogStore;
use crate::node_meta::{Identity, NodeMeta};
use crate::snapshot_store::SnapshotStore;

/// What to open, and as whom.
#[derive(Clone, Debug)]
pub struct StorageConfig {
    /// The data directory. Made, with mode 0700, when missing.
    pub data_dir: PathBuf,
    /// The cluster's name.
    pub cluster_id: String,
    /// This node's id.
    pub node_id: u64,
    /// The low-water mark of [`DiskGuard`].
    pub free_disk_min_bytes: u64,
    /// The size of the ballast file; 0 for none.
    pub ballast_bytes: u64,
}

/// Everything that a node has on disk. Clones share it; the directory's lock is let go with the last one.
#[derive(Clone)]
pub struct Storage {
    /// The Raft log, the vote and the committed position.
    pub log: LogStore,
    /// The snapshots.
    pub snapshots: SnapshotStore,
    /// Whose data this is.
    pub meta: NodeMeta,
    /// How much space is left.
    pub disk: DiskGuard,
    fatal: Fatal,
    // The last field: the lock goes after everything that it guards.
    _lock: Arc<File>,
}

impl Storage {
    /// Opens the data directory, or begins a new one. Blocking.
    ///
    /// What a crash interrupted is put in order. What is damaged, somebody else's or newer is refused and left alone.
    ///
    /// # Errors
    /// Any [`Error`]; each says what to do.
    pub fn open(config: StorageConfig) -> Result<Storage, Error> {
        let layout = Layout { dir: config.data_dir.clone() };
        let lock = Arc::new(layout.enter()?);
        let disk = DiskGuard::new(&layout.dir, config.free_disk_min_bytes, config.ballast_bytes);
        let identity = Identity { cluster_id: config.cluster_id, node_id: config.node_id };
        let fatal = Fatal::new();
        let mut opened = open_parts(&layout, &identity, &fatal);
        if opened.as_ref().is_err_and(Error::is_disk_full) && disk.drop_ballast().unwrap_or(false) {
            tracing::warn!(dir = %layout.dir.display(), "the disk is full; the ballast was given up to start");
            // After an error of its own sled stays open as long as this process lives: then the next one has the space.
            if fatal.reason().is_none() {
                opened = open_parts(&layout, &identity, &fatal);
            }
        }
        let Parts { meta, snapshots, log } = opened.map_err(|error| match error {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Error::DiskFull { dir: layout.dir.clone(), source }
            }
            error => error,
        })?;
        if let Err(error) = disk.lay_ballast() {
            tracing::warn!(%error, "no ballast could be laid");
        }
        Ok(Storage { log, snapshots, meta, disk, fatal, _lock: lock })
    }

    /// Where the errors of all parts come together: when it resolves, the node must stop.
    pub fn fatal(&self) -> &Fatal {
        &self.fatal
    }
}

struct Parts {
    meta: NodeMeta,
    snapshots: SnapshotStore,
    log: LogStore,
}

fn open_parts(layout: &Layout, identity: &Identity, fatal: &Fatal) -> Result<Parts, Error> {
    let dir = &layout.dir;
    layout.tidy().doing(|| format!("tidying {}", dir.display()))?;
    if !layout.sled().exists() {
        if layout.has_log() {
            return Err(Error::Damaged {
                dir: dir.clone(),
                what: "there is a log, but the node's identity is gone".into(),
            });
        }
        create_database(layout, identity, fatal).map_err(|error| describe(dir, "making the database", error))?;
    }
    let open = || Database::open(&layout.sled(), fatal).map_err(|error| describe(dir, "opening sled", error));
    let mut database = open()?;
    let mut meta = NodeMeta::open(&database, dir, identity.clone())?;
    let open_snapshots = |database: &Database| {
        SnapshotStore::open(database).map_err(|error| describe(dir, "opening the snapshots", error))
    };
    let mut snapshots = open_snapshots(&database)?;
    if is_bloated(&snapshots).doing(|| "measuring the database".into())? {
        tracing::info!("sled takes up far more space than it holds; rebuilding it");
        database.copy_to(&layout.sled_new()).doing(|| "rebuilding the database".into())?;
        drop((database, meta, snapshots));
        layout.swap().doing(|| "replacing the database".into())?;
        database = open()?;
        meta = NodeMeta::open(&database, dir, identity.clone())?;
        snapshots = open_snapshots(&database)?;
    }
    let log = LogStore::open(&layout.log(), fatal.clone()).map_err(|error| describe(dir, "opening the log", error))?;
    own_log(layout, &log, &meta)?;
    check_log_follows_snapshot(dir, &log, &snapshots)?;
    let contained = snapshots.current().and_then(|snapshot| snapshot.meta().last_log_id);
    let refuted = contained.map_or(Ok(false), |contained| log.cut_refuted(contained));
    if refuted.map_err(|error| describe(dir, "cutting the log", error))? {
        tracing::warn!("the end of the log was none that the others committed, as the snapshot says; it was cut");
    }
    meta.set_pristine(log.is_blank() && snapshots.current().is_none() && !meta.joined());
    Ok(Parts { meta, snapshots, log })
}

/// Makes the first database beside its place and moves it there when it is whole.
fn create_database(layout: &Layout, identity: &Identity, fatal: &Fatal) -> io::Result<()> {
    let database = Database::open(&layout.sled_new(), fatal)?;
    NodeMeta::create(&database, identity)?;
    drop(database);
    layout.swap()
}

/// Writes the owner into a log that was never begun, or checks that it is this node's.
///
/// The log holds the vote. One that is lost, or another node's, would let this node vote twice in one term.
fn own_log(layout: &Layout, log: &LogStore, meta: &NodeMeta) -> Result<(), Error> {
    let damaged = |what: String| Error::Damaged { dir: layout.dir.clone(), what };
    let Identity { cluster_id, node_id } = meta.identity();
    let owner = format!("{cluster_id}/{node_id}");
    match log.owner() {
        Some(found) if found == owner => {}
        Some(found) => return Err(damaged(format!("its log is the one of {found}"))),
        None if meta.log_begun()? => return Err(damaged("its log, and with it the vote, is gone".into())),
        None => log.begin(owner).doing(|| "beginning the log".into())?,
    }
    if !meta.log_begun()? {
        // The name of the log's directory must last as well.
        crate::database::sync_dir(&layout.dir).doing(|| "beginning the log".into())?;
        meta.set_log_begun().doing(|| "beginning the log".into())?;
    }
    Ok(())
}

/// The log begins at most one entry behind the snapshot, or state is missing in between.
fn check_log_follows_snapshot(dir: &Path, log: &LogStore, snapshots: &SnapshotStore) -> Result<(), Error> {
    let purged = log.purged().as_ref().map(LogIdRecord::from);
    let contained = snapshots.current().and_then(|snapshot| snapshot.manifest().meta.last_log_id);
    if purged.map(|id| id.index) > contained.map(|id| id.index) {
        let what = format!("its log is purged up to {purged:?}, but its snapshot ends at {contained:?}");
        return Err(Error::Damaged { dir: dir.into(), what });
    }
    Ok(())
}

/// sled never shrinks its file, and a kill can leave space behind that it does not find again.
fn is_bloated(snapshots: &SnapshotStore) -> io::Result<bool> {
    if failpoint::pass("db.bloated").is_err() {
        return Ok(true);
    }
    let live = snapshots.current().map_or(0, |snapshot| snapshot.bytes());
    Ok(snapshots.disk_bytes()? > (256 << 20) + live.saturating_mul(4))
}

/// Tells damage from trouble with the system by the error's kind.
fn describe(dir: &Path, doing: &str, error: io::Error) -> Error {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    match error.kind() {
        InvalidData | InvalidInput | Other | UnexpectedEof if error.raw_os_error().is_none() => {
            Error::Damaged { dir: dir.into(), what: format!("{doing}: {error}") }
        }
        _ => Error::Io { doing: format!("{doing} in {}", dir.display()), source: error },
    }
}
