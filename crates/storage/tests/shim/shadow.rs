//! Record of the synced content of a data directory: each file's bytes and each directory's names
//! as of the last fsync. A simulated power loss keeps at least this content.
//!
//! The preloaded library includes this file and records; the tests include it and restore.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::UNIX_EPOCH;

/// Key of a file: inode number and time of birth, as a file system can reuse an inode number.
pub(crate) fn key(metadata: &fs::Metadata) -> String {
    let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!("{}-{}", metadata.ino(), born.map_or(0, |born| born.as_nanos()))
}

/// Records the present content of `path` as durable. If the process is killed meanwhile, the record
/// is complete or missing.
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

/// Number of bytes that the disk writes atomically.
#[allow(dead_code)]
const PAGE: usize = 4096;

/// Builds in `to` one possible content of the directory `live` after a power loss. The process that
/// wrote `live` has ended. The kernel may write pages in any order, so `keep` decides for each page
/// of a file and each name in a directory whether changes since the last fsync are on disk. A lost
/// page of a grown file reads as zeros.
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
    let fsynced = fs::read_to_string(shadow.join(dir)).unwrap_or_default();
    let live = lives.get(dir).map_or(Ok(String::new()), |live| names(live))?;
    let (fsynced, live) = (by_name(&fsynced), by_name(&live));
    let all: std::collections::BTreeSet<&str> = fsynced.keys().chain(live.keys()).copied().collect();
    for name in all {
        let kept = if keep() { live.get(name) } else { fsynced.get(name) };
        let Some((key, kind)) = kept else { continue };
        let to = to.join(name);
        if *kind == "dir" {
            restore_dir(shadow, lives, key, &to, keep)?;
        } else {
            // A file's name can be durable without its bytes.
            let fsynced = fs::read(shadow.join(key)).unwrap_or_default();
            let live = lives.get(*key).map_or(Ok(fsynced.clone()), fs::read)?;
            fs::write(to, some_pages(&fsynced, &live, keep))?;
        }
    }
    Ok(())
}

/// Returns a possible content of a file after a power loss: pages of both versions, and the length
/// of one of them, as `keep` decides.
fn some_pages(fsynced: &[u8], live: &[u8], keep: &mut dyn FnMut() -> bool) -> Vec<u8> {
    let len = if keep() { live.len() } else { fsynced.len() };
    let mut bytes = fsynced.to_vec();
    bytes.resize(len, 0);
    for (at, page) in bytes.chunks_mut(PAGE).enumerate() {
        let from = at * PAGE;
        let same = live.get(from..from + page.len()) == Some(&*page);
        if !same && keep() {
            let taken = live.get(from..).unwrap_or_default();
            let taken = &taken[..taken.len().min(page.len())];
            page[..taken.len()].copy_from_slice(taken);
        }
    }
    bytes
}

/// Parses a recorded list of a directory's names. Returns each file's key and kind, by its name.
fn by_name(names: &str) -> BTreeMap<&str, (&str, &str)> {
    let entry = |line| {
        let mut words = str::splitn(line, 3, ' ');
        let (key, kind) = (words.next()?, words.next()?);
        words.next().map(|name| (name, (key, kind)))
    };
    names.lines().filter_map(entry).collect()
}

/// Records everything in and below `dir`.
#[allow(dead_code)]
pub(crate) fn record_all(shadow: &Path, dir: &Path) -> io::Result<()> {
    let mut paths = Vec::new();
    walk(dir, &mut |path, _| paths.push(path.to_path_buf()))?;
    paths.iter().try_for_each(|path| record(shadow, path))
}

/// Calls `see` for `dir` and everything below it.
fn walk(dir: &Path, see: &mut dyn FnMut(&Path, &fs::Metadata)) -> io::Result<()> {
    see(dir, &fs::metadata(dir)?);
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let metadata = fs::metadata(&path)?;
        if metadata.is_dir() { walk(&path, see)? } else { see(&path, &metadata) }
    }
    Ok(())
}

/// Lists a directory: one line for each name, with the file's key and kind.
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
