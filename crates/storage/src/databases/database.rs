//! The chunks of one snapshot: a sled database of its own or, for simulations, a tree of a disk in
//! memory.
//!
//! A database is written once. When it is whole it is closed, fsynced and renamed, and from then on
//! no byte of it changes: it is read through a copy. sled writes to its files whenever it opens
//! them, and it cannot open them again after a power cut that kept some pages of such a write and
//! lost others. So no such write may ever reach a snapshot that counts.

use std::fs::{self, File, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use crate::databases::closers::Closers;
use crate::databases::copying::{CopyFailed, FileRecord, copy_verified, pass_through, space_for};
use crate::directory::place::{remove_all, sync_dir};
use crate::failpoint;
use crate::fatal::Fatal;
use crate::memory::{MemoryDatabase, MemoryTree};

/// sled's page cache. It is a soft bound; snapshots pass through it once and need little.
const CACHE_BYTES: u64 = 16 << 20;
/// When sled's worker threads hold on to a closed database for so long, the log says so, again and
/// again. Short in tests.
const CLOSING_LONG: Duration = Duration::from_millis(if cfg!(feature = "failpoints") { 20 } else { 10_000 });
const CLOSING_PAUSE: Duration = Duration::from_millis(1);

/// Where the databases of all snapshots lie, by number. Clones are the same. Blocking: not for
/// async tasks.
#[derive(Clone, Debug)]
pub(crate) struct Databases {
    engine: Engine,
    fatal: Fatal,
    closers: Closers,
    /// So much of the disk is left beside a copy that is made while the node serves.
    spare_bytes: u64,
}

#[derive(Clone, Debug)]
enum Engine {
    Sled(Arc<Path>),
    Memory(MemoryDatabase),
}

/// One open database. Dropped, it is closed on a thread of its own, where there is anything to wait
/// for.
#[derive(Debug)]
pub(crate) struct Database {
    open: Option<Open>,
    number: u64,
    databases: Databases,
}

#[derive(Debug)]
enum Open {
    Sled { db: sled::Db, dir: PathBuf },
    Memory(MemoryTree),
}

impl Databases {
    /// Databases below `dir`, which is made when missing. `closers` must be at rest.
    pub(crate) fn in_dir(dir: &Path, fatal: &Fatal, closers: &Closers, spare_bytes: u64) -> io::Result<Databases> {
        explain_panics();
        fs::create_dir_all(dir)?;
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            // What a process that has ended was writing, or reading.
            if path.extension().is_some_and(|end| end == "new" || end == "copy") {
                remove_all(&path)?;
            }
        }
        let (fatal, closers) = (fatal.clone(), closers.clone());
        Ok(Databases { engine: Engine::Sled(dir.into()), fatal, closers, spare_bytes })
    }

    /// Databases in memory.
    pub(crate) fn in_memory(database: MemoryDatabase, fatal: &Fatal) -> Databases {
        let (fatal, closers) = (fatal.clone(), Closers::default());
        Databases { engine: Engine::Memory(database), fatal, closers, spare_bytes: 0 }
    }

    /// The same databases, whose errors come together elsewhere.
    pub(crate) fn with_fatal(&self, fatal: Fatal) -> Databases {
        Databases { fatal, ..self.clone() }
    }

    /// Where errors come together.
    pub(crate) fn fatal(&self) -> &Fatal {
        &self.fatal
    }

    /// See the field.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spare_bytes
    }

    /// A new database, to be written.
    pub(crate) fn begin(&self, number: u64) -> io::Result<Database> {
        self.fatal.check()?;
        let open = match &self.engine {
            Engine::Memory(database) => Ok(Open::Memory(database.tree(&name(number)))),
            Engine::Sled(dir) => remove_all(&unfinished(dir, number)).and_then(|()| open_sled(unfinished(dir, number))),
        };
        Ok(self.database(number, self.fatal.note("making a database", open)?))
    }

    fn database(&self, number: u64, open: Open) -> Database {
        Database { open: Some(open), number, databases: self.clone() }
    }

    /// Closes a database that was written and makes it durable. Answers the files that it has.
    /// Waits for sled, however long that takes: while the disk stalls, sled's threads hold on to
    /// the files, and no node must end for that.
    pub(crate) fn finish(&self, number: u64, database: Database) -> io::Result<Vec<FileRecord>> {
        database.flush()?;
        self.fatal.note("closing a database", database.close())?;
        let finished = failpoint::pass("db.fsync").and_then(|()| match &self.engine {
            Engine::Memory(database) => database.sync().map(|()| Vec::new()),
            Engine::Sled(dir) => publish(&unfinished(dir, number), &dir.join(name(number))),
        });
        let finished = self.fatal.note("fsyncing a database", finished)?;
        self.fatal.note("fsyncing a database", failpoint::pass("db.fsynced"))?;
        Ok(finished)
    }

    /// Opens a finished database, through a copy, unless less than `spare` bytes of the disk were
    /// left then.
    ///
    /// # Errors
    /// `InvalidData` when it is not what was finished; [`CopyFailed`], and what there was of the
    /// copy is gone again.
    pub(crate) fn open(&self, number: u64, files: &[FileRecord], spare: u64) -> io::Result<Database> {
        let open = match &self.engine {
            Engine::Memory(database) => {
                failpoint::pass("db.copy").map_err(|error| CopyFailed::of(error, files, None))?;
                Open::Memory(database.tree(&name(number)))
            }
            Engine::Sled(dir) => {
                let (finished, copy) = (dir.join(name(number)), copied(dir, number));
                let opened = open_copy(&finished, &copy, files, spare);
                opened.inspect_err(|_| drop(remove_all(&copy)))?
            }
        };
        Ok(self.database(number, open))
    }

    /// Removes what there is of a database, as soon as it is closed.
    pub(crate) fn remove(&self, number: u64) -> io::Result<()> {
        if self.closers.leaves_removal(number) {
            return Ok(());
        }
        self.remove_closed(number)
    }

    fn remove_closed(&self, number: u64) -> io::Result<()> {
        let removed = match &self.engine {
            Engine::Memory(database) => database.tree(&name(number)).remove_all(),
            Engine::Sled(dir) => [dir.join(name(number)), unfinished(dir, number), copied(dir, number)]
                .iter()
                .try_for_each(|path| remove_all(path)),
        };
        self.fatal.note("removing a snapshot", removed)
    }

    /// The numbers of all databases, finished or not.
    pub(crate) fn numbers(&self) -> io::Result<Vec<u64>> {
        let names = match &self.engine {
            Engine::Memory(database) => database.tree_names(),
            Engine::Sled(dir) => {
                let names = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
                names.collect::<io::Result<_>>()?
            }
        };
        let number = |name: &String| name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok();
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// Bytes that all databases occupy.
    pub(crate) fn disk_bytes(&self) -> io::Result<u64> {
        match &self.engine {
            Engine::Sled(dir) => disk_bytes(dir),
            Engine::Memory(_) => Ok(0),
        }
    }
}

const PREFIX: &str = "snap-";

fn name(number: u64) -> String {
    format!("{PREFIX}{number}")
}

fn unfinished(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{number}.new"))
}

fn copied(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{number}.copy"))
}

fn open_sled(dir: PathBuf) -> io::Result<Open> {
    // No flusher thread: its flush is no durability, and ours come where they are needed.
    let config = sled::Config::new().path(&dir).mode(sled::Mode::LowSpace).cache_capacity(CACHE_BYTES);
    Ok(Open::Sled { db: config.flush_every_ms(None).open()?, dir })
}

impl Database {
    pub(crate) fn get(&self, key: impl AsRef<[u8]>) -> io::Result<Option<Vec<u8>>> {
        match self.open()? {
            Open::Sled { db, .. } => Ok(db.get(key)?.map(|value| value.to_vec())),
            Open::Memory(tree) => tree.get(key.as_ref()),
        }
    }

    pub(crate) fn insert(&self, key: impl AsRef<[u8]>, value: &[u8]) -> io::Result<()> {
        match self.open()? {
            Open::Sled { db, .. } => Ok(db.insert(key, value).map(drop)?),
            Open::Memory(tree) => tree.insert(key.as_ref(), value),
        }
    }

    fn open(&self) -> io::Result<&Open> {
        self.open.as_ref().ok_or_else(|| io::Error::other("the database is closed"))
    }

    /// Hands everything written so far to the kernel, which bounds what sled holds in memory.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.databases.fatal.check()?;
        let flushed = failpoint::pass("db.flush").and_then(|()| match self.open()? {
            Open::Sled { db, .. } => db.flush().map(drop).map_err(io::Error::from),
            Open::Memory(_) => Ok(()),
        });
        self.databases.fatal.note("flushing sled", flushed)
    }

    /// Closes it, and waits until sled's threads have let go of its files.
    fn close(mut self) -> io::Result<()> {
        match self.open.take() {
            Some(Open::Sled { db, dir }) => close_sled(db, &dir, &self.databases.fatal),
            Some(Open::Memory(_)) | None => Ok(()),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some(Open::Sled { db, dir }) = self.open.take() else { return };
        let Databases { fatal, closers, .. } = &self.databases;
        if fatal.reason().is_some() {
            // After a failed write sled can wait for ever for that write when it is closed. So it
            // is then left open; the process has to end anyway.
            std::mem::forget(db);
            return;
        }
        // Not here: to close is to write and to wait, and this may be dropped by a task among
        // others.
        let (fatal, databases, number) = (fatal.clone(), self.databases.clone(), self.number);
        let close = move || {
            let noted = fatal.clone();
            // sled panics on an IO error. Where a panic does not end the process, the node must
            // stop all the same.
            match catch_unwind(AssertUnwindSafe(|| close_sled(db, &dir, &fatal))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a database was not closed"),
                Err(_) => noted.fail("closing a database", &"sled gave up"),
            }
        };
        // An error of the removal is noted where it comes up.
        closers.close(number, close, move || drop(databases.remove_closed(number)));
    }
}

fn close_sled(db: sled::Db, dir: &Path, fatal: &Fatal) -> io::Result<()> {
    drop(db);
    let file = File::open(dir.join("db"))?;
    let mut told = Instant::now();
    loop {
        failpoint::pass("db.closing")?;
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // After a failed write it may never let go.
        fatal.check()?;
        if told.elapsed() >= CLOSING_LONG {
            told = Instant::now();
            tracing::warn!(dir = %dir.display(), "sled has not let go of a snapshot's files yet; waiting for it");
        }
        std::thread::sleep(CLOSING_PAUSE);
    }
}

/// Copies and opens a finished database.
fn open_copy(finished: &Path, copy: &Path, files: &[FileRecord], spare: u64) -> io::Result<Open> {
    let parent = copy.parent().unwrap_or(copy);
    let failed = |error| CopyFailed::of(error, files, Some(parent));
    failpoint::pass("db.copy").and_then(|()| remove_all(copy)).map_err(failed)?;
    space_for(files, spare, parent).map_err(failed)?;
    copy_verified(finished, copy, files, &failed)?;
    open_sled(copy.into()).map_err(failed)
}

/// sled panics where other stores answer "damaged". A panic ends the process, as it should; this
/// says why it did.
fn explain_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.location().is_some_and(|location| location.file().contains("sled-0.")) {
                tracing::error!(
                    "sled gave up on a snapshot that is being written, or on a copy of one: the disk has failed. No \
                     snapshot that counts is touched by that: start this node again on a good disk"
                );
            }
            next(panic);
        }));
    });
}

/// Makes the closed database in `unfinished` durable and gives it its name.
fn publish(unfinished: &Path, finished: &Path) -> io::Result<Vec<FileRecord>> {
    let mut records = Vec::new();
    for path in files(unfinished)? {
        let mut file = File::open(&path)?;
        file.sync_all()?;
        let (bytes, crc32) = pass_through(&mut file, &mut io::sink())?;
        records.push(FileRecord { path: relative(unfinished, &path)?, bytes, crc32 });
    }
    for dir in dirs(unfinished)? {
        sync_dir(&dir)?;
    }
    fs::rename(unfinished, finished)?;
    if let Some(parent) = finished.parent() {
        sync_dir(parent)?;
    }
    Ok(records)
}

fn relative(dir: &Path, path: &Path) -> io::Result<String> {
    let relative = path.strip_prefix(dir).ok().and_then(Path::to_str);
    relative.map(String::from).ok_or_else(|| io::Error::other("a file of sled's has a strange name"))
}

/// `dir` and every directory below it.
fn dirs(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut dirs = vec![dir.to_path_buf()];
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            dirs.extend(self::dirs(&entry.path())?);
        }
    }
    Ok(dirs)
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
    files.sort_unstable();
    Ok(files)
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
