//! Storage of a node's small records: files of its data directory or, in simulations, keys of a
//! disk in memory.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::directory::descriptors::patiently;
use crate::failpoint;

/// Named small records, each read and replaced as a whole.
pub trait Place: Debug + Send + Sync {
    /// Reads the record `name`; `None` when it does not exist.
    ///
    /// # Errors
    /// Any disk error; so for `replace`.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the record `name` by `bytes`. Durable on return; a crash leaves either the old
    /// record or the new one.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
}

/// Records that are files of a directory.
#[derive(Debug)]
pub(crate) struct Files(pub(crate) PathBuf);

impl Place for Files {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match patiently(|| fs::read(self.0.join(name))) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (unfinished, path) = (self.0.join(format!("{name}.new")), self.0.join(name));
        let mut file = patiently(|| File::create(&unfinished))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        failpoint::pass("record.written")?;
        fs::rename(&unfinished, &path)?;
        sync_dir(&self.0)?;
        failpoint::pass("record.renamed")
    }
}

/// Makes the entries of the directory `dir` durable, such as renamed files.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    patiently(|| File::open(dir))?.sync_all()
}

/// Removes `path` with everything below it, if it exists.
pub(crate) fn remove_all(path: &Path) -> io::Result<()> {
    match patiently(|| fs::remove_dir_all(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
