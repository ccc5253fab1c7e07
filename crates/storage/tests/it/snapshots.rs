//! Tests of snapshots: writing, reading, sending and replacing them.

use std::io;

use crate::harness::{append, block_on, data_dir, entry, log_id, meta, open, read_snapshot, records, write_snapshot};

#[test]
fn a_snapshot_comes_back_as_it_was_pushed() {
    let (_parent, dir) = data_dir();
    let pushed = records(1, 2_000);
    {
        let storage = open(&dir).unwrap();
        assert!(storage.snapshots.current().is_none());
        let snapshot = write_snapshot(&storage, &pushed, &meta(2, 100)).unwrap();
        assert!(snapshot.chunk_count() > 10);
        assert_eq!(read_snapshot(&snapshot), pushed);
    }
    let storage = open(&dir).unwrap();
    let snapshot = storage.snapshots.current().unwrap();
    assert_eq!(snapshot.meta(), &meta(2, 100));
    assert_eq!(snapshot.manifest().records, 2_000);
    assert_eq!(read_snapshot(&snapshot), pushed);
    assert!(!storage.meta.pristine());
}

// A task of a stopped node may still write a snapshot. Its writer keeps the directory locked, so
// that no other process opens it meanwhile.
#[test]
fn a_directory_is_in_use_while_a_snapshot_is_written() {
    let (_parent, dir) = data_dir();
    let storage = open(&dir).unwrap();
    let mut writer = storage.snapshots.writer().unwrap();
    let snapshots = storage.snapshots.clone();
    drop(storage);
    let lock = std::fs::File::open(dir.join("LOCK")).unwrap();
    assert!(lock.try_lock().is_err());
    writer.push(b"record").unwrap();
    writer.finish(&meta(1, 1)).unwrap();
    lock.lock().unwrap();
    assert!(snapshots.writer().is_err(), "the directory may be another's by now");
}

#[test]
fn an_empty_snapshot_is_one() {
    let (_parent, dir) = data_dir();
    write_snapshot(&open(&dir).unwrap(), &[], &meta(1, 1)).unwrap();
    let snapshot = open(&dir).unwrap().snapshots.current().unwrap();
    assert_eq!((snapshot.chunk_count(), snapshot.bytes(), read_snapshot(&snapshot).len()), (0, 0, 0));
}

#[test]
fn a_sent_snapshot_arrives_whole() {
    let (_here, here) = data_dir();
    let (_there, there) = data_dir();
    let pushed = records(2, 1_000);
    let sent = write_snapshot(&open(&here).unwrap(), &pushed, &meta(3, 50)).unwrap();
    {
        let storage = open(&there).unwrap();
        let mut receiver = storage.snapshots.receive(sent.manifest().clone()).unwrap();
        for index in 0..sent.chunk_count() {
            assert_eq!(receiver.chunks_received(), index);
            receiver.push_chunk(&sent.chunk(index).unwrap()).unwrap();
        }
        let received = receiver.finish(|_| Ok(())).unwrap();
        assert_eq!(received.manifest(), sent.manifest());
    }
    assert_eq!(read_snapshot(&open(&there).unwrap().snapshots.current().unwrap()), pushed);
}

#[test]
fn a_transfer_that_went_wrong_is_refused_and_harms_nothing() {
    let (_here, here) = data_dir();
    let (_there, there) = data_dir();
    let sent = write_snapshot(&open(&here).unwrap(), &records(3, 500), &meta(3, 50)).unwrap();
    let storage = open(&there).unwrap();
    let old = write_snapshot(&storage, &records(4, 10), &meta(1, 10)).unwrap();
    let refused = |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidData);

    // A chunk with a flipped bit.
    let mut receiver = storage.snapshots.receive(sent.manifest().clone()).unwrap();
    let mut chunk = sent.chunk(0).unwrap();
    chunk[100] ^= 1;
    refused(receiver.push_chunk(&chunk));
    // Missing chunks.
    receiver.push_chunk(&sent.chunk(0).unwrap()).unwrap();
    refused(receiver.finish(|_| Ok(())).map(drop));
    // All chunks in another order.
    let mut receiver = storage.snapshots.receive(sent.manifest().clone()).unwrap();
    for index in (0..sent.chunk_count()).rev() {
        receiver.push_chunk(&sent.chunk(index).unwrap()).unwrap();
    }
    // One chunk too many.
    refused(receiver.push_chunk(&sent.chunk(0).unwrap()));
    refused(receiver.finish(|_| Ok(())).map(drop));

    assert_eq!(storage.fatal().reason(), None, "what a peer gets wrong is no disk error");
    assert_eq!(storage.snapshots.current().unwrap().manifest(), old.manifest());
}

#[test]
fn current_never_goes_back() {
    let (_parent, dir) = data_dir();
    let storage = open(&dir).unwrap();
    let mut slow = storage.snapshots.writer().unwrap();
    slow.push(b"old").unwrap();
    write_snapshot(&storage, &[b"new".to_vec()], &meta(2, 20)).unwrap();
    let answered = slow.finish(&meta(2, 10)).unwrap();
    assert_eq!(answered.meta(), &meta(2, 20));
    assert_eq!(read_snapshot(&storage.snapshots.current().unwrap()), [b"new"]);
}

#[test]
fn a_replaced_snapshot_is_readable_as_long_as_it_has_a_reader() {
    let (_parent, dir) = data_dir();
    let storage = open(&dir).unwrap();
    let first = records(5, 300);
    let held = write_snapshot(&storage, &first, &meta(1, 1)).unwrap();
    let mut reader = held.records();
    let mut read = vec![reader.next().unwrap().unwrap()];
    for index in 2..6 {
        write_snapshot(&storage, &records(index, 300), &meta(1, index)).unwrap();
    }
    read.extend(reader.map(|record| record.unwrap()));
    assert_eq!(read, first);
    drop(held);
    storage.snapshots.collect().unwrap();
    assert_eq!(read_snapshot(&storage.snapshots.current().unwrap()), records(5, 300));
}

#[test]
fn space_stays_bounded_under_many_snapshots() {
    let (_parent, dir) = data_dir();
    let storage = open(&dir).unwrap();
    let pushed: Vec<Vec<u8>> = records(6, 3_000);
    let mut bytes = Vec::new();
    for index in 1..=15 {
        let snapshot = write_snapshot(&storage, &pushed, &meta(1, index)).unwrap();
        bytes.push((snapshot.bytes(), storage.snapshots.disk_bytes().unwrap()));
    }
    let (live, disk) = bytes[14];
    assert!(disk < 8 * live + (16 << 20), "live and disk bytes after each snapshot: {bytes:?}");
}

/// Simulates a kill between the arrival of a snapshot and Raft's cut of the entries that conflict
/// with it.
#[test]
fn entries_that_a_snapshot_refutes_are_cut_at_the_next_start() {
    // The log has entries 0 to 4 of term 1, and 5 to 9 of term `term`.
    let cases = [
        (1, (2, 5), (2, 5)),
        (1, (1, 5), (1, 9)),
        (1, (2, 12), (1, 9)),
        // Entries of a later term that were never committed, over or under the snapshot's last.
        (5, (4, 5), (4, 5)),
        (5, (4, 12), (4, 12)),
        (5, (5, 7), (5, 9)),
    ];
    for (term, snapshot, last) in cases {
        let (_parent, dir) = data_dir();
        {
            let storage = open(&dir).unwrap();
            let entries = (0..10).map(|index| entry(if index < 5 { 1 } else { term }, index, b"x"));
            block_on(append(&storage, entries.collect())).unwrap();
            write_snapshot(&storage, &[], &meta(snapshot.0, snapshot.1)).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(open(&dir).unwrap().log.last(), Some(log_id(last.0, last.1)), "{snapshot:?}");
        }
    }
}
