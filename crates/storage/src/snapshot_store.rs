//! Snapshots in sled: chunks first, then the pointer.
//!
//! ```text
//! tree "snapshots"      "current" -> number and manifest of the current snapshot
//! tree "snap-<number>"  0, 1, 2, … -> chunks
//! ```
//!
//! A snapshot is written to a tree of its own, flushed and fsynced; then `current` is flipped to it, flushed and
//! fsynced; then the old one's tree is removed. Whatever a crash leaves, `current` points at a whole snapshot, and every
//! other tree is removed at the next open.
//!
//! Numbers go up from the current snapshot's. They are this store's own and not sled's, which begin anew when the
//! database is rebuilt: a new snapshot would be written over the current one.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bincode::{Decode, Encode};

use crate::codec;
use crate::database::{Database, Tree};
use crate::failpoint;
use crate::manifest::Manifest;
use crate::snapshot::{Parts, Snapshot, damaged};
use crate::snapshot_receiver::SnapshotReceiver;
use crate::snapshot_writer::SnapshotWriter;

const POINTERS: &str = "snapshots";
const CURRENT: &str = "current";
const TREE_PREFIX: &str = "snap-";

/// The record behind `current`.
#[derive(Encode, Decode)]
struct Pointer {
    number: u64,
    manifest: Manifest,
}

/// The snapshots of one node: one that is current, and those that are being written. Clones share it.
///
/// All calls but [`SnapshotStore::current`] block on the disk.
#[derive(Clone)]
pub struct SnapshotStore(Arc<Shared>);

struct Shared {
    database: Database,
    pointers: Tree,
    current: RwLock<Option<Snapshot>>,
    // Above the number of every snapshot that has a tree.
    next_number: AtomicU64,
    // Flips and removals, one at a time.
    shelf: Mutex<Shelf>,
}

/// What is no longer of use.
#[derive(Default)]
struct Shelf {
    // Replaced, but perhaps still read.
    retired: Vec<Snapshot>,
    // Never finished.
    abandoned: Vec<u64>,
}

impl SnapshotStore {
    /// Opens the store, verifies the current snapshot and removes everything else.
    ///
    /// # Errors
    /// `InvalidData` when the current snapshot is damaged.
    pub(crate) fn open(database: &Database) -> io::Result<SnapshotStore> {
        let pointers = database.tree(POINTERS)?;
        let current = match pointers.get(CURRENT)? {
            None => None,
            Some(bytes) => {
                let Pointer { number, manifest } = codec::unseal(&bytes)?;
                let snapshot = open_snapshot(database, number, manifest)?;
                snapshot.verify()?;
                Some(snapshot)
            }
        };
        let kept = current.as_ref().map(|snapshot| tree_name(snapshot.0.number));
        for name in database.tree_names() {
            if name.starts_with(TREE_PREFIX) && Some(&name) != kept.as_ref() {
                tracing::info!(%name, "removing what an interrupted snapshot left behind");
                database.drop_tree(&name)?;
            }
        }
        let next_number = AtomicU64::new(current.as_ref().map_or(0, |snapshot| snapshot.0.number + 1));
        Ok(SnapshotStore(Arc::new(Shared {
            database: database.clone(),
            pointers,
            next_number,
            current: RwLock::new(current),
            shelf: Mutex::default(),
        })))
    }

    /// The current snapshot. Does not block.
    pub fn current(&self) -> Option<Snapshot> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins a new snapshot.
    ///
    /// # Errors
    /// Any disk error, now or earlier.
    pub fn writer(&self) -> io::Result<SnapshotWriter> {
        self.collect()?;
        failpoint::pass("snapshot.begin")?;
        let (number, tree) = self.begin()?;
        Ok(SnapshotWriter::new(self.clone(), number, tree))
    }

    /// Begins to receive the snapshot that `manifest` describes from another node.
    ///
    /// # Errors
    /// `InvalidData` when the manifest makes no sense; else any disk error, now or earlier.
    pub fn receive(&self, manifest: Manifest) -> io::Result<SnapshotReceiver> {
        self.collect()?;
        failpoint::pass("receive.begin")?;
        let meta = manifest.meta.clone().try_into()?;
        let (number, tree) = self.begin()?;
        Ok(SnapshotReceiver::new(self.clone(), number, tree, manifest, meta))
    }

    /// Removes snapshots that were replaced or abandoned and that nobody reads any more. Every new snapshot begins
    /// with this; call it to have the space back earlier.
    ///
    /// # Errors
    /// Any disk error, now or earlier.
    pub fn collect(&self) -> io::Result<()> {
        self.collect_with(&mut self.shelf())
    }

    /// Bytes that snapshots and node metadata occupy on disk.
    ///
    /// # Errors
    /// Any IO error of looking.
    pub fn disk_bytes(&self) -> io::Result<u64> {
        self.0.database.disk_bytes()
    }

    pub(crate) fn database(&self) -> &Database {
        &self.0.database
    }

    fn begin(&self) -> io::Result<(u64, Tree)> {
        let number = self.0.next_number.fetch_add(1, Ordering::Relaxed);
        Ok((number, self.0.database.tree(&tree_name(number))?))
    }

    /// Makes a written snapshot durable and then current, unless a newer one has become so meanwhile: the log may
    /// already be purged up to that one, so going back would lose entries. Answers the snapshot that is current.
    pub(crate) fn flip(&self, number: u64, manifest: Manifest) -> io::Result<Snapshot> {
        let fatal = self.0.database.fatal();
        self.0.database.flush_durably()?;
        let mut shelf = self.shelf();
        if let Some(current) = self.current()
            && current.0.manifest.meta.last_log_id > manifest.meta.last_log_id
        {
            shelf.abandoned.push(number);
            return Ok(current);
        }
        let snapshot = open_snapshot(&self.0.database, number, manifest.clone())?;
        fatal.note("finishing a snapshot", failpoint::pass("snapshot.flip"))?;
        let pointer = codec::seal(&Pointer { number, manifest });
        fatal.note("finishing a snapshot", self.0.pointers.insert(CURRENT, &pointer))?;
        self.0.database.flush_durably()?;
        fatal.note("finishing a snapshot", failpoint::pass("snapshot.flipped"))?;
        let replaced = {
            let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
            current.replace(snapshot.clone())
        };
        shelf.retired.extend(replaced);
        self.collect_with(&mut shelf)?;
        Ok(snapshot)
    }

    pub(crate) fn abandon(&self, number: u64) {
        self.shelf().abandoned.push(number);
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn collect_with(&self, shelf: &mut Shelf) -> io::Result<()> {
        let mut numbers = std::mem::take(&mut shelf.abandoned);
        // Nobody can take a new clone of a retired snapshot: one is left, and it is ours.
        shelf.retired.retain(|snapshot| {
            let read = Arc::strong_count(&snapshot.0) > 1;
            if !read {
                numbers.push(snapshot.0.number);
            }
            read
        });
        for number in numbers {
            let fatal = self.0.database.fatal();
            fatal.note("removing a snapshot", failpoint::pass("snapshot.cleanup"))?;
            self.0.database.drop_tree(&tree_name(number))?;
            fatal.note("removing a snapshot", failpoint::pass("snapshot.cleaned"))?;
        }
        Ok(())
    }
}

pub(crate) fn tree_name(number: u64) -> String {
    format!("{TREE_PREFIX}{number}")
}

fn open_snapshot(database: &Database, number: u64, manifest: Manifest) -> io::Result<Snapshot> {
    let meta = manifest.meta.clone().try_into().map_err(|error| damaged(format!("a snapshot's meta: {error}")))?;
    let tree = database.tree(&tree_name(number))?;
    Ok(Snapshot(Arc::new(Parts { number, manifest, meta, tree, fatal: database.fatal().clone() })))
}
