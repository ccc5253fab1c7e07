//! Tests of the log beyond openraft's suite: for example, a log has the same content after it is
//! opened again.

use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use storage::Vote;

use crate::harness::{append, block_on, bytes_of, data_dir, entry, log_id, open};

#[test]
fn entries_vote_and_committed_position_survive_a_reopen() {
    let (_parent, dir) = data_dir();
    block_on(async {
        let storage = open(&dir).unwrap();
        assert!(storage.meta.pristine());
        let mut log = storage.log.clone();
        log.save_vote(&Vote::new_committed(3, 2)).await.unwrap();
        append(&storage, (0..10).map(|i| entry(3, i, &[i as u8; 100])).collect()).await.unwrap();
        log.save_committed(Some(log_id(3, 7))).await.unwrap();
        // The committed position is not durable by itself; the flush of this append includes it.
        append(&storage, vec![entry(3, 10, b"ten")]).await.unwrap();
    });
    block_on(async {
        let storage = open(&dir).unwrap();
        assert!(!storage.meta.pristine());
        let mut log = storage.log.clone();
        assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new_committed(3, 2)));
        assert_eq!(log.read_committed().await.unwrap(), Some(log_id(3, 7)));
        let entries = log.try_get_log_entries(..).await.unwrap();
        assert_eq!(entries.len(), 11);
        assert_eq!(bytes_of(&entries[4]), [4; 100]);
        assert_eq!(bytes_of(&entries[10]), b"ten");
    });
}

#[test]
fn a_cut_and_a_purge_survive_a_reopen() {
    let (_parent, dir) = data_dir();
    block_on(async {
        let storage = open(&dir).unwrap();
        let mut log = storage.log.clone();
        append(&storage, (0..20).map(|i| entry(1, i, b"old")).collect()).await.unwrap();
        log.truncate_after(Some(log_id(1, 14))).await.unwrap();
        append(&storage, (15..18).map(|i| entry(2, i, b"new")).collect()).await.unwrap();
        crate::harness::write_snapshot(&storage, &[], &crate::harness::meta(1, 5)).unwrap();
        log.purge(log_id(1, 5)).await.unwrap();
    });
    block_on(async {
        let mut log = open(&dir).unwrap().log;
        let state = log.get_log_state().await.unwrap();
        assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(log_id(1, 5)), Some(log_id(2, 17))));
        let entries = log.try_get_log_entries(..).await.unwrap();
        assert_eq!(entries.first().unwrap().log_id, log_id(1, 6));
        assert_eq!(bytes_of(&entries[9]), b"new");
    });
}

/// The log has entries of term 5, which were never committed, when a snapshot with a last entry of
/// term 4 arrives.
#[test]
fn a_purge_behind_entries_of_a_later_term_removes_them() {
    let (_parent, dir) = data_dir();
    block_on(async {
        let storage = open(&dir).unwrap();
        let mut log = storage.log.clone();
        append(&storage, (0..10).map(|i| entry(if i < 5 { 1 } else { 5 }, i, b"old")).collect()).await.unwrap();
        crate::harness::write_snapshot(&storage, &[], &crate::harness::meta(4, 20)).unwrap();
        log.purge(log_id(4, 20)).await.unwrap();
        append(&storage, vec![entry(6, 21, b"new")]).await.unwrap();
    });
    block_on(async {
        let mut log = open(&dir).unwrap().log;
        let state = log.get_log_state().await.unwrap();
        assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(log_id(4, 20)), Some(log_id(6, 21))));
        assert_eq!(bytes_of(&log.try_get_log_entries(..).await.unwrap()[0]), b"new");
    });
}

#[test]
fn a_limited_read_stops_at_some_megabytes_but_gives_one_entry_at_least() {
    let (_parent, dir) = data_dir();
    block_on(async {
        let storage = open(&dir).unwrap();
        append(&storage, (0..4).map(|i| entry(1, i, &vec![7; 3 << 20])).collect()).await.unwrap();
        let mut log = storage.log.clone();
        let first = log.limited_get_log_entries(0, 4).await.unwrap();
        assert_eq!(first.len(), 1);
        assert_eq!(log.try_get_log_entries(0..4).await.unwrap().len(), 4);
    });
}

/// A purge can remove entries after openraft decided to send them. openraft asserts that the
/// entries it sends have no gap.
#[test]
fn what_is_sent_to_a_follower_has_no_gap_before_it_though_entries_were_purged_meanwhile() {
    let (_parent, dir) = data_dir();
    block_on(async {
        let storage = open(&dir).unwrap();
        let mut log = storage.log.clone();
        append(&storage, (0..20).map(|i| entry(1, i, b"old")).collect()).await.unwrap();
        crate::harness::write_snapshot(&storage, &[], &crate::harness::meta(1, 5)).unwrap();
        log.purge(log_id(1, 5)).await.unwrap();
        assert_eq!(log.limited_get_log_entries(3, 20).await.unwrap(), []);
        assert_eq!(log.limited_get_log_entries(6, 20).await.unwrap().len(), 14);
    });
}

#[test]
fn a_vote_never_goes_back() {
    let (parent, dir) = data_dir();
    block_on(async {
        let storage = open(&dir).unwrap();
        let mut log = storage.log.clone();
        log.save_vote(&Vote::new(5, 1)).await.unwrap();
        assert!(log.save_vote(&Vote::new(4, 2)).await.is_err());
        let reason = storage.fatal().failed().await;
        assert!(reason.contains("Vote cannot be reversed"), "{reason}");
        assert!(append(&storage, vec![entry(5, 0, b"")]).await.is_err(), "after an error every write is refused");
    });
    // A copy is opened, because after an error this process never releases the original directory.
    let copy = parent.path().join("copy");
    crate::harness::copy_dir(&dir, &copy);
    assert_eq!(open(&copy).unwrap().log.vote(), Some(Vote::new(5, 1)));
}
