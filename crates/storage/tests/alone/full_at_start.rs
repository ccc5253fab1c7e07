//! Tests of opening the storage on a disk that has no space for it.

use storage::{SnapshotMeta, Storage, StorageConfig};

#[test]
fn a_disk_that_turns_out_full_when_a_snapshot_is_opened_costs_the_ballast_and_not_the_snapshot() {
    let _turn = fail::FailScenario::setup();
    let parent = tempfile::tempdir().unwrap();
    let config = StorageConfig {
        data_dir: parent.path().join("data"),
        cluster_id: "test".into(),
        node_id: 1,
        free_disk_min_bytes: 0,
        ballast_bytes: 1 << 20,
        has_peers: true,
    };
    let storage = Storage::open(config.clone()).unwrap();
    let mut writer = storage.snapshots.writer().unwrap();
    writer.push(&[7; 100_000]).unwrap();
    writer.finish(&SnapshotMeta::default()).unwrap();
    drop(storage);
    assert!(config.data_dir.join("ballast").exists());
    // Opening needs a copy of the snapshot, so the ballast is deleted, and created again once there
    // is space.
    fail::cfg("db.copy", "1*return(full)").unwrap();
    let storage = Storage::open(config.clone()).unwrap();
    assert!(storage.snapshots.current().is_some());
    drop(storage);
    fail::cfg("db.copy", "return(full)").unwrap();
    let refused = Storage::open(config.clone()).err();
    fail::remove("db.copy");
    assert!(matches!(refused, Some(storage::Error::DiskFull { .. })), "{refused:?}");
    assert!(!config.data_dir.join("ballast").exists());
    assert!(Storage::open(config).unwrap().snapshots.current().is_some());
}
