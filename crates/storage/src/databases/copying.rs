//! Copies of finished databases for reading, and the error for a lack of space for the copy.
//!
//! A lack of space for a copy harms neither the original nor the log. So it is an error for the
//! reader only, and does not stop the node. Any other disk error during a copy stops the node.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bincode::{Decode, Encode};
use rustix::fs::statvfs;

use crate::error::{damaged, is_full};

const COPY_BYTES: usize = 256 << 10;

/// Size and checksum of one file of a finished database. Each copied file is compared with its
/// record before sled opens the copy, as sled panics on damaged files.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FileRecord {
    /// Path relative to the database's directory.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) crc32: u32,
}

/// Error of copying a snapshot: the disk has not enough free space.
#[derive(Debug, thiserror::Error)]
#[error(
    "snapshot-copy-failed: a snapshot is read through a copy in {dir}, which takes {needed} bytes of free space; \
     {free} bytes are free ({source})"
)]
pub(crate) struct CopyFailed {
    dir: String,
    needed: u64,
    free: u64,
    source: io::Error,
}

impl CopyFailed {
    /// Wraps a lack of space during the copy in a [`CopyFailed`], inside an IO error with the
    /// original kind. Returns any other error unchanged. `dir` is the directory that contains the
    /// copy.
    pub(crate) fn of(source: io::Error, files: &[FileRecord], dir: &Path) -> io::Error {
        if !is_full(&source) {
            return source;
        }
        let (dir, free) = (dir.display().to_string(), free_bytes(dir).unwrap_or(0));
        io::Error::new(source.kind(), CopyFailed { dir, needed: bytes(files), free, source })
    }

    /// Tells whether an IO error contains a [`CopyFailed`].
    pub(crate) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<CopyFailed>())
    }
}

fn bytes(files: &[FileRecord]) -> u64 {
    files.iter().map(|file| file.bytes).sum()
}

fn free_bytes(dir: &Path) -> Option<u64> {
    statvfs(dir).ok().map(|space| space.f_bavail.saturating_mul(space.f_frsize))
}

/// Refuses a copy that would leave fewer than `spare` bytes of the disk free, so that other writes
/// do not fail for lack of space.
pub(crate) fn space_for(files: &[FileRecord], spare: u64, dir: &Path) -> io::Result<()> {
    // If the free space is unknown, the copy is tried.
    match free_bytes(dir) {
        Some(free) if free < bytes(files).saturating_add(spare) => {
            Err(io::Error::new(io::ErrorKind::StorageFull, format!("{spare} of them are kept free")))
        }
        _ => Ok(()),
    }
}

/// Copies the files of a finished database and compares each with its record. `failed` converts
/// errors of writing to the copy, but not errors of reading the original.
pub(crate) fn copy_verified(
    finished: &Path,
    copy: &Path,
    records: &[FileRecord],
    failed: &dyn Fn(io::Error) -> io::Error,
) -> io::Result<()> {
    for record in records {
        let (from, to) = (finished.join(&record.path), copy.join(&record.path));
        let mut file = match File::open(&from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(format!("{} is gone", from.display())));
            }
            opened => opened?,
        };
        let mut to = CopyFile { file: create(to).map_err(failed)?, failed };
        if pass_through(&mut file, &mut to)? != (record.bytes, record.crc32) {
            return Err(damaged(format!("{} is not what was written", from.display())));
        }
    }
    Ok(())
}

fn create(path: PathBuf) -> io::Result<File> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    File::create(path)
}

/// File of a copy. The function `failed` converts its write errors, which distinguishes them from
/// read errors of the original.
struct CopyFile<'a> {
    file: File,
    failed: &'a dyn Fn(io::Error) -> io::Error,
}

impl Write for CopyFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(self.failed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(self.failed)
    }
}

/// Copies `from` to `to`. Returns the number of bytes copied and their CRC-32.
pub(crate) fn pass_through(from: &mut File, to: &mut impl Write) -> io::Result<(u64, u32)> {
    let (mut hasher, mut bytes, mut buffer) = (crc32fast::Hasher::new(), 0, vec![0; COPY_BYTES]);
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
        bytes += read as u64;
    }
}
