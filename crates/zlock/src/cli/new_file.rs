//! Atomic creation of a file: the file gets its final name only when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::failure::Failure;

/// A file that is being written under a temporary name. A drop before [`NewFile::finish`] removes
/// it.
pub(crate) struct NewFile {
    file: File,
    unfinished: PathBuf,
    path: PathBuf,
    finished: bool,
}

impl NewFile {
    /// Creates the file `PATH.part`, which only this user can read, because a backup contains data
    /// that ACLs protect.
    pub(crate) fn begin(path: &Path) -> Result<NewFile, Failure> {
        let mut name = path.file_name().ok_or_else(|| failed(path, "is no name of a file"))?.to_owned();
        name.push(".part");
        let unfinished = path.with_file_name(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&unfinished);
        let file = file.map_err(|error| failed(&unfinished, error))?;
        Ok(NewFile { file, unfinished, path: path.to_owned(), finished: false })
    }

    /// Returns the unfinished file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Changes the name that the finished file will have.
    pub(crate) fn rename(&mut self, path: PathBuf) {
        self.path = path;
    }

    /// Makes the file durable and renames it to its final name, which is returned.
    pub(crate) fn finish(mut self) -> Result<PathBuf, Failure> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let renamed = self.file.sync_all().and_then(|()| fs::rename(&self.unfinished, &self.path));
        let renamed = renamed.and_then(|()| File::open(parent)?.sync_all());
        renamed.map_err(|error| failed(&self.path, error))?;
        self.finished = true;
        Ok(self.path.clone())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}

/// Returns a command's failure about the file at `path`.
pub(crate) fn failed(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::refused(format!("{}: {why}", path.display()))
}
