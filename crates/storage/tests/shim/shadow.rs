//! What a power loss leaves at the very worst: of each file the bytes, of each directory the names as of the last fsync.
//!
//! Included by the preloaded library, which records, and by the tests, which restore.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::UNIX_EPOCH;

/// An inode number may be used again; together with its time of birth it is not.
pub(crate) fn key(metadata: &fs::Metadata) -> String {
    let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!("{}-{}", metadata.ino(), born.map_or(0, |born| born.as_nanos()))
}

/// Records what `path` is at this moment as durable. Whole or not at all: the process may be killed right here.
pub(crate) fn record(shadow: &Path, path: &Path) -> io::Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    let metadata = fs::metadata(path)?;
    let unfinished = shadow.join(format!("unfinished-{}", std::process::id()));
    if metadata.is_dir() {
        let mut names = String::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let Ok(metadata) = entry.metadata() else { continue };
            let kind = if metadata.is_dir() { "dir" } else { "file" };
            names += &format!("{} {kind} {}\n", key(&metadata), entry.file_name().to_string_lossy());
        }
        fs::write(&unfinished, names)?;
    } else {
        fs::copy(path, &unfinished)?;
    }
    fs::rename(&unfinished, place(shadow, &key(&metadata)))
}

/// Builds in `to` what was durable of the directory whose key is `root`.
#[allow(dead_code)]
pub(crate) fn restore(shadow: &Path, root: &str, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    let Ok(names) = fs::read_to_string(place(shadow, root)) else { return Ok(()) };
    for line in names.lines() {
        let mut words = line.splitn(3, ' ');
        let (key, kind, name) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        if kind == "dir" {
            restore(shadow, key, &to.join(name))?;
        } else if fs::copy(place(shadow, key), to.join(name)).is_err() {
            // The name was made durable, the bytes never were.
            fs::write(to.join(name), [])?;
        }
    }
    Ok(())
}

/// Records everything in and below `dir`.
#[allow(dead_code)]
pub(crate) fn record_all(shadow: &Path, dir: &Path) -> io::Result<()> {
    record(shadow, dir)?;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { record_all(shadow, &path)? } else { record(shadow, &path)? }
    }
    Ok(())
}

fn place(shadow: &Path, key: &str) -> PathBuf {
    shadow.join(key)
}
