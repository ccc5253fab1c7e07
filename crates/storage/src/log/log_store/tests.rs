//! Tests of damage to the log, and of writes that wait for the disk.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use raft_log::ChunkId;

use crate::raft::types::{Command, Payload};

use super::*;

const INCARNATION: u64 = 0x1234_5678_9abc;

fn owner() -> OwnerRecord {
    OwnerRecord { owner: "test/1".into(), incarnation: INCARNATION, durable: 0 }
}

fn entries() -> Vec<Entry> {
    let payload = |index: u64| Payload::Normal(Command(vec![index as u8; 9].into()));
    (0..6).map(|index| Entry { log_id: LogId::new_term_index(2, index), payload: payload(index) }).collect()
}

/// Writes a log with two votes and six entries. Returns the path of its one file.
fn written(dir: &Path) -> std::path::PathBuf {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut log = LogStore::open(dir, INCARNATION, Fatal::new()).unwrap();
    log.begin(owner()).unwrap();
    runtime.block_on(async {
        log.save_vote(&Vote::new_committed(2, 1)).await.unwrap();
        log.append(entries(), IOFlushed::noop()).await.unwrap();
        // A durable vote makes the earlier append durable as well.
        log.save_vote(&Vote::new_committed(3, 1)).await.unwrap();
    });
    let mut files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|extension| extension == "wal")).unwrap()
}

fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Blocks the flush thread in a callback until the test receives from the returned channel.
fn parked(store: &LogStore) -> Receiver<io::Result<()>> {
    let (opener, opened) = sync_channel(0);
    store.write().unwrap().flush(true, Some(store.log.flushes.callback(true, Done::Opener(opener)))).unwrap();
    opened
}

/// Opens a log whose only file has the content `bytes`. Returns the log's vote, its entries and the
/// owner in its owner record, or the error of the open.
fn reopened(bytes: &[u8], name: &std::ffi::OsStr) -> io::Result<(Option<Vote>, Vec<Entry>, Option<String>)> {
    let dir = memory();
    fs::write(dir.path().join(name), bytes).unwrap();
    let log = LogStore::open(dir.path(), INCARNATION, Fatal::new())?;
    Ok((log.vote(), log.entries(0, u64::MAX, u64::MAX)?, log.owner().map(|owner| owner.owner)))
}

#[test]
fn no_flipped_bit_goes_unnoticed() {
    let dir = memory();
    let path = written(dir.path());
    let name = path.file_name().unwrap();
    let bytes = fs::read(&path).unwrap();
    let whole = (Some(Vote::new_committed(3, 1)), entries(), Some("test/1".to_string()));
    assert_eq!(reopened(&bytes, name).unwrap(), whole);
    let mut harmless = 0;
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match reopened(&damaged, name) {
            Err(error) => assert_eq!(error.raw_os_error(), None, "bit {bit}: {error}"),
            // Only the last record is damaged, the owner record that counts the bytes on disk. All
            // other records survive.
            Ok(found) => {
                assert_eq!(found, whole, "bit {bit}");
                harmless += 1;
            }
        }
    }
    assert!(harmless < 1_000, "{harmless} of {} bits", bytes.len() * 8);
}

#[test]
fn a_torn_tail_costs_no_more_than_the_torn_record() {
    let dir = memory();
    let path = written(dir.path());
    let name = path.file_name().unwrap();
    let bytes = fs::read(&path).unwrap();
    let mut held = 0;
    for cut in 1..bytes.len() {
        let (vote, entries, _) = reopened(&bytes[..cut], name).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        assert!(entries.len() >= held, "cut {cut}");
        held = entries.len();
        assert_eq!(entries[..], self::entries()[..held]);
        assert!(held == 0 || vote.is_some(), "cut {cut}: what was written before an entry is there with it");
    }
    assert_eq!(held, 6);
    // Blocks that were allocated to the file but never written.
    let zeros = [bytes.clone(), vec![0; 5_000]].concat();
    assert_eq!(reopened(&zeros, name).unwrap().1.len(), 6);
    // Unflushed pages: arbitrary bytes, and whole records after a hole of zeros.
    assert_eq!(reopened(&[&bytes[..], &[0x5a; 50]].concat(), name).unwrap().1.len(), 6);
    assert_eq!(reopened(&[&bytes[..], &[0; 4_096], &bytes[..]].concat(), name).unwrap().1.len(), 6);
}

/// After the last flush, the log writes one owner record with the number of its bytes on disk, and
/// then nothing more: a node without requests must not write.
#[test]
fn how_much_is_on_disk_is_said_once_after_the_last_flush() {
    let dir = memory();
    let log = LogStore::open(dir.path(), INCARNATION, Fatal::new()).unwrap();
    log.begin(owner()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        log.clone().save_vote(&Vote::new_committed(2, 1)).await.unwrap();
        let reach = log.reach();
        let asked = reach.asked.load(Ordering::Acquire);
        // This loop would not end if the log went on writing.
        while log.writes_soon.load(Ordering::Acquire) {
            tokio::time::advance(WRITE_WAIT).await;
            tokio::task::yield_now().await;
        }
        let said = log.owner().unwrap().durable;
        assert_eq!((said, reach.durable.load(Ordering::Acquire)), (asked, asked));
    });
}

/// Zeros and then an owner record follow the log's last record, as after a power cut. The log is
/// cut at the first zero. If the owner record counts zeros as bytes on disk, the log is refused as
/// damaged instead.
#[test]
fn a_hole_is_cut_unless_a_record_behind_it_says_that_it_was_on_disk() {
    let dir = memory();
    let path = written(dir.path());
    let (name, bytes) = (path.file_name().unwrap(), fs::read(&path).unwrap());
    let state = |incarnation, durable| {
        use raft_log::codeq::Encode;
        let dir = memory();
        let log = LogStore::open(dir.path(), INCARNATION, Fatal::new()).unwrap();
        let mut state = log.read().log_state().clone();
        state.user_data = Some(OwnerRecord { incarnation, durable, ..owner() });
        let mut record = Vec::new();
        raft_log::RaftLogRecord::<WalTypes>::Checkpoint(state).encode(&mut record).unwrap();
        record
    };
    let hole = vec![0; 4_096];
    let end = bytes.len() as u64;
    let with = |record: Vec<u8>| reopened(&[&bytes[..], &hole, &record].concat(), name);
    assert_eq!(with(state(INCARNATION, end)).unwrap().1.len(), 6);
    assert!(with(state(INCARNATION, end + 1)).unwrap_err().to_string().contains("were on disk"));
    // A client could write an owner record into a znode, but it does not know the incarnation.
    assert_eq!(with(state(7, end + 1)).unwrap().1.len(), 6);
}

/// A slow flush is under way, and many requests to write the committed position arrive: other nodes
/// commit entries that are not on this disk yet. No request may wait for the flush, and the log
/// must go on after it.
#[test]
fn what_is_written_out_during_a_flush_that_takes_long_does_not_stop_the_log() {
    let dir = memory();
    let store = LogStore::open(dir.path(), INCARNATION, Fatal::new()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let append = |entry| {
        let (done, flushed) = <TypeConfig as openraft::type_config::TypeConfigExt>::oneshot();
        runtime.block_on(store.clone().append([entry], IOFlushed::signal(done))).unwrap();
        flushed
    };
    let mut entries = entries().into_iter();
    let opened = parked(&store);
    let (first, second) = (append(entries.next().unwrap()), append(entries.next().unwrap()));
    // Makes more requests than fit into the flush thread's queue.
    let (flushes, (over, was_over)) = (Arc::clone(&store.log.flushes), sync_channel(1));
    std::thread::spawn(move || {
        for _ in 0..2_000 {
            flushes.write_out();
        }
        over.send(()).unwrap();
    });
    if was_over.recv_timeout(Duration::from_secs(20)).is_err() {
        // Not dropped: the drop would wait for the flush for ever.
        std::mem::forget(store);
        panic!("a caller waits for a flush that is under way");
    }
    opened.recv().unwrap().unwrap();
    runtime.block_on(async {
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
    });
    let next = append(entries.next().unwrap());
    runtime.block_on(next).unwrap().unwrap();
    assert_eq!(store.fatal().reason(), None);
}

#[test]
fn what_was_to_be_written_out_during_a_flush_is_written_behind_it() {
    let dir = memory();
    let store = LogStore::open(dir.path(), INCARNATION, Fatal::new()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let opened = parked(&store);
    let (done, flushed) = <TypeConfig as openraft::type_config::TypeConfigExt>::oneshot();
    runtime.block_on(store.clone().append(entries(), IOFlushed::signal(done))).unwrap();
    let committed = LogIdRecord::from(&entries()[0].log_id);
    store.write().unwrap().commit(committed).unwrap();
    store.log.flushes.write_out();
    opened.recv().unwrap().unwrap();
    runtime.block_on(flushed).unwrap().unwrap();
    let files = || fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    while files().filter(|file| file.is_file()).map(|file| file.len()).sum::<u64>() < store.disk_bytes() {
        assert!(Instant::now() < deadline, "the committed position is not written");
        std::thread::yield_now();
    }
}

#[test]
fn what_waits_for_a_slow_disk_has_a_bound() {
    let dir = memory();
    let mut store = LogStore::open(dir.path(), INCARNATION, Fatal::new()).unwrap();
    let opened = parked(&store);
    let long = |index| {
        let payload = Payload::Normal(Command(vec![7; 8 << 20].into()));
        [Entry { log_id: LogId::new_term_index(2, index), payload }]
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for index in 0..8 {
            store.append(long(index), IOFlushed::noop()).await.unwrap();
        }
        let mut other = store.clone();
        let mut more = std::pin::pin!(other.append(long(8), IOFlushed::noop()));
        tokio::select! {
            biased;
            _ = &mut more => panic!("64 MiB are under way already"),
            () = std::future::ready(()) => {}
        }
        opened.recv().unwrap().unwrap();
        more.await.unwrap();
        store.save_vote(&Vote::new_committed(3, 1)).await.unwrap();
    });
    assert_eq!(store.last().unwrap().index, 8);
}

#[test]
fn appends_that_come_during_a_flush_share_the_next_one() {
    let dir = memory();
    let store = LogStore::open(dir.path(), INCARNATION, Fatal::new()).unwrap();
    let syncs = || store.read().stat().flush_metrics.sync_batch_count;
    let before = syncs();
    let opened = parked(&store);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut told = Vec::new();
        for entry in entries() {
            let (done, flushed) = <TypeConfig as openraft::type_config::TypeConfigExt>::oneshot();
            store.clone().append([entry], IOFlushed::signal(done)).await.unwrap();
            told.push(flushed);
        }
        opened.recv().unwrap().unwrap();
        for flushed in told {
            flushed.await.unwrap().unwrap();
        }
    });
    // One sync of the opener, one of the first append, and one of all other appends.
    assert_eq!(syncs() - before, 3);
    drop(store);
    assert_eq!(
        LogStore::open(dir.path(), INCARNATION, Fatal::new()).unwrap().entries(0, u64::MAX, u64::MAX).unwrap(),
        entries()
    );
}

#[test]
fn without_a_descriptor_for_the_next_file_records_stay_in_the_full_one() {
    let dir = memory();
    written(dir.path());
    let log = LogStore::open(dir.path(), INCARNATION, Fatal::new()).unwrap();
    let flushes = &log.log.flushes;
    let next = |log: &RaftLog<WalTypes>| {
        let end = log.stat().open_chunk.global_end;
        PathBuf::from(log.config().wal.chunk_path(ChunkId(end)))
    };
    let mut guard = log.write().unwrap();
    // Simulates a created next file whose directory cannot be synced for lack of a descriptor.
    let full = |log: &mut RaftLog<WalTypes>| {
        log.save_vote((&Vote::new_committed(4, 1)).into())?;
        fs::write(next(log), "")?;
        Err(rustix::io::Errno::MFILE.into())
    };
    flushes.record(&mut guard, full).unwrap();
    assert!(!next(&guard).exists(), "nothing is in the way of the next try");
    assert_eq!(flushes.reach.end.load(Ordering::Acquire), guard.stat().open_chunk.global_end);
    flushes.record(&mut guard, |log| log.save_vote((&Vote::new_committed(5, 1)).into()).map(Some)).unwrap();
    drop(guard);
    drop(log);
    let log = LogStore::open(dir.path(), INCARNATION, Fatal::new()).unwrap();
    assert_eq!(log.vote(), Some(Vote::new_committed(5, 1)));
    let broken = log.log.flushes.record(&mut log.write().unwrap(), |_| Err(rustix::io::Errno::IO.into()));
    assert_eq!(broken.unwrap_err().raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
}
