//! Removal of pages from the kernel's page cache that may not be on disk.
//!
//! After a failed write-back Linux marks the page as clean: one fsync reports the error, and the
//! page stays in the page cache. A restarted node would read that page and treat it as durable, and
//! a later power cut would lose it. The same risk exists for files and names that a killed process
//! has not synced.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Syncs a file, or all files in a directory, and drops them from the page cache, so that the next
/// read returns the bytes on disk. Names with the suffix `.new` or `.copy` are left out, as
/// unfinished files are never read. A missing `path` is no error.
pub(crate) fn drop_unwritten(path: &Path) -> io::Result<()> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    if file.metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            if !path.extension().is_some_and(|end| end == "new" || end == "copy") {
                drop_unwritten(&path)?;
            }
        }
        return file.sync_all();
    }
    // The sync comes first, as `DontNeed` does not drop dirty pages.
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}
