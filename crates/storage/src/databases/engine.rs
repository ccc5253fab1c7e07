//! Interface of the engines for databases: sled below a directory, or memory in simulations.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::databases::copying::FileRecord;

/// Store of databases, each with a number. All calls block.
pub trait Engine: Debug + Send + Sync {
    /// Lock of the data directory; `None` for a disk in memory. While it is held, the directory
    /// cannot be opened anew.
    ///
    /// # Errors
    /// An error when the lock was released: another process may use the directory by now.
    fn lock(&self) -> io::Result<Option<Arc<File>>>;

    /// Creates an empty database.
    ///
    /// # Errors
    /// Any disk error; so for all calls below.
    fn begin(&self, number: u64) -> io::Result<Box<dyn Tree>>;

    /// Makes a written and closed database durable and renames it to its final name. Returns the
    /// size and checksum of each of its files.
    fn publish(&self, number: u64) -> io::Result<Vec<FileRecord>>;

    /// Opens a copy of a finished database, if the copy leaves at least `spare` bytes of the disk
    /// free.
    ///
    /// # Errors
    /// `InvalidData` when a file differs from its record. After an error, such as a lack of space,
    /// the incomplete copy is removed.
    fn open(&self, number: u64, files: &[FileRecord], spare: u64) -> io::Result<Box<dyn Tree>>;

    /// Removes all files of the database with this number; if it is being closed, after the close.
    fn remove(&self, number: u64) -> io::Result<()>;

    /// Returns the numbers of all databases, finished or not, in any order and perhaps repeated.
    fn numbers(&self) -> io::Result<Vec<u64>>;

    /// Bytes that all databases occupy on disk, copies included.
    fn disk_bytes(&self) -> io::Result<u64>;
}

/// One open database.
pub trait Tree: Debug + Send + Sync {
    /// Reads the value of a key; `None` when there is none.
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>>;

    /// Writes the value of a key.
    fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<()>;

    /// Writes all buffered data to the kernel, without an fsync.
    fn flush(&self) -> io::Result<()>;

    /// Closes the database, and waits until its files are released.
    fn close(self: Box<Self>) -> io::Result<()>;
}
