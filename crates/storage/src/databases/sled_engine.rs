//! Databases of sled, one for each snapshot.
//!
//! sled writes to its files whenever it opens them. If a power cut keeps only some pages of such a
//! write, sled cannot open the files again. Therefore sled never opens the files of a finished
//! database; reads use a copy.

use std::fs::{self, File, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use crate::databases::closers::Closers;
use crate::databases::copying::{CopyFailed, FileRecord, copy_verified, pass_through, space_for};
use crate::databases::engine::{Engine, Tree};
use crate::directory::descriptors::patiently;
use crate::directory::place::{remove_all, sync_dir};
use crate::failpoint;
use crate::fatal::Fatal;

/// Approximate size in bytes of sled's page cache. Small, as a snapshot is written or read only
/// once.
const CACHE_BYTES: u64 = 16 << 20;
/// Time after which a log line says that sled's threads still hold the files of a closed database.
/// It is also the interval of these log lines. Short in tests.
const CLOSING_LONG: Duration = Duration::from_millis(if cfg!(feature = "failpoints") { 20 } else { 10_000 });
const CLOSING_PAUSE: Duration = Duration::from_millis(1);

/// Databases in the subdirectories of one directory. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct SledEngine {
    dir: Arc<Path>,
    fatal: Fatal,
    closers: Closers,
}

/// One open database. A drop closes it on another thread.
#[derive(Debug)]
struct SledTree {
    /// `None` only during the drop.
    db: Option<sled::Db>,
    dir: PathBuf,
    number: u64,
    engine: SledEngine,
}

impl SledEngine {
    /// Creates `dir` when missing, and deletes unfinished databases and copies in it. The caller
    /// ensures that no database is being closed by `closers`.
    pub(crate) fn in_dir(dir: &Path, fatal: &Fatal, closers: &Closers) -> io::Result<SledEngine> {
        explain_panics();
        fs::create_dir_all(dir)?;
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            // Left by an earlier process: unfinished databases and copies.
            if path.extension().is_some_and(|end| end == "new" || end == "copy") {
                remove_all(&path)?;
            }
        }
        Ok(SledEngine { dir: dir.into(), fatal: fatal.clone(), closers: closers.clone() })
    }

    fn finished(&self, number: u64) -> PathBuf {
        self.dir.join(name(number))
    }

    fn unfinished(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{}.new", name(number)))
    }

    fn copied(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{}.copy", name(number)))
    }

    fn tree(&self, number: u64, db: sled::Db, dir: PathBuf) -> Box<dyn Tree> {
        Box::new(SledTree { db: Some(db), dir, number, engine: self.clone() })
    }

    fn remove_closed(&self, number: u64) -> io::Result<()> {
        [self.finished(number), self.unfinished(number), self.copied(number)]
            .iter()
            .try_for_each(|path| remove_all(path))
    }
}

impl Engine for SledEngine {
    fn lock(&self) -> io::Result<Option<Arc<File>>> {
        self.closers.lock().map(Some)
    }

    fn begin(&self, number: u64) -> io::Result<Box<dyn Tree>> {
        let dir = self.unfinished(number);
        let db = patiently(|| remove_all(&dir).and_then(|()| open_sled(&dir)))?;
        Ok(self.tree(number, db, dir))
    }

    fn publish(&self, number: u64) -> io::Result<Vec<FileRecord>> {
        publish(&self.unfinished(number), &self.finished(number))
    }

    fn open(&self, number: u64, files: &[FileRecord], spare: u64) -> io::Result<Box<dyn Tree>> {
        let copy = self.copied(number);
        let opened = patiently(|| open_copy(&self.finished(number), &copy, files, spare));
        let db = opened.inspect_err(|_| drop(remove_all(&copy)))?;
        Ok(self.tree(number, db, copy))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        if self.closers.leaves_removal(number) {
            return Ok(());
        }
        self.remove_closed(number)
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let number = |entry: io::Result<fs::DirEntry>| Ok(number_of(&entry?.file_name().to_string_lossy()));
        patiently(|| fs::read_dir(&self.dir))?.filter_map(|entry| number(entry).transpose()).collect()
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        disk_bytes(&self.dir)
    }
}

const PREFIX: &str = "snap-";

/// Directory name of the finished database with this number.
fn name(number: u64) -> String {
    format!("{PREFIX}{number}")
}

/// Number of the database with this directory name, which may have a suffix such as `.new`; `None`
/// for a name of another form.
fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()
}

fn open_sled(dir: &Path) -> io::Result<sled::Db> {
    // The flusher thread is off, as its flushes are not durable. This crate flushes where it needs
    // to.
    let config = sled::Config::new().path(dir).mode(sled::Mode::LowSpace).cache_capacity(CACHE_BYTES);
    Ok(config.flush_every_ms(None).open()?)
}

impl SledTree {
    fn db(&self) -> io::Result<&sled::Db> {
        self.db.as_ref().ok_or_else(|| io::Error::other("the database is closed"))
    }
}

impl Tree for SledTree {
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        Ok(self.db()?.get(key)?.map(|value| value.to_vec()))
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        Ok(self.db()?.insert(key, value).map(drop)?)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(self.db()?.flush().map(drop)?)
    }

    /// Closes the database, and waits until sled's threads have released its files.
    fn close(mut self: Box<Self>) -> io::Result<()> {
        self.db.take().map_or(Ok(()), |db| close_sled(db, &self.dir, &self.engine.fatal))
    }
}

impl Drop for SledTree {
    fn drop(&mut self) {
        let Some(db) = self.db.take() else { return };
        let SledEngine { fatal, closers, .. } = &self.engine;
        if fatal.reason().is_some() {
            // After a failed write, sled's close may wait for that write for ever. So the database
            // stays open; the process must end anyway.
            std::mem::forget(db);
            return;
        }
        // Closed on another thread: closing writes and waits, and an async task may run this drop.
        let (fatal, engine, dir, number) = (fatal.clone(), self.engine.clone(), self.dir.clone(), self.number);
        let close = move || {
            let noted = fatal.clone();
            // sled panics on an IO error. In builds where a panic does not end the process, `fatal`
            // stops the node.
            match catch_unwind(AssertUnwindSafe(|| close_sled(db, &dir, &fatal))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a database was not closed"),
                Err(_) => noted.fail("closing a database", &"sled gave up"),
            }
        };
        // The result is dropped, as `fatal` keeps an error and stops the node.
        let remove = move || drop(engine.fatal.note("removing a snapshot", engine.remove_closed(number)));
        closers.close(number, close, remove);
    }
}

fn close_sled(db: sled::Db, dir: &Path, fatal: &Fatal) -> io::Result<()> {
    let file = patiently(|| File::open(dir.join("db")))?;
    // sled panics when its final sync fails, so the sync is tried before the close.
    let synced = failpoint::pass("db.sync").and_then(|()| Ok(db.flush().map(drop)?)).and_then(|()| file.sync_all());
    if let Err(error) = fatal.note("closing a database", synced) {
        std::mem::forget(db);
        return Err(error);
    }
    drop(db);
    let mut told = Instant::now();
    loop {
        failpoint::pass("db.closing")?;
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // After a failed write sled may never release the files.
        fatal.check()?;
        if told.elapsed() >= CLOSING_LONG {
            told = Instant::now();
            tracing::warn!(dir = %dir.display(), "sled has not let go of a snapshot's files yet; waiting for it");
        }
        std::thread::sleep(CLOSING_PAUSE);
    }
}

/// Copies and opens a finished database.
fn open_copy(finished: &Path, copy: &Path, files: &[FileRecord], spare: u64) -> io::Result<sled::Db> {
    let parent = copy.parent().unwrap_or(copy);
    let failed = |error| CopyFailed::of(error, files, parent);
    failpoint::pass("db.copy").and_then(|()| remove_all(copy)).map_err(failed)?;
    space_for(files, spare, parent).map_err(failed)?;
    copy_verified(finished, copy, files, &failed)?;
    open_sled(copy).map_err(failed)
}

/// Installs a panic hook that logs the cause of sled's panics. sled panics where other stores
/// report damage, and a panic ends the process.
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

/// Makes the closed database in `unfinished` durable and renames it to `finished`.
fn publish(unfinished: &Path, finished: &Path) -> io::Result<Vec<FileRecord>> {
    let mut records = Vec::new();
    for path in patiently(|| files(unfinished))? {
        let mut file = patiently(|| File::open(&path))?;
        file.sync_all()?;
        let (bytes, crc32) = pass_through(&mut file, &mut io::sink())?;
        records.push(FileRecord { path: relative(unfinished, &path)?, bytes, crc32 });
    }
    for dir in patiently(|| dirs(unfinished))? {
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

/// Lists `dir` and every directory below it.
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

/// Lists every file below `dir`. A file that vanishes meanwhile is left out, as sled renames and
/// removes files.
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
