//! Tests of copying and closing snapshot databases on a full or slow disk.

use std::fs::{File, read_dir};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use fail::FailScenario;
use storage::{Error, Snapshot, SnapshotMeta, Storage, StorageConfig};
use tempfile::TempDir;

fn config(parent: &TempDir) -> StorageConfig {
    StorageConfig {
        data_dir: parent.path().join("data"),
        cluster_id: "test".into(),
        node_id: 1,
        free_disk_min_bytes: 0,
        ballast_bytes: 0,
        has_peers: true,
    }
}

fn written(storage: &Storage) -> Snapshot {
    let mut writer = storage.snapshots.writer().unwrap();
    writer.push(&[7; 100_000]).unwrap();
    writer.finish(&SnapshotMeta::default()).unwrap()
}

/// Lists the names of snapshot databases and their copies in the data directory `dir`.
fn names(dir: &Path) -> Vec<String> {
    let names = read_dir(dir.join("sled")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

#[test]
fn a_copy_that_does_not_fit_is_an_error_of_its_reader_and_not_of_the_node() {
    let _scenario = FailScenario::setup();
    let parent = tempfile::tempdir().unwrap();
    let config = config(&parent);
    let storage = Storage::open(config.clone()).unwrap();
    let snapshot = written(&storage);
    fail::cfg("db.copy", "return(full)").unwrap();
    let refusals =
        [snapshot.chunk(0).map(drop), snapshot.prepare(), snapshot.records().try_for_each(|it| it.map(drop))];
    for refused in refusals {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
        assert!(refused.to_string().starts_with("snapshot-copy-failed: "), "{refused}");
    }
    assert_eq!(storage.fatal().reason(), None);
    assert_eq!(names(&config.data_dir), ["snap-0"], "what there was of the copy is gone");
    // The node still writes snapshots, and reads the old one once there is space.
    assert_eq!(written(&storage).chunk_count(), snapshot.chunk_count());
    fail::remove("db.copy");
    assert_eq!(snapshot.records().map(Result::unwrap).collect::<Vec<_>>(), [[7; 100_000]]);
}

#[test]
fn a_start_without_space_for_the_copy_says_how_much_it_takes_and_loses_nothing() {
    let _scenario = FailScenario::setup();
    let parent = tempfile::tempdir().unwrap();
    let config = config(&parent);
    written(&Storage::open(config.clone()).unwrap());
    fail::cfg("db.copy", "return(full)").unwrap();
    let refused = Storage::open(config.clone()).err();
    assert!(matches!(refused, Some(Error::DiskFull { .. })), "{refused:?}");
    let refused = refused.unwrap().to_string();
    assert!(
        refused.contains("a snapshot is read through a copy in ") && refused.contains(" bytes of free space"),
        "{refused}"
    );
    // A failing disk is no damage either: the snapshot stays as it was.
    fail::cfg("db.copy", "return").unwrap();
    let refused = Storage::open(config.clone()).err();
    assert!(matches!(refused, Some(Error::Io { .. })), "{refused:?}");
    fail::remove("db.copy");
    assert!(Storage::open(config).unwrap().snapshots.current().is_some());
}

/// Holds the lock on a database's file during the next `looks` passes of the failpoint
/// `db.closing`, as sled's threads do while they wait for the disk. Returns the count of passes.
fn hold_on(db: PathBuf, looks: usize) -> Arc<AtomicUsize> {
    let (looked, held) = (Arc::new(AtomicUsize::new(0)), Mutex::new(None));
    let count = Arc::clone(&looked);
    fail::cfg_callback("db.closing", move || {
        let mut held = held.lock().unwrap();
        if looked.fetch_add(1, Ordering::Relaxed) >= looks {
            *held = None;
        } else if held.is_none() {
            // Waits while sled itself has the lock.
            *held = File::open(&db).ok().filter(|file| file.lock().is_ok());
        }
    })
    .unwrap();
    count
}

#[test]
fn a_database_that_sled_holds_on_to_for_long_is_waited_for_and_ends_nothing() {
    let _scenario = FailScenario::setup();
    let parent = tempfile::tempdir().unwrap();
    let config = config(&parent);
    let storage = Storage::open(config.clone()).unwrap();
    let looked = hold_on(config.data_dir.join("sled/snap-0.new/db"), 300);
    let snapshot = written(&storage);
    assert!(looked.load(Ordering::Relaxed) >= 300);
    fail::remove("db.closing");
    assert_eq!(storage.fatal().reason(), None);
    assert_eq!(snapshot.records().count(), 1);
}

#[test]
fn a_snapshot_that_is_dropped_is_closed_on_another_thread_and_removed_then_and_the_next_has_a_directory_of_its_own() {
    let _scenario = FailScenario::setup();
    let parent = tempfile::tempdir().unwrap();
    let config = config(&parent);
    let storage = Storage::open(config.clone()).unwrap();
    let dropper = thread::current().id();
    let (go, closed_here) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    {
        let (go, closed_here) = (Arc::clone(&go), Arc::clone(&closed_here));
        fail::cfg_callback("db.closing", move || {
            if thread::current().id() == dropper {
                closed_here.store(true, Ordering::Release);
                return;
            }
            while !go.load(Ordering::Acquire) {
                thread::yield_now();
            }
        })
        .unwrap();
    }
    // Neither drop may wait for sled's close, as drops can run in async tasks.
    let mut given_up = storage.snapshots.writer().unwrap();
    given_up.push(&[7; 100_000]).unwrap();
    drop(given_up);
    assert!(!closed_here.load(Ordering::Acquire), "the thread that drops it waits for sled");
    storage.snapshots.collect().unwrap();
    assert_eq!(names(&config.data_dir), ["snap-0.new"], "it is still being written to");
    let next = written(&storage);
    assert_eq!(names(&config.data_dir), ["snap-0.new", "snap-1"]);
    assert_eq!(next.records().count(), 1);
    drop((next, storage));
    go.store(true, Ordering::Release);
    // This open waits for the directory's lock until both databases are closed.
    let storage = Storage::open(config.clone()).unwrap();
    fail::remove("db.closing");
    assert_eq!(storage.fatal().reason(), None);
    assert_eq!(names(&config.data_dir), ["snap-1", "snap-1.copy"]);
}
