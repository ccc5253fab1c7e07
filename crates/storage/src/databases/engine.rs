//! Engines for databases: sled below a directory or, in simulations, a disk in memory.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::databases::copying::FileRecord;

/// Databases by number. Blocking.
pub(crate) trait Engine: Debug + Send + Sync {
    /// Lock of the data directory; `None` for a disk in memory. While it is held, the directory
    /// cannot be opened anew.
    ///
    /// # Errors
    /// When the lock was released: another process may have the directory by now.
    fn lock(&self) -> io::Result<Option<Arc<File>>>;

    /// Creates an empty database.
    fn begin(&self, number: u64) -> io::Result<Box<dyn Tree>>;

    /// Makes a written and closed database durable and gives it its final name. Returns its files.
    fn publish(&self, number: u64) -> io::Result<Vec<FileRecord>>;

    /// Opens a copy of a finished database, if at least `spare` bytes of the disk stay free then.
    ///
    /// # Errors
    /// `InvalidData` when a file differs from its record; [`CopyFailed`], after which the
    /// incomplete copy is removed.
    ///
    /// [`CopyFailed`]: crate::databases::copying::CopyFailed
    fn open(&self, number: u64, files: &[FileRecord], spare: u64) -> io::Result<Box<dyn Tree>>;

    /// Removes all files of a database, as soon as it is closed.
    fn remove(&self, number: u64) -> io::Result<()>;

    /// Returns the names of all databases, finished or not, and of other entries of the directory.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Bytes that all databases occupy.
    fn disk_bytes(&self) -> io::Result<u64>;
}

/// One open database.
pub(crate) trait Tree: Debug + Send + Sync {
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>>;

    fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<()>;

    /// Passes everything written so far to the kernel.
    fn flush(&self) -> io::Result<()>;

    /// Closes the database, and waits until its files are free.
    fn close(self: Box<Self>) -> io::Result<()>;
}

const PREFIX: &str = "snap-";

/// Name of a finished database.
pub(crate) fn name(number: u64) -> String {
    format!("{PREFIX}{number}")
}

/// Number of the database with this name, which may have a suffix behind a dot.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()
}
