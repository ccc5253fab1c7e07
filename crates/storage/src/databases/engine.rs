//! What holds databases: sled below a directory or, for simulations, a disk in memory.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::databases::copying::FileRecord;

/// Databases by number. Blocking.
pub(crate) trait Engine: Debug + Send + Sync {
    /// The lock of the data directory, where there is one. Held, it keeps the directory from being
    /// opened anew.
    ///
    /// # Errors
    /// When it was let go: the directory may be another's by now.
    fn lock(&self) -> io::Result<Option<Arc<File>>>;

    /// A new database, to be written.
    fn begin(&self, number: u64) -> io::Result<Box<dyn Tree>>;

    /// Makes a database that was written and closed durable and gives it its name. Answers the
    /// files that it has.
    fn publish(&self, number: u64) -> io::Result<Vec<FileRecord>>;

    /// Opens a finished database, through a copy, unless less than `spare` bytes of the disk were
    /// left then.
    ///
    /// # Errors
    /// `InvalidData` when it is not what was finished; [`CopyFailed`], and what there was of the
    /// copy is gone again.
    ///
    /// [`CopyFailed`]: crate::databases::copying::CopyFailed
    fn open(&self, number: u64, files: &[FileRecord], spare: u64) -> io::Result<Box<dyn Tree>>;

    /// Removes what there is of a database, as soon as it is closed.
    fn remove(&self, number: u64) -> io::Result<()>;

    /// The names of all databases, finished or not, and of what else there is.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Bytes that all databases occupy.
    fn disk_bytes(&self) -> io::Result<u64>;
}

/// One open database.
pub(crate) trait Tree: Debug + Send + Sync {
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>>;

    fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<()>;

    /// Hands everything written so far to the kernel.
    fn flush(&self) -> io::Result<()>;

    /// Closes it, and waits until its files are free.
    fn close(self: Box<Self>) -> io::Result<()>;
}

const PREFIX: &str = "snap-";

/// A finished database's name.
pub(crate) fn name(number: u64) -> String {
    format!("{PREFIX}{number}")
}

/// The number of the database that has such a name, or a name with something behind it.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()
}
