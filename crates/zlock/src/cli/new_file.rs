//! Atomic creation of a file: the file gets its final name only when it is complete.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::failure::Failure;

/// Beginning of the name of an unfinished file. A random number in hexadecimal and [`ENDING`]
/// follow.
const BEGINNING: &str = "saving-";
const ENDING: &str = ".part";
/// Number of random names that are tried for an unfinished file.
const TRIES: usize = 8;

/// A file that is being written under a temporary name, which no other run uses. A drop before
/// [`NewFile::finish`] removes it.
pub(crate) struct NewFile {
    file: File,
    unfinished: PathBuf,
    finished: bool,
}

impl NewFile {
    /// Creates an unfinished file in the directory of `path`, its final name.
    pub(crate) fn begin(path: &Path) -> Result<NewFile, Failure> {
        path.file_name().ok_or_else(|| failed(path, "is no name of a file"))?;
        NewFile::begin_in(parent(path)).map_err(|error| failed(path, error))
    }

    /// Creates an unfinished file in a directory. Only this user can read the file, because a
    /// backup contains data that ACLs protect.
    pub(crate) fn begin_in(directory: &Path) -> io::Result<NewFile> {
        let mut taken = io::Error::from(ErrorKind::AlreadyExists);
        for _ in 0..TRIES {
            let random = RandomState::new().hash_one(std::process::id());
            let unfinished = directory.join(format!("{BEGINNING}{random:016x}{ENDING}"));
            match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&unfinished) {
                Ok(file) => return Ok(NewFile { file, unfinished, finished: false }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }

    /// Returns the unfinished file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Makes the file durable and renames it to its final name. An older file of this name is
    /// replaced.
    pub(crate) fn finish(self, path: &Path) -> Result<(), Failure> {
        self.publish(path, |from, to| fs::rename(from, to)).map_err(|error| failed(path, error))
    }

    /// Makes the file durable and gives it its final name. If there is a file of this name already,
    /// the failure says `why` it stays.
    pub(crate) fn finish_new(self, path: &Path, why: &str) -> Result<(), Failure> {
        self.publish(path, rename_new).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => failed(path, why),
            _ => failed(path, error),
        })
    }

    fn publish(mut self, path: &Path, rename: impl FnOnce(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
        self.file.sync_all()?;
        rename(&self.unfinished, path)?;
        self.finished = true;
        File::open(parent(path))?.sync_all()
    }
}

/// Renames a file, and fails if the new name is in use.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // This file system, such as NFS, or this kernel has no such rename.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            renamed => return Ok(renamed?),
        }
    }
    fs::hard_link(from, to)?;
    // An error is ignored, as the file has its final name.
    let _ = fs::remove_file(from);
    Ok(())
}

/// Tells whether a file has the name of an unfinished file.
pub(crate) fn is_unfinished(name: &str) -> bool {
    let random = name.strip_prefix(BEGINNING).and_then(|rest| rest.strip_suffix(ENDING));
    random.is_some_and(|random| !random.is_empty() && random.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::*;

    fn names(dir: &TempDir) -> Vec<String> {
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn two_writers_of_one_name_do_not_disturb_each_other() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("backup");
        let mut first = NewFile::begin(&path).unwrap();
        let mut second = NewFile::begin(&path).unwrap();
        let third = NewFile::begin(&path).unwrap();
        first.write_all(b"first").unwrap();
        second.write_all(b"the second").unwrap();
        assert!(names(&dir).iter().all(|name| is_unfinished(name)), "{:?}", names(&dir));
        let mode = first.file().metadata().unwrap().permissions().mode();
        first.finish(&path).unwrap();
        drop(third);
        assert_eq!((fs::read(&path).unwrap(), mode & 0o777), (b"first".to_vec(), 0o600));
        second.finish(&path).unwrap();
        assert_eq!((fs::read(&path).unwrap(), names(&dir)), (b"the second".to_vec(), vec!["backup".to_owned()]));
    }

    #[test]
    fn a_file_that_must_be_new_replaces_none() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("seed");
        let [first, second] = [(); 2].map(|()| NewFile::begin(&path).unwrap());
        first.finish_new(&path, "is there").unwrap();
        let refused = second.finish_new(&path, "is there").unwrap_err();
        assert_eq!(refused.into_line(), format!("{}: is there", path.display()));
        assert_eq!(names(&dir), ["seed"]);
    }

    #[test]
    fn an_unfinished_file_is_known_by_its_name() {
        let dir = TempDir::new().unwrap();
        let _file = NewFile::begin_in(dir.path()).unwrap();
        assert!(is_unfinished(&names(&dir)[0]) && is_unfinished("saving-17.part"));
        for other in ["saving-.part", "saving-all.part", "saving-17", "my-saving-17.part"] {
            assert!(!is_unfinished(other), "{other}");
        }
    }
}
