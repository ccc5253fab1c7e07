//! sled, with a flush that means it; or, for simulations, a database in memory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use crate::failpoint;
use crate::fatal::Fatal;
use crate::memory::{MemoryDatabase, MemoryTree};

/// sled's page cache. It is a soft bound; snapshots pass through it once and need little.
const CACHE_BYTES: u64 = 16 << 20;
/// How long a database of this same process that was just closed may take to let go of its lock.
const CLOSING_MAX: Duration = Duration::from_secs(5);

/// How many threads are inside sled's recovery; see [`explain_panics`].
static RECOVERING: AtomicUsize = AtomicUsize::new(0);

/// An open database. Clones share it. Blocking: not for async tasks.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    engine: Engine,
    fatal: Fatal,
}

#[derive(Clone, Debug)]
enum Engine {
    Sled { db: sled::Db, dir: Arc<Path> },
    Memory(MemoryDatabase),
}

/// One tree of a [`Database`].
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Sled(sled::Tree),
    Memory(MemoryTree),
}

impl Tree {
    pub(crate) fn get(&self, key: impl AsRef<[u8]>) -> io::Result<Option<Vec<u8>>> {
        match self {
            Tree::Sled(tree) => Ok(tree.get(key)?.map(|value| value.to_vec())),
            Tree::Memory(tree) => tree.get(key.as_ref()),
        }
    }

    pub(crate) fn insert(&self, key: impl AsRef<[u8]>, value: &[u8]) -> io::Result<()> {
        match self {
            Tree::Sled(tree) => Ok(tree.insert(key, value).map(drop)?),
            Tree::Memory(tree) => tree.insert(key.as_ref(), value),
        }
    }
}

impl Database {
    /// Opens the database in `dir`, or makes one.
    pub(crate) fn open(dir: &Path, fatal: &Fatal) -> io::Result<Database> {
        explain_panics();
        remove_unfinished(dir)?;
        // No flusher thread: its flush is no durability, and ours come where they are needed.
        let config =
            sled::Config::new().path(dir).mode(sled::Mode::LowSpace).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        let deadline = Instant::now() + CLOSING_MAX;
        let db = loop {
            RECOVERING.fetch_add(1, Ordering::SeqCst);
            let opened = config.open();
            RECOVERING.fetch_sub(1, Ordering::SeqCst);
            match opened.map_err(io::Error::from) {
                Ok(db) => break db,
                // sled's worker threads keep a closed database's lock for a moment. Other processes are kept out by
                // the data directory's own lock, so this one is ours and goes away.
                Err(error) if is_locked(&error) && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error),
            }
        };
        Ok(Database { engine: Engine::Sled { db, dir: dir.into() }, fatal: fatal.clone() })
    }

    /// A database in memory.
    pub(crate) fn in_memory(database: MemoryDatabase, fatal: &Fatal) -> Database {
        Database { engine: Engine::Memory(database), fatal: fatal.clone() }
    }

    /// Where errors of this database come together.
    pub(crate) fn fatal(&self) -> &Fatal {
        &self.fatal
    }

    /// The tree `name`, made when missing.
    pub(crate) fn tree(&self, name: &str) -> io::Result<Tree> {
        self.fatal.check()?;
        let opened = match &self.engine {
            Engine::Sled { db, .. } => db.open_tree(name).map(Tree::Sled).map_err(io::Error::from),
            Engine::Memory(database) => Ok(Tree::Memory(database.tree(name))),
        };
        self.fatal.note("opening a tree", opened)
    }

    /// The names of all trees.
    pub(crate) fn tree_names(&self) -> Vec<String> {
        match &self.engine {
            Engine::Sled { db, .. } => {
                db.tree_names().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
            }
            Engine::Memory(database) => database.tree_names(),
        }
    }

    /// Removes a tree and what it holds.
    ///
    /// Its keys go first: sled gives the space of a tree that is dropped as a whole back only in part.
    pub(crate) fn drop_tree(&self, name: &str) -> io::Result<()> {
        let tree = match self.tree(name)? {
            Tree::Sled(tree) => tree,
            Tree::Memory(tree) => return self.fatal.note("removing a snapshot", tree.remove_all()),
        };
        let mut since_flush = 0;
        for key in tree.iter().keys() {
            let removed = key.and_then(|key| tree.remove(key)).map_err(io::Error::from);
            since_flush += self.fatal.note("removing a snapshot", removed)?.map_or(0, |value| value.len());
            if since_flush >= 8 << 20 {
                since_flush = 0;
                self.flush()?;
            }
        }
        drop(tree);
        self.flush()?;
        if let Engine::Sled { db, .. } = &self.engine {
            self.fatal.note("removing a snapshot", db.drop_tree(name).map_err(io::Error::from))?;
        }
        self.flush()
    }

    /// Hands everything written so far to the kernel. Survives the end of the process, not of the machine.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.fatal.check()?;
        let result = failpoint::pass("db.flush").and_then(|()| match &self.engine {
            Engine::Sled { db, .. } => db.flush().map(drop).map_err(io::Error::from),
            Engine::Memory(_) => Ok(()),
        });
        self.fatal.note("flushing sled", result)
    }

    /// Makes everything written so far durable.
    ///
    /// sled's own flush stops at `sync_file_range`, which makes neither metadata nor the disk's cache durable; so every
    /// file that sled has is fsynced behind it, and their directory, since sled renames files.
    pub(crate) fn flush_durably(&self) -> io::Result<()> {
        self.flush()?;
        let result = failpoint::pass("db.fsync").and_then(|()| match &self.engine {
            Engine::Sled { dir, .. } => sync_tree(dir),
            Engine::Memory(database) => database.sync(),
        });
        self.fatal.note("fsyncing sled's files", result)?;
        self.fatal.note("fsyncing sled's files", failpoint::pass("db.fsynced"))
    }

    /// Writes everything it holds to a new database in `dir`, durably.
    pub(crate) fn copy_to(&self, dir: &Path) -> io::Result<()> {
        failpoint::pass("db.rebuild")?;
        let copy = Database::open(dir, &self.fatal)?;
        let mut since_flush = 0;
        for name in self.tree_names() {
            let (from, to) = (self.tree(&name)?, copy.tree(&name)?);
            let Tree::Sled(from) = from else { continue };
            for item in from.iter() {
                let (key, value) = item?;
                since_flush += value.len();
                to.insert(key, &value)?;
                if since_flush >= 8 << 20 {
                    since_flush = 0;
                    copy.flush()?;
                }
            }
        }
        copy.flush_durably()?;
        failpoint::pass("db.rebuilt")
    }

    /// Bytes that the database occupies.
    pub(crate) fn disk_bytes(&self) -> io::Result<u64> {
        match &self.engine {
            Engine::Sled { dir, .. } => disk_bytes(dir),
            Engine::Memory(_) => Ok(0),
        }
    }
}

// After a failed write sled can wait for ever for that write when it is closed. So it is then left open, whichever
// handle goes last; the process has to end anyway.
impl Drop for Database {
    fn drop(&mut self) {
        if let Engine::Sled { db, .. } = &self.engine
            && self.fatal.reason().is_some()
        {
            std::mem::forget(db.clone());
        }
    }
}

fn is_locked(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.to_string().contains("could not acquire lock")
}

/// sled panics where other stores answer "damaged". A panic ends the process, as it should; this says why it did.
fn explain_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let in_sled = panic.location().is_some_and(|location| location.file().contains("sled-0."));
            if in_sled || RECOVERING.load(Ordering::SeqCst) > 0 {
                tracing::error!(
                    "sled gave up: the panic's message names either an IO error, then the disk has failed, or data that \
                     cannot be read, then this node's snapshots or identity are damaged. If a majority of the other \
                     nodes is healthy, move this node's data directory away and start it again on a good disk; it \
                     comes back empty and fetches everything from the leader"
                );
            }
            next(panic);
        }));
    });
}

/// Removes recovery snapshots that sled had begun to write when it was stopped. It would take such a half file for the
/// newest one, and find the whole database corrupt.
fn remove_unfinished(dir: &Path) -> io::Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    for path in files(dir)?.iter().filter(|path| path.extension().is_some_and(|end| end == "generating")) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Every file below `dir`. One that vanishes meanwhile was renamed or removed by sled and is none.
fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(self::files(&entry.path())?),
            Ok(_) => files.push(entry.path()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

fn sync_tree(dir: &Path) -> io::Result<()> {
    for path in files(dir)? {
        match File::open(&path) {
            Ok(file) => file.sync_all()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let blobs = dir.join("blobs");
    if blobs.is_dir() {
        sync_dir(&blobs)?;
    }
    sync_dir(dir)
}

/// Makes the names in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn disk_bytes(dir: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for path in files(dir)? {
        match fs::metadata(&path) {
            Ok(metadata) => bytes += metadata.blocks() * 512,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}
