//! Tests that flipped bits on disk lead to recovery or a refusal, never to wrong data.

use std::fs;
use std::path::{Path, PathBuf};

use openraft::storage::RaftLogStorage;
use storage::Error;

use crate::harness::{
    append, block_on, copy_dir, data_dir, data_dir_in_memory, entry, log_id, meta, open, records, seeded,
    write_snapshot,
};
use crate::workload::{Ended, Run, Told};

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

/// Runs a child process on a copy of the data directory `dir`, with one flipped bit in `file`.
/// Returns the end of the child and the acknowledged writes that it printed.
fn look_at_flipped(dir: &Path, copy: &Path, file: &Path, bit: u64) -> (Ended, Told) {
    copy_dir(dir, copy);
    flip_bit(&copy.join(file.strip_prefix(dir).unwrap()), bit);
    let mut told = Told::default();
    let ended = Run::default().spawn(copy).watch(&mut told, usize::MAX);
    fs::remove_dir_all(copy).unwrap();
    (ended, told)
}

#[test]
fn a_flipped_bit_in_a_snapshot_is_refused_and_never_panics() {
    let (seed, mut rng) = seeded();
    let (parent, dir) = data_dir_in_memory();
    let mut told = Told::default();
    assert!(Run { cycles: 4, ..Run::default() }.spawn(&dir).watch(&mut told, usize::MAX).ok);
    let db = fs::read_dir(dir.join("sled")).unwrap().map(|entry| entry.unwrap().path().join("db"));
    let db = db.filter(|path| path.exists()).min().unwrap();
    let bytes = fs::read(&db).unwrap();
    for _ in 0..40 {
        let bit = rng.u64(..bytes.len() as u64 * 8);
        let (ended, _) = look_at_flipped(&dir, &parent.path().join("copy"), &db, bit);
        let context = format!("seed {seed}, bit {bit}: {ended:?}");
        // The log is purged up to the snapshot, and no other node can send a snapshot.
        assert!(ended.stderr.contains("but its snapshot is lost") && !ended.stderr.contains("panicked"), "{context}");
    }
}

/// Checks that the data directory of a node with a snapshot does not open after `change`. The error
/// must contain `wanted`.
#[track_caller]
fn check_refused(change: impl FnOnce(&Path), wanted: &str) {
    let (_parent, dir) = data_dir();
    {
        let storage = open(&dir).unwrap();
        block_on(append(&storage, (0..8).map(|index| entry(1, index, b"x")).collect())).unwrap();
        write_snapshot(&storage, &records(1, 200), &meta(1, 5)).unwrap();
        block_on(storage.log.clone().purge(log_id(1, 5))).unwrap();
    }
    change(&dir);
    let Err(error) = open(&dir) else { panic!("it was opened, but {wanted:?} was expected") };
    assert!(error.to_string().contains(wanted), "{error}");
}

#[test]
fn a_lost_file_of_a_snapshot_is_noticed() {
    let lose = |dir: &Path| fs::remove_file(dir.join("sled/snap-0/db")).unwrap();
    check_refused(lose, "snap-0/db is gone");
}

#[test]
fn a_changed_pointer_is_noticed() {
    check_refused(|dir| flip_bit(&dir.join("snapshot"), 77), "checksum does not match");
}

#[test]
fn a_lost_snapshot_is_noticed() {
    check_refused(|dir| fs::remove_file(dir.join("snapshot")).unwrap(), "but its snapshot ends at None");
}

#[test]
fn a_changed_identity_is_noticed() {
    check_refused(|dir| flip_bit(&dir.join("node"), 25), "the node's identity is unreadable");
}

#[test]
fn a_newer_format_is_refused_and_not_called_damage() {
    let change = |dir: &Path| {
        let mut identity = fs::read(dir.join("node")).unwrap();
        identity[0] = 9;
        fs::write(dir.join("node"), identity).unwrap();
    };
    check_refused(change, "has format 9, this program knows up to 2");
}

#[test]
fn an_older_format_is_refused_and_not_read() {
    let change = |dir: &Path| {
        let identity = fs::read(dir.join("node")).unwrap();
        let (record, _) = identity.split_last_chunk::<4>().unwrap();
        let mut record = record.to_vec();
        record[1] = 1;
        let checksum = storage::codec::checksum(&record).to_le_bytes();
        fs::write(dir.join("node"), [&record[..], &checksum].concat()).unwrap();
    };
    check_refused(change, "has format 1 of an early build, and this program reads format 2 alone");
}
