//! Opens all parts of a node's data directory and checks that they fit together.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use crate::codec::{LogIdRecord, OwnerRecord};
use crate::databases::closers::Closers;
use crate::databases::database::Databases;
use crate::databases::sled_engine::SledEngine;
use crate::directory::descriptors::hold_spare;
use crate::directory::disk_guard::DiskGuard;
use crate::directory::layout::Layout;
use crate::directory::node_meta::{Identity, NODE, NodeMeta};
use crate::directory::page_cache::drop_unwritten;
use crate::directory::place::{Files, Place, sync_dir};
use crate::error::{Doing, Error, is_damage, is_full};
use crate::fatal::Fatal;
use crate::log::log_store::LogStore;
use crate::snapshots::snapshot_store::{CURRENT, SnapshotStore};

/// Data directory to open, the identity of its node, and the limits of the disk.
#[derive(Clone, Debug)]
pub struct StorageConfig {
    /// The data directory. Created with mode 0700 when missing.
    pub data_dir: PathBuf,
    /// The cluster's name.
    pub cluster_id: String,
    /// This node's id.
    pub node_id: u64,
    /// Free space in bytes below which [`DiskGuard`] reports that the disk is low.
    pub free_disk_min_bytes: u64,
    /// Size in bytes of the ballast, a file that is deleted to free space when the disk is full; 0
    /// for no ballast.
    pub ballast_bytes: u64,
    /// True if other nodes of the cluster have copies of the data. After a loss of state, a node
    /// with peers gets the state from a leader, and a node without peers refuses to open.
    pub has_peers: bool,
}

/// All parts of a node's data directory. Clones share them; the last clone releases the directory's
/// lock.
#[derive(Clone)]
pub struct Storage {
    /// The Raft log, the vote and the committed position.
    pub log: LogStore,
    /// The snapshots.
    pub snapshots: SnapshotStore,
    /// Identity of the node that owns the data, and its progress in joining the cluster.
    pub meta: NodeMeta,
    /// Guard of the disk's free space.
    pub disk: DiskGuard,
    fatal: Fatal,
    // Lock of the data directory. It is the last field, so that it drops after all parts that use
    // the directory.
    lock: Arc<File>,
}

/// Handle for waiting until a data directory is no longer in use. Keeps the directory's lock until
/// it is dropped.
pub struct Closing {
    log: watch::Receiver<()>,
    _lock: Arc<File>,
}

impl Closing {
    /// Returns when the last clone of [`Storage`] and of its log is gone and the log is closed. The
    /// directory can be opened again once this [`Closing`] is dropped and the snapshots are closed
    /// too; [`Storage::open`] waits at most two seconds for that.
    pub async fn closed(mut self) {
        while self.log.changed().await.is_ok() {}
    }
}

impl Storage {
    /// Returns a [`Closing`] of this data directory.
    pub fn closing(&self) -> Closing {
        Closing { log: self.log.closing(), _lock: Arc::clone(&self.lock) }
    }

    /// Opens the data directory, or creates a new one. Blocking.
    ///
    /// Completes steps that a crash interrupted. A directory that is damaged, owned by another
    /// node, or in a newer format is refused and left unchanged.
    ///
    /// # Errors
    /// Any [`Error`]; each says what to do.
    pub fn open(config: StorageConfig) -> Result<Storage, Error> {
        hold_spare();
        let layout = Layout { dir: config.data_dir.clone() };
        let lock = Arc::new(layout.enter()?);
        let disk = DiskGuard::new(&layout.dir, config.free_disk_min_bytes, config.ballast_bytes);
        let identity = Identity { cluster_id: config.cluster_id, node_id: config.node_id };
        let fatal = Fatal::new();
        let has_peers = config.has_peers;
        let (closers, spare) = (Closers::new(&lock), config.free_disk_min_bytes);
        let mut opened = open_parts(&layout, &identity, has_peers, &fatal, (&closers, spare));
        if opened.as_ref().is_err_and(Error::is_disk_full) && disk.drop_ballast().unwrap_or(false) {
            tracing::warn!(dir = %layout.dir.display(), "the disk is full; the ballast was given up to start");
            // After a sled error the database stays open until this process ends, so only the next
            // start can use the freed space.
            if fatal.reason().is_none() {
                closers.rest();
                opened = open_parts(&layout, &identity, has_peers, &fatal, (&closers, spare));
            }
        }
        let Parts { meta, snapshots, log } = opened.map_err(|error| match error {
            Error::Io { source, .. } if is_full(&source) => Error::DiskFull { dir: layout.dir.clone(), source },
            error => error,
        })?;
        if let Err(error) = disk.lay_ballast() {
            tracing::warn!(%error, "no ballast could be laid");
        }
        Ok(Storage { log, snapshots, meta, disk, fatal, lock })
    }

    /// First disk error of any part of the storage. Once [`Fatal::reason`] returns a reason, the
    /// node must stop.
    pub fn fatal(&self) -> &Fatal {
        &self.fatal
    }
}

struct Parts {
    meta: NodeMeta,
    snapshots: SnapshotStore,
    log: LogStore,
}

fn open_parts(
    layout: &Layout,
    identity: &Identity,
    has_peers: bool,
    fatal: &Fatal,
    (closers, spare): (&Closers, u64),
) -> Result<Parts, Error> {
    let dir = &layout.dir;
    layout.tidy().doing(|| format!("tidying {}", dir.display()))?;
    // Dropped before the first read, as data that was read counts as durable. Only these paths are
    // dropped: the directory may contain entries of other programs, such as `lost+found`.
    let mut read = [dir.join(NODE), dir.join(CURRENT), layout.log(), layout.sled()].into_iter();
    let dropped = read.try_for_each(|path| drop_unwritten(&path)).and_then(|()| sync_dir(dir));
    dropped.doing(|| format!("syncing what is in {}", dir.display()))?;
    let place: Arc<dyn Place> = Arc::new(Files(dir.clone()));
    let doing = || "reading the node's identity".to_string();
    if !NodeMeta::is_there(&*place).doing(doing)? {
        if layout.has_log() {
            let what = "there is a log, but the node's identity is gone".into();
            return Err(Error::Damaged { dir: dir.clone(), what });
        }
        let incarnation = rand::random();
        let made = NodeMeta::create(&*place, identity, incarnation);
        made.map_err(|error| describe(dir, "writing the node's identity", error))?;
    }
    let mut meta = NodeMeta::open(&place, dir, identity.clone(), fatal)?;
    if !meta.rejoining() {
        layout.remove_lost_log().doing(|| "removing a log that was given up".into())?;
    }
    let sled = SledEngine::in_dir(&layout.sled(), fatal, closers).doing(|| "opening the snapshots".into())?;
    let snapshots = SnapshotStore::open(&place, &Databases::new(sled, fatal, spare));
    let (snapshots, lost) = snapshots.map_err(|error| describe(dir, "opening the snapshots", error))?;
    let mut log = open_log(layout, &meta, fatal)?;
    if let Some(what) = missing(&log, &snapshots, lost) {
        if !has_peers {
            return Err(Error::Damaged { dir: dir.clone(), what });
        }
        tracing::warn!(%what, "this node has lost its state: it gives up its log and has everything sent by a leader");
        log = give_up(layout, &meta, log, fatal)?;
    }
    snapshots.tidy().map_err(|error| describe(dir, "removing old snapshots", error))?;
    let contained = snapshots.current().and_then(|snapshot| snapshot.meta().last_log_id);
    let refuted = contained.map_or(Ok(false), |contained| log.cut_refuted(contained));
    if refuted.map_err(|error| describe(dir, "cutting the log", error))? {
        tracing::warn!("the end of the log was none that the others committed, as the snapshot says; it was cut");
    }
    meta.set_pristine(log.is_blank() && snapshots.current().is_none() && !meta.joined());
    keep_witness(&log, &snapshots, &meta);
    Ok(Parts { meta, snapshots, log })
}

/// Opens the log, and writes the owner record into a new log.
///
/// The log holds the vote. With a lost log, an older copy or another node's log, this node could
/// vote twice in one term. So each of them is refused.
fn open_log(layout: &Layout, meta: &NodeMeta, fatal: &Fatal) -> Result<LogStore, Error> {
    let damaged = |what: String| Error::Damaged { dir: layout.dir.clone(), what };
    let opened = LogStore::open(&layout.log(), meta.incarnation(), fatal.clone());
    let log = opened.map_err(|error| describe(&layout.dir, "opening the log", error))?;
    let Identity { cluster_id, node_id } = meta.identity();
    let owner = OwnerRecord { owner: format!("{cluster_id}/{node_id}"), incarnation: meta.incarnation(), durable: 0 };
    let owner = match log.owner() {
        Some(found) if found.owner != owner.owner => {
            return Err(damaged(format!("its log is the one of {}", found.owner)));
        }
        Some(found) if found.incarnation != owner.incarnation => {
            return Err(damaged("its log is from before its data directory was new".into()));
        }
        Some(found) => found,
        None if meta.log_begun() => return Err(damaged("its log, and with it the vote, is gone".into())),
        None => owner,
    };
    // Checked before the first write: a write makes the log longer, so a shortened log would pass
    // the check at the next start.
    let (reaches, noted) = (log.end(), meta.log_bytes());
    if reaches < noted {
        return Err(damaged(format!("its log ends at byte {reaches}, but {noted} bytes of it were on disk")));
    }
    log.begin(owner).doing(|| "beginning the log".into())?;
    if !meta.log_begun() {
        // The directory entry `log` must be durable before the log counts as begun.
        sync_dir(&layout.dir).doing(|| "beginning the log".into())?;
        meta.set_log_begun().doing(|| "beginning the log".into())?;
    }
    Ok(log)
}

/// Describes the gap between the end of the snapshot and the beginning of the log; `None` when no
/// entry is missing. `lost` is the reason why the snapshot is lost.
fn missing(log: &LogStore, snapshots: &SnapshotStore, lost: Option<String>) -> Option<String> {
    let purged = log.purged().as_ref().map(LogIdRecord::from);
    let contained = snapshots.current().and_then(|snapshot| snapshot.manifest().meta.last_log_id);
    if purged.map(|id| id.index) > contained.map(|id| id.index) {
        let lost = lost.map_or_else(|| format!("ends at {contained:?}"), |lost| format!("is lost ({lost})"));
        return Some(format!("its log is purged up to {purged:?}, but its snapshot {lost}"));
    }
    if let Some(lost) = lost {
        tracing::warn!(%lost, "the snapshot is lost; the log has everything that it had");
    }
    None
}

/// Replaces the log by a new one that keeps only the vote. Entries that this node has acknowledged
/// are gone, so it does not vote until a leader has sent it the whole state.
fn give_up(layout: &Layout, meta: &NodeMeta, log: LogStore, fatal: &Fatal) -> Result<LogStore, Error> {
    let doing = || "replacing the log".to_string();
    let (owner, vote) = (log.owner(), log.vote());
    drop(log);
    {
        let new = LogStore::open(&layout.log_new(), meta.incarnation(), fatal.clone()).doing(doing)?;
        new.begin(OwnerRecord { durable: 0, ..owner.unwrap_or_default() }).doing(doing)?;
        vote.map_or(Ok(()), |vote| new.begin_vote(&vote)).doing(doing)?;
    }
    sync_dir(&layout.dir).doing(doing)?;
    meta.set_rejoining().doing(doing)?;
    layout.replace_log().doing(doing)?;
    open_log(layout, meta, fatal)
}

/// Sets callbacks that write the length of the durable log to [`NodeMeta`] after each new snapshot
/// and when the log closes. With this length, the next start detects a log that was cut or replaced
/// by an older copy.
fn keep_witness(log: &LogStore, snapshots: &SnapshotStore, meta: &NodeMeta) {
    let noted = meta.clone();
    log.set_on_close(Box::new(move |bytes| {
        if let Err(error) = noted.set_log_bytes(bytes) {
            tracing::warn!(%error, "how far the log reaches was not noted");
        }
    }));
    let (log, noted) = (log.reach(), meta.clone());
    snapshots.set_on_flip(Box::new(move || noted.set_log_bytes(log.durable.load(Ordering::Acquire))));
}

/// Converts an IO error: an error that means damaged data becomes `Damaged`, any other `Io`.
fn describe(dir: &Path, doing: &str, error: io::Error) -> Error {
    if is_damage(&error) {
        return Error::Damaged { dir: dir.into(), what: format!("{doing}: {error}") };
    }
    Error::Io { doing: format!("{doing} in {}", dir.display()), source: error }
}
