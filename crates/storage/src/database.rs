//! The chunks of one snapshot: a sled database of its own or, for simulations, a tree of a disk in memory.
//!
//! A database is written once. When it is whole it is closed, fsynced and renamed, and from then on no byte of it changes:
//! it is read through a copy. sled writes to its files whenever it opens them, and it cannot open them again after a power
//! cut that kept some pages of such a write and lost others. So no such write may ever reach a snapshot that counts.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use bincode::{Decode, Encode};

use crate::failpoint;
use crate::fatal::Fatal;
use crate::memory::{MemoryDatabase, MemoryTree};
use crate::place::{remove_all, sync_dir};
use crate::snapshot::damaged;

/// sled's page cache. It is a soft bound; snapshots pass through it once and need little.
const CACHE_BYTES: u64 = 16 << 20;
/// How long sled's worker threads may hold on to a database that was closed.
const CLOSING_MAX: Duration = Duration::from_secs(10);
const CLOSING_PAUSE: Duration = Duration::from_millis(1);
const COPY_BYTES: usize = 256 << 10;

/// A file of a finished database. What sled is given to open is compared with it: sled ends the process where other
/// stores answer "damaged".
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct FileRecord {
    /// Below the database's directory.
    path: String,
    bytes: u64,
    crc32: u32,
}

/// Where the databases of all snapshots lie, by number. Clones are the same. Blocking: not for async tasks.
#[derive(Clone, Debug)]
pub(crate) struct Databases {
    engine: Engine,
    fatal: Fatal,
}

#[derive(Clone, Debug)]
enum Engine {
    Sled(Arc<Path>),
    Memory(MemoryDatabase),
}

/// One open database.
#[derive(Debug)]
pub(crate) struct Database {
    open: Option<Open>,
    fatal: Fatal,
}

#[derive(Debug)]
enum Open {
    Sled { db: sled::Db, dir: PathBuf },
    Memory(MemoryTree),
}

impl Databases {
    /// Databases below `dir`, which is made when missing.
    pub(crate) fn in_dir(dir: &Path, fatal: &Fatal) -> io::Result<Databases> {
        explain_panics();
        fs::create_dir_all(dir)?;
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            // What a process that has ended was writing, or reading.
            if path.extension().is_some_and(|end| end == "new" || end == "copy") {
                remove_all(&path)?;
            }
        }
        Ok(Databases { engine: Engine::Sled(dir.into()), fatal: fatal.clone() })
    }

    /// Databases in memory.
    pub(crate) fn in_memory(database: MemoryDatabase, fatal: &Fatal) -> Databases {
        Databases { engine: Engine::Memory(database), fatal: fatal.clone() }
    }

    /// The same databases, whose errors come together elsewhere.
    pub(crate) fn with_fatal(&self, fatal: Fatal) -> Databases {
        Databases { engine: self.engine.clone(), fatal }
    }

    /// Where errors come together.
    pub(crate) fn fatal(&self) -> &Fatal {
        &self.fatal
    }

    /// A new database, to be written.
    pub(crate) fn begin(&self, number: u64) -> io::Result<Database> {
        self.fatal.check()?;
        let open = match &self.engine {
            Engine::Memory(database) => Ok(Open::Memory(database.tree(&name(number)))),
            Engine::Sled(dir) => remove_all(&unfinished(dir, number)).and_then(|()| open_sled(unfinished(dir, number))),
        };
        Ok(Database { open: Some(self.fatal.note("making a database", open)?), fatal: self.fatal.clone() })
    }

    /// Closes a database that was written and makes it durable. Answers the files that it has.
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

    /// Opens a finished database, through a copy.
    ///
    /// # Errors
    /// `InvalidData` when it is not what was finished.
    pub(crate) fn open(&self, number: u64, files: &[FileRecord]) -> io::Result<Database> {
        let open = match &self.engine {
            Engine::Memory(database) => {
                failpoint::pass("db.copy")?;
                Open::Memory(database.tree(&name(number)))
            }
            Engine::Sled(dir) => {
                let copy = copied(dir, number);
                failpoint::pass("db.copy")?;
                remove_all(&copy)?;
                copy_verified(&dir.join(name(number)), &copy, files)?;
                open_sled(copy)?
            }
        };
        Ok(Database { open: Some(open), fatal: self.fatal.clone() })
    }

    /// Removes what there is of a database that is closed.
    pub(crate) fn remove(&self, number: u64) -> io::Result<()> {
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
        self.fatal.check()?;
        let flushed = failpoint::pass("db.flush").and_then(|()| match self.open()? {
            Open::Sled { db, .. } => db.flush().map(drop).map_err(io::Error::from),
            Open::Memory(_) => Ok(()),
        });
        self.fatal.note("flushing sled", flushed)
    }

    /// Closes it, and waits until sled's threads have let go of its files.
    fn close(mut self) -> io::Result<()> {
        let Some(Open::Sled { db, dir }) = self.open.take() else { return Ok(()) };
        drop(db);
        let file = File::open(dir.join("db"))?;
        let deadline = Instant::now() + CLOSING_MAX;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(CLOSING_PAUSE),
                Err(TryLockError::WouldBlock) => return Err(io::Error::other("sled does not let go of a database")),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        if self.fatal.reason().is_some() {
            // After a failed write sled can wait for ever for that write when it is closed. So it is then left open; the
            // process has to end anyway.
            std::mem::forget(open);
            return;
        }
        // Its directory is removed next, and sled would put files into it meanwhile.
        let closed = Database { open: Some(open), fatal: self.fatal.clone() }.close();
        if let Err(error) = closed {
            tracing::warn!(%error, "a database was not closed");
        }
    }
}

/// sled panics where other stores answer "damaged". A panic ends the process, as it should; this says why it did.
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

fn copy_verified(finished: &Path, copy: &Path, records: &[FileRecord]) -> io::Result<()> {
    for record in records {
        let (from, to) = (finished.join(&record.path), copy.join(&record.path));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = match File::open(&from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(format!("{} is gone", from.display())));
            }
            opened => opened?,
        };
        if pass_through(&mut file, &mut File::create(&to)?)? != (record.bytes, record.crc32) {
            return Err(damaged(format!("{} is not what was written", from.display())));
        }
    }
    Ok(())
}

/// Copies a file, and counts and sums up its bytes.
fn pass_through(from: &mut File, to: &mut impl Write) -> io::Result<(u64, u32)> {
    let (mut hasher, mut bytes, mut buffer) = (crc32fast::Hasher::new(), 0, vec![0; COPY_BYTES]);
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
        bytes += read as u64;
    }
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
