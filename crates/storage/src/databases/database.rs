//! Databases of snapshots. Each holds the chunks of one snapshot, in sled or in simulated memory.
//!
//! A database is written once. When it is complete, it is closed, fsynced and renamed. After that
//! its files never change, as reads use a copy.

use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::databases::copying::FileRecord;
use crate::databases::engine::{Engine, Tree};
use crate::failpoint;
use crate::fatal::Fatal;

/// Databases of all snapshots, by the snapshot's number. Clones share them. All calls block, so
/// async tasks must not make them.
#[derive(Clone, Debug)]
pub(crate) struct Databases {
    engine: Arc<dyn Engine>,
    fatal: Fatal,
    /// Bytes of disk space that must stay free when a database is copied for reading while the node
    /// serves clients.
    spare_bytes: u64,
}

/// One open database. The drop of a sled database closes it on another thread; a database in memory
/// needs no close.
#[derive(Debug)]
pub(crate) struct Database {
    tree: Box<dyn Tree>,
    fatal: Fatal,
}

impl Databases {
    /// Returns the databases that `engine` stores. `fatal` keeps their first disk error.
    /// `spare_bytes` is the disk space that must stay free when a database is copied for reading.
    pub(crate) fn new(engine: impl Engine + 'static, fatal: &Fatal, spare_bytes: u64) -> Databases {
        Databases { engine: Arc::new(engine), fatal: fatal.clone(), spare_bytes }
    }

    /// Returns the same databases with another [`Fatal`], so that errors of one operation do not
    /// stop the node.
    pub(crate) fn with_fatal(&self, fatal: Fatal) -> Databases {
        Databases { fatal, ..self.clone() }
    }

    /// First disk error of these databases.
    pub(crate) fn fatal(&self) -> &Fatal {
        &self.fatal
    }

    /// Bytes of disk space that must stay free when a database is copied for reading while the node
    /// serves clients.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spare_bytes
    }

    /// Lock of the data directory; see [`Engine::lock`].
    pub(crate) fn lock(&self) -> io::Result<Option<Arc<File>>> {
        self.engine.lock()
    }

    /// Creates an empty database.
    pub(crate) fn begin(&self, number: u64) -> io::Result<Database> {
        self.fatal.check()?;
        Ok(self.database(self.fatal.note("making a database", self.engine.begin(number))?))
    }

    fn database(&self, tree: Box<dyn Tree>) -> Database {
        Database { tree, fatal: self.fatal.clone() }
    }

    /// Closes a written database and makes it durable. Returns the size and checksum of each of its
    /// files. Waits for sled without a timeout, because sled's threads keep the files open while
    /// the disk stalls, and a stall must not stop the node.
    pub(crate) fn finish(&self, number: u64, database: Database) -> io::Result<Vec<FileRecord>> {
        database.flush()?;
        self.fatal.note("closing a database", database.tree.close())?;
        let finished = failpoint::pass("db.fsync").and_then(|()| self.engine.publish(number));
        let finished = self.fatal.note("fsyncing a database", finished)?;
        self.fatal.note("fsyncing a database", failpoint::pass("db.fsynced"))?;
        Ok(finished)
    }

    /// Opens a copy of a finished database, if the copy leaves at least `spare` bytes of the disk
    /// free.
    ///
    /// # Errors
    /// The errors of [`Engine::open`].
    pub(crate) fn open(&self, number: u64, files: &[FileRecord], spare: u64) -> io::Result<Database> {
        Ok(self.database(self.engine.open(number, files, spare)?))
    }

    /// Removes all files of the database with this number; if it is being closed, after the close.
    pub(crate) fn remove(&self, number: u64) -> io::Result<()> {
        self.fatal.note("removing a snapshot", self.engine.remove(number))
    }

    /// Returns the numbers of all databases, finished or not.
    pub(crate) fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = self.engine.numbers()?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// Bytes that all databases and their copies occupy on disk.
    pub(crate) fn disk_bytes(&self) -> io::Result<u64> {
        self.engine.disk_bytes()
    }
}

impl Database {
    pub(crate) fn get(&self, key: impl AsRef<[u8]>) -> io::Result<Option<Vec<u8>>> {
        self.tree.get(key.as_ref())
    }

    pub(crate) fn insert(&self, key: impl AsRef<[u8]>, value: &[u8]) -> io::Result<()> {
        self.tree.insert(key.as_ref(), value)
    }

    /// Writes all buffered data to the kernel, without an fsync. This bounds the memory that sled
    /// takes.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.fatal.check()?;
        let flushed = failpoint::pass("db.flush").and_then(|()| self.tree.flush());
        self.fatal.note("flushing sled", flushed)
    }
}
