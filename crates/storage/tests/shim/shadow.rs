//! What a power loss leaves at the very worst: of each file the bytes, of each directory the names as of the last fsync.
//!
//! Included by the preloaded library, which records, and by the tests, which restore.

use std::collections::BTreeMap;
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
        fs::write(&unfinished, names(path)?)?;
    } else {
        fs::copy(path, &unfinished)?;
    }
    fs::rename(&unfinished, shadow.join(key(&metadata)))
}

/// Builds in `to` what a power loss could leave of `live`, whose process is gone. `keep` says of each file, and of the
/// names of each directory, whether the disk had also taken what was never fsynced: a kernel may write anything at any
/// time.
#[allow(dead_code)]
pub(crate) fn restore(shadow: &Path, live: &Path, to: &Path, keep: &mut dyn FnMut() -> bool) -> io::Result<()> {
    let mut lives = BTreeMap::new();
    walk(live, &mut |path, metadata| {
        lives.insert(key(metadata), path.to_path_buf());
    })?;
    restore_dir(shadow, &lives, &key(&fs::metadata(live)?), to, keep)
}

fn restore_dir(
    shadow: &Path,
    lives: &BTreeMap<String, PathBuf>,
    dir: &str,
    to: &Path,
    keep: &mut dyn FnMut() -> bool,
) -> io::Result<()> {
    fs::create_dir(to)?;
    let names = match lives.get(dir).filter(|_| keep()) {
        Some(live) => names(live)?,
        None => fs::read_to_string(shadow.join(dir)).unwrap_or_default(),
    };
    for line in names.lines() {
        let mut words = line.splitn(3, ' ');
        let (key, kind, name) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let to = to.join(name);
        if kind == "dir" {
            restore_dir(shadow, lives, key, &to, keep)?;
        } else if let Some(live) = lives.get(key).filter(|_| keep()) {
            fs::copy(live, to)?;
        } else if fs::copy(shadow.join(key), &to).is_err() {
            // The name was made durable, the bytes never were.
            fs::write(to, [])?;
        }
    }
    Ok(())
}

/// Records everything in and below `dir`.
#[allow(dead_code)]
pub(crate) fn record_all(shadow: &Path, dir: &Path) -> io::Result<()> {
    let mut paths = Vec::new();
    walk(dir, &mut |path, _| paths.push(path.to_path_buf()))?;
    paths.iter().try_for_each(|path| record(shadow, path))
}

/// Calls `see` for everything below `dir`.
fn walk(dir: &Path, see: &mut dyn FnMut(&Path, &fs::Metadata)) -> io::Result<()> {
    see(dir, &fs::metadata(dir)?);
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let metadata = fs::metadata(&path)?;
        if metadata.is_dir() { walk(&path, see)? } else { see(&path, &metadata) }
    }
    Ok(())
}

/// A line for each name in a directory.
fn names(dir: &Path) -> io::Result<String> {
    let mut names = String::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Ok(metadata) = entry.metadata() else { continue };
        let kind = if metadata.is_dir() { "dir" } else { "file" };
        names += &format!("{} {kind} {}\n", key(&metadata), entry.file_name().to_string_lossy());
    }
    Ok(names)
}
