//! Where a node's small records lie: files of its data directory or, for simulations, keys of a
//! disk in memory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::failpoint;
use crate::memory::{MemoryDatabase, MemoryTree};

/// Records that are read and replaced as a whole.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Dir(Arc<Path>),
    Memory(MemoryDatabase, MemoryTree),
}

impl Place {
    pub(crate) fn in_memory(database: MemoryDatabase) -> Place {
        let tree = database.tree("records");
        Place::Memory(database, tree)
    }

    /// The record `name`, if there is one.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match self {
            Place::Memory(_, tree) => tree.get(name.as_bytes()),
            Place::Dir(dir) => match fs::read(dir.join(name)) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Puts `bytes` in the place of the record `name`. Durable on return; a crash leaves the old
    /// record or the new one.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        match self {
            Place::Memory(database, tree) => {
                tree.insert(name.as_bytes(), bytes)?;
                failpoint::pass("record.written")?;
                database.sync()?;
                failpoint::pass("record.renamed")
            }
            Place::Dir(dir) => {
                let (unfinished, path) = (dir.join(format!("{name}.new")), dir.join(name));
                let mut file = File::create(&unfinished)?;
                file.write_all(bytes)?;
                file.sync_all()?;
                failpoint::pass("record.written")?;
                fs::rename(&unfinished, &path)?;
                sync_dir(dir)?;
                failpoint::pass("record.renamed")
            }
        }
    }
}

/// Makes the names in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Removes what is at `path`, if there is something.
pub(crate) fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
