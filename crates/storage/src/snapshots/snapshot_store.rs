//! Store of snapshots: one database for each snapshot, and a record that names the current one.
//!
//! A new snapshot is written to its own database, which is then made durable as a whole. After
//! that, the record `snapshot` is replaced to name the new snapshot, and the database of the
//! previous one is removed. After a crash at any point the record names a complete snapshot, and
//! the next open removes all other databases.
//!
//! A new database gets a number above all numbers found at the open, so it never overwrites another
//! one.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bincode::{Decode, Encode};

use crate::codec;
use crate::databases::copying::FileRecord;
use crate::databases::database::{Database, Databases};
use crate::directory::place::Place;
use crate::error::{damaged, is_damage};
use crate::failpoint;
use crate::snapshots::manifest::Manifest;
use crate::snapshots::snapshot::{Parts, Snapshot};

pub(crate) const CURRENT: &str = "snapshot";

/// Content of the record named `snapshot`: number, manifest and files of the current snapshot.
#[derive(Encode, Decode)]
struct Pointer {
    number: u64,
    manifest: Manifest,
    files: Vec<FileRecord>,
}

/// Callback that runs each time after a snapshot has become current.
pub(crate) type OnFlip = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// Store of one node's snapshots: the current one and the unfinished ones. Clones share it.
///
/// All calls but [`SnapshotStore::current`] block on the disk.
#[derive(Clone)]
pub struct SnapshotStore(Arc<Shared>);

struct Shared {
    databases: Databases,
    place: Arc<dyn Place>,
    current: RwLock<Option<Snapshot>>,
    // Number of the next new snapshot; higher than the number of any existing database.
    next_number: AtomicU64,
    // Locked while a snapshot becomes current or is removed, so that these steps happen one at a
    // time.
    shelf: Mutex<Shelf>,
    on_flip: Mutex<Option<OnFlip>>,
}

/// Snapshots that are to be removed: those that a newer one has replaced, and unfinished ones.
#[derive(Default)]
struct Shelf {
    // Snapshots that a newer one has replaced, and that may still have readers.
    retired: Vec<Snapshot>,
    // Numbers of snapshots that did not become current.
    abandoned: Vec<u64>,
}

impl SnapshotStore {
    /// Opens the store and verifies the current snapshot. If it is damaged or its files are gone,
    /// the store has no current snapshot, and the second value is the reason. Changes no snapshot
    /// on disk.
    ///
    /// # Errors
    /// Any other disk error.
    pub(crate) fn open(place: &Arc<dyn Place>, databases: &Databases) -> io::Result<(SnapshotStore, Option<String>)> {
        let (current, lost) = match open_current(&**place, databases) {
            Ok(current) => (current, None),
            Err(error) if is_damage(&error) => (None, Some(error.to_string())),
            Err(error) => return Err(error),
        };
        let next_number = databases.numbers()?.last().map_or(0, |number| number + 1);
        let shared = Shared {
            databases: databases.clone(),
            place: Arc::clone(place),
            next_number: AtomicU64::new(next_number),
            current: RwLock::new(current),
            shelf: Mutex::default(),
            on_flip: Mutex::default(),
        };
        Ok((SnapshotStore(Arc::new(shared)), lost))
    }

    /// Removes every database except that of the current snapshot.
    pub(crate) fn tidy(&self) -> io::Result<()> {
        let kept = self.current().map(|snapshot| snapshot.0.number);
        for number in self.0.databases.numbers()?.into_iter().filter(|number| Some(*number) != kept) {
            tracing::info!(number, "removing what is left of a snapshot that is not the current one");
            self.0.databases.remove(number)?;
        }
        Ok(())
    }

    /// Sets the callback that runs each time a snapshot has become current.
    pub(crate) fn set_on_flip(&self, on_flip: OnFlip) {
        *self.0.on_flip.lock().unwrap_or_else(PoisonError::into_inner) = Some(on_flip);
    }

    /// The current snapshot; `None` before the first one. Does not block.
    pub fn current(&self) -> Option<Snapshot> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Removes replaced and abandoned snapshots that have no readers. A database that is still
    /// being closed is removed after its close. Every new snapshot begins with this call; an extra
    /// call frees disk space earlier.
    ///
    /// # Errors
    /// Any disk error, of this call or an earlier one.
    pub fn collect(&self) -> io::Result<()> {
        self.collect_with(&mut self.shelf())
    }

    /// Bytes that all snapshots occupy on disk, copies for reading included.
    ///
    /// # Errors
    /// Any IO error.
    pub fn disk_bytes(&self) -> io::Result<u64> {
        self.0.databases.disk_bytes()
    }

    pub(crate) fn databases(&self) -> &Databases {
        &self.0.databases
    }

    /// Returns a number for a new snapshot, and an empty database for it.
    pub(crate) fn begin(&self) -> io::Result<(u64, Database)> {
        let number = self.0.next_number.fetch_add(1, Ordering::Relaxed);
        Ok((number, self.0.databases.begin(number)?))
    }

    /// Makes a written snapshot durable and then current, and returns the current snapshot. A newer
    /// snapshot that has become current meanwhile stays current: the log may already be purged up
    /// to it, so an older snapshot would lose entries.
    pub(crate) fn flip(&self, number: u64, database: Database, manifest: Manifest) -> io::Result<Snapshot> {
        let fatal = self.0.databases.fatal();
        let files = self.0.databases.finish(number, database)?;
        let mut shelf = self.shelf();
        if let Some(current) = self.current()
            && current.0.manifest.meta.last_log_id > manifest.meta.last_log_id
        {
            shelf.abandoned.push(number);
            return Ok(current);
        }
        let snapshot = finished(&self.0.databases, number, manifest.clone(), files.clone())?;
        fatal.note("finishing a snapshot", failpoint::pass("snapshot.flip"))?;
        let pointer = codec::seal(&Pointer { number, manifest, files });
        fatal.note("finishing a snapshot", self.0.place.replace(CURRENT, &pointer))?;
        fatal.note("finishing a snapshot", failpoint::pass("snapshot.flipped"))?;
        let replaced = {
            let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
            current.replace(snapshot.clone())
        };
        shelf.retired.extend(replaced);
        self.collect_with(&mut shelf)?;
        if let Some(on_flip) = &*self.0.on_flip.lock().unwrap_or_else(PoisonError::into_inner) {
            on_flip()?;
        }
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
        // Retired snapshots get no new readers, so at a reference count of one only the shelf holds
        // the snapshot.
        shelf.retired.retain(|snapshot| {
            let read = Arc::strong_count(&snapshot.0) > 1;
            if !read {
                numbers.push(snapshot.0.number);
            }
            read
        });
        for number in numbers {
            let fatal = self.0.databases.fatal();
            fatal.note("removing a snapshot", failpoint::pass("snapshot.cleanup"))?;
            self.0.databases.remove(number)?;
            fatal.note("removing a snapshot", failpoint::pass("snapshot.cleaned"))?;
        }
        Ok(())
    }
}

/// Reads the record named `snapshot`, and verifies the snapshot that it describes.
fn open_current(place: &dyn Place, databases: &Databases) -> io::Result<Option<Snapshot>> {
    let Some(record) = place.read(CURRENT)? else { return Ok(None) };
    let Pointer { number, manifest, files } = codec::unseal(&record)?;
    let snapshot = finished(databases, number, manifest, files)?;
    snapshot.verify()?;
    Ok(Some(snapshot))
}

fn finished(databases: &Databases, number: u64, manifest: Manifest, files: Vec<FileRecord>) -> io::Result<Snapshot> {
    let meta = manifest.meta.clone().try_into().map_err(|error| damaged(format!("a snapshot's meta: {error}")))?;
    let database = Mutex::default();
    Ok(Snapshot(Arc::new(Parts { number, manifest, meta, files, databases: databases.clone(), database })))
}
