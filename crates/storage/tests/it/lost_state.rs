//! Tests of nodes with a lost snapshot: the log replaces it, or a leader sends a new one.

use std::fs;
use std::path::Path;

use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use storage::{Error, Storage, StorageConfig, Vote};

use crate::harness::{
    append, block_on, bytes_of, config, copy_dir, data_dir, entry, log_id, meta, records, write_snapshot,
};

fn open_with_peers(dir: &Path) -> Result<Storage, Error> {
    Storage::open(StorageConfig { has_peers: true, ..config(dir) })
}

/// Creates the data of a joined node: a vote, entries 0 to 9, and a snapshot up to entry 5. With
/// `purged`, the log begins after the snapshot.
fn begun(dir: &Path, purged: bool) {
    let storage = open_with_peers(dir).unwrap();
    storage.meta.set_joined().unwrap();
    block_on(async {
        let mut log = storage.log.clone();
        log.save_vote(&Vote::new(7, 2)).await.unwrap();
        append(&storage, (0..10).map(|index| entry(7, index, b"x")).collect()).await.unwrap();
        log.save_committed(Some(log_id(7, 8))).await.unwrap();
        write_snapshot(&storage, &records(1, 20), &meta(7, 5)).unwrap();
        if purged {
            log.purge(log_id(7, 5)).await.unwrap();
        }
    });
}

#[test]
fn a_log_that_holds_everything_makes_up_for_a_lost_snapshot() {
    for loss in ["sled", "snapshot"] {
        let (_parent, dir) = data_dir();
        begun(&dir, false);
        let path = dir.join(loss);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::write(path, b"garbage").unwrap()
        }
        for _ in 0..2 {
            let storage = open_with_peers(&dir).unwrap();
            assert!(storage.meta.joined() && !storage.meta.rejoining(), "{loss}");
            assert!(storage.snapshots.current().is_none(), "{loss}");
            assert_eq!(block_on(storage.log.clone().try_get_log_entries(..)).unwrap().len(), 10, "{loss}");
            assert_eq!(storage.log.vote(), Some(Vote::new(7, 2)), "{loss}");
        }
    }
}

#[test]
fn a_node_that_has_lost_its_state_keeps_its_vote_and_has_no_say_until_a_leader_has_sent_it() {
    let (_parent, dir) = data_dir();
    begun(&dir, true);
    fs::write(dir.join("sled/snap-0/db"), b"garbage").unwrap();
    for _ in 0..2 {
        let storage = open_with_peers(&dir).unwrap();
        assert!(!storage.meta.joined() && storage.meta.rejoining() && !storage.meta.pristine());
        assert_eq!(storage.log.vote(), Some(Vote::new(7, 2)));
        assert_eq!((storage.log.last(), storage.log.committed(), storage.log.purged()), (None, None, None));
        assert!(dir.join("log.lost").exists(), "for an operator who must save what no other node has");
    }
    {
        let storage = open_with_peers(&dir).unwrap();
        write_snapshot(&storage, &records(2, 20), &meta(8, 20)).unwrap();
        block_on(storage.log.clone().purge(log_id(8, 20))).unwrap();
        storage.meta.set_joined().unwrap();
    }
    let storage = open_with_peers(&dir).unwrap();
    assert!(storage.meta.joined() && !storage.meta.rejoining());
    assert_eq!(storage.snapshots.current().unwrap().meta(), &meta(8, 20));
    assert!(!dir.join("log.lost").exists());
}

/// A node without its snapshot replaces its log by a new one. After a power cut in the middle of
/// this replacement, the next start completes it.
#[test]
fn giving_up_goes_on_where_it_stopped() {
    let (parent, dir) = data_dir();
    begun(&dir, true);
    let given_up = parent.path().join("given-up");
    copy_dir(&dir, &given_up);
    fs::remove_dir_all(given_up.join("sled")).unwrap();
    drop(open_with_peers(&given_up).unwrap());
    // Power cut before the new log got its final name.
    fs::rename(given_up.join("log"), given_up.join("log.new")).unwrap();
    let storage = open_with_peers(&given_up).unwrap();
    assert!(storage.meta.rejoining());
    assert_eq!((storage.log.vote(), storage.log.last()), (Some(Vote::new(7, 2)), None));
    drop(storage);
    // Power cut while the log is given up a second time: the log of the first time stays.
    fs::rename(given_up.join("log"), given_up.join("log.new")).unwrap();
    copy_dir(&given_up.join("log.lost"), &given_up.join("log.old"));
    drop(open_with_peers(&given_up).unwrap());
    assert!(given_up.join("log.lost").exists() && !given_up.join("log.old").exists());
    // Power cut after the node stored that it rejoins, and before the old log was renamed. The
    // replacement begins again.
    let half = parent.path().join("half");
    copy_dir(&given_up, &half);
    fs::remove_dir_all(half.join("log")).unwrap();
    fs::rename(half.join("log.lost"), half.join("log")).unwrap();
    let storage = open_with_peers(&half).unwrap();
    assert!(storage.meta.rejoining());
    assert_eq!((storage.log.vote(), storage.log.last()), (Some(Vote::new(7, 2)), None));
}

/// The log that was given up has an older vote than the log in its place, which is removed here.
#[test]
fn a_log_that_was_given_up_does_not_replace_a_missing_one() {
    let (_parent, dir) = data_dir();
    begun(&dir, true);
    fs::remove_dir_all(dir.join("sled")).unwrap();
    drop(open_with_peers(&dir).unwrap());
    fs::remove_dir_all(dir.join("log")).unwrap();
    let error = open_with_peers(&dir).err().unwrap().to_string();
    assert!(error.contains("its log, and with it the vote, is gone"), "{error}");
    assert!(dir.join("log.lost").exists());
}

/// Simulates a power cut that undoes the removal of the older of two purged chunks.
#[test]
fn a_chunk_that_comes_back_after_it_was_purged_is_no_gap() {
    let (parent, dir) = data_dir();
    let storage = open_with_peers(&dir).unwrap();
    let big = vec![7; 8 << 20];
    let fill = |from: u64| block_on(append(&storage, (from..from + 9).map(|index| entry(1, index, &big)).collect()));
    fill(0).unwrap();
    let first = chunks(&dir).remove(0);
    let copy = parent.path().join("first");
    fs::copy(&first, &copy).unwrap();
    fill(9).unwrap();
    write_snapshot(&storage, &[], &meta(1, 17)).unwrap();
    block_on(storage.log.clone().purge(log_id(1, 17))).unwrap();
    // raft-log removes the purged chunks after the purge's flush, and before the flush of this
    // append.
    block_on(append(&storage, vec![entry(1, 18, b"last")])).unwrap();
    drop(storage);
    assert!(!first.exists() && chunks(&dir).len() < 3);
    fs::copy(&copy, &first).unwrap();
    let storage = open_with_peers(&dir).unwrap();
    let found = block_on(storage.log.clone().try_get_log_entries(..)).unwrap();
    assert_eq!(found.iter().map(bytes_of).collect::<Vec<_>>(), [b"last"]);
    assert!(!first.exists());
}

fn chunks(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut chunks: Vec<_> = fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path()).collect();
    chunks.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    chunks.sort();
    chunks
}
