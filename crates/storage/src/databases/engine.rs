//! Engines for databases: sled below a directory or, in simulations, a disk in memory.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::databases::copying::FileRecord;

/// Store of databases, each with a number. All calls block.
pub(crate) trait Engine: Debug + Send + Sync {
    /// Lock of the data directory; `None` for a disk in memory. While it is held, the directory
    /// cannot be opened anew.
    ///
    /// # Errors
    /// An error when the lock was released: another process may use the directory by now.
    fn lock(&self) -> io::Result<Option<Arc<File>>>;

    /// Creates an empty database.
    fn begin(&self, number: u64) -> io::Result<Box<dyn Tree>>;

    /// Makes a written and closed database durable and renames it to its final name. Returns the
    /// size and checksum of each of its files.
    fn publish(&self, number: u64) -> io::Result<Vec<FileRecord>>;

    /// Opens a copy of a finished database, if the copy leaves at least `spare` bytes of the disk
    /// free.
    ///
    /// # Errors
    /// `InvalidData` when a file differs from its record; [`CopyFailed`] for a lack of space. The
    /// incomplete copy is removed.
    ///
    /// [`CopyFailed`]: crate::databases::copying::CopyFailed
    fn open(&self, number: u64, files: &[FileRecord], spare: u64) -> io::Result<Box<dyn Tree>>;

    /// Removes all files of the database with this number; if it is being closed, after the close.
    fn remove(&self, number: u64) -> io::Result<()>;

    /// Returns the names of all databases, finished or not. The names of other directory entries
    /// can be among them.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Bytes that all databases occupy on disk, copies included.
    fn disk_bytes(&self) -> io::Result<u64>;
}

/// One open database.
pub(crate) trait Tree: Debug + Send + Sync {
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>>;

    fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<()>;

    /// Writes all buffered data to the kernel, without an fsync.
    fn flush(&self) -> io::Result<()>;

    /// Closes the database, and waits until its files are released.
    fn close(self: Box<Self>) -> io::Result<()>;
}

const PREFIX: &str = "snap-";

/// Directory name of the finished database with this number.
pub(crate) fn name(number: u64) -> String {
    format!("{PREFIX}{number}")
}

/// Number of the database with this directory name, which may have a suffix such as `.new`; `None`
/// for a name of another form.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()
}
