//! What the system has of a data directory in memory, and the disk may not have.
//!
//! Linux calls a page clean when its write-back has failed: the fsync that was told of it is the
//! only one that is, and the page stays in the page cache. A node that is started again would read
//! it there, take it for durable and build on it; a power cut later it is gone. What a killed
//! process has not synced, files and names, would be built on in the same way.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Makes a file, or everything in a directory, durable and drops it from the page cache: what is
/// read next is what the disk has. What ends in `.new` or `.copy` is unfinished, is never read and
/// is left out. Nothing at `path` is no error.
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
    // Dirty pages are not dropped.
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}
