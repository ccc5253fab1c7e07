//! Bits that flipped while nobody looked: recovery or a refusal, never a wrong answer.

use std::fs;
use std::path::{Path, PathBuf};

use storage::Error;

use crate::harness::{copy_dir, data_dir, data_dir_in_memory, meta, open, records, write_snapshot};
use crate::workload::{Run, Told};

/// Opens sled beside the storage, changes it and lets go of it.
fn tamper(dir: &Path, change: impl FnOnce(&sled::Db)) {
    let config = sled::Config::new().path(dir.join("sled")).mode(sled::Mode::LowSpace).flush_every_ms(None);
    // A database that was just closed keeps its lock for a moment.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let db = loop {
        match config.open() {
            Err(error) if error.to_string().contains("lock") && std::time::Instant::now() < deadline => {
                std::thread::yield_now();
            }
            opened => break opened.unwrap(),
        }
    };
    change(&db);
    db.flush().unwrap();
}

fn flip_bit(path: &Path, bit: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    fs::write(path, bytes).unwrap();
}

fn log_file(dir: &Path) -> PathBuf {
    let files = fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "wal")).max().unwrap()
}

#[test]
fn a_flipped_bit_in_the_log_is_refused_with_the_remedy() {
    let (_parent, dir) = data_dir_in_memory();
    let mut told = Told::default();
    assert!(Run { cycles: 2, ..Run::default() }.spawn(&dir).watch(&mut told, usize::MAX).ok);
    let path = log_file(&dir);
    flip_bit(&path, fs::metadata(&path).unwrap().len() * 4);
    let Err(error) = open(&dir) else { panic!("a damaged log was opened") };
    assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("opening the log") && message.contains("move"), "{message}");
}

#[test]
fn a_flipped_bit_in_sled_is_refused_or_harmless() {
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let (parent, dir) = data_dir_in_memory();
    let mut told = Told::default();
    assert!(Run { cycles: 4, ..Run::default() }.spawn(&dir).watch(&mut told, usize::MAX).ok);
    let db = dir.join("sled/db");
    let bytes = fs::read(&db).unwrap();
    let copy = parent.path().join("copy");
    let (mut harmless, mut refused) = (0, 0);
    for _ in 0..40 {
        // Only where something is: most of sled's file is empty.
        let at = std::iter::repeat_with(|| rng.usize(..bytes.len())).find(|&at| bytes[at] != 0).unwrap();
        let bit = at as u64 * 8 + rng.u64(..8);
        copy_dir(&dir, &copy);
        flip_bit(&copy.join("sled/db"), bit);
        let mut told_now = Told::default();
        let ended = Run::default().spawn(&copy).watch(&mut told_now, usize::MAX);
        let context = format!("seed {seed}, bit {bit}: {ended:?}");
        if ended.ok {
            // The child has compared what it found; the log stands apart from sled and must be whole.
            assert_eq!(told_now.last_entry(), told.last_entry(), "{context}");
            harmless += 1;
        } else {
            let said = |words| ended.stderr.contains(words);
            assert!(said("refused: ") || said("/sled-0.34.7/"), "{context}");
            refused += 1;
        }
        fs::remove_dir_all(&copy).unwrap();
    }
    assert!(refused > 0, "{harmless} flips did no harm");
}

/// The storage with one snapshot, after `change` was made to it behind its back.
#[track_caller]
fn check_refused(change: impl FnOnce(&sled::Db), wanted: &str) {
    let (_parent, dir) = data_dir();
    {
        let storage = open(&dir).unwrap();
        write_snapshot(&storage, &records(1, 200), &meta(1, 5)).unwrap();
    }
    tamper(&dir, change);
    let Err(error) = open(&dir) else { panic!("it was opened, but {wanted:?} was expected") };
    assert!(error.to_string().contains(wanted), "{error}");
}

fn snapshot_tree(db: &sled::Db) -> sled::Tree {
    let name = db.tree_names().into_iter().find(|name| name.starts_with(b"snap-")).unwrap();
    db.open_tree(name).unwrap()
}

#[test]
fn a_changed_chunk_is_noticed() {
    let change = |db: &sled::Db| {
        let tree = snapshot_tree(db);
        let mut chunk = tree.get(3u32.to_be_bytes()).unwrap().unwrap().to_vec();
        chunk[77] ^= 4;
        tree.insert(3u32.to_be_bytes(), chunk).unwrap();
    };
    check_refused(change, "the hash of snapshot");
}

#[test]
fn a_lost_chunk_is_noticed() {
    check_refused(|db| drop(snapshot_tree(db).remove(2u32.to_be_bytes()).unwrap()), "chunk 2 is missing");
}

#[test]
fn a_changed_pointer_is_noticed() {
    let change = |db: &sled::Db| {
        let tree = db.open_tree("snapshots").unwrap();
        let mut pointer = tree.get("current").unwrap().unwrap().to_vec();
        pointer[9] ^= 1;
        tree.insert("current", pointer).unwrap();
    };
    check_refused(change, "checksum does not match");
}

#[test]
fn a_changed_identity_is_noticed() {
    let change = |db: &sled::Db| {
        let tree = db.open_tree("node").unwrap();
        let mut identity = tree.get("identity").unwrap().unwrap().to_vec();
        identity[3] ^= 1;
        tree.insert("identity", identity).unwrap();
    };
    check_refused(change, "the node's identity is unreadable");
}

#[test]
fn a_newer_format_is_refused_and_not_called_damage() {
    let change = |db: &sled::Db| {
        let tree = db.open_tree("node").unwrap();
        let mut identity = tree.get("identity").unwrap().unwrap().to_vec();
        identity[0] = 2;
        tree.insert("identity", identity).unwrap();
    };
    check_refused(change, "has format 2, this program knows up to 1");
}

#[test]
fn a_recovery_file_that_sled_left_half_written_does_no_harm() {
    let (_parent, dir) = data_dir();
    drop(open(&dir).unwrap());
    fs::write(dir.join("sled/snap.00000000000FFFFF.generating"), []).unwrap();
    open(&dir).unwrap();
}
