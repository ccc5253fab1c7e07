//! A disk without space for what a start has to write. A process of its own: failpoints are the same for all of it.

use storage::{Error, Storage, StorageConfig};

#[test]
fn a_disk_that_turns_out_full_when_sled_is_open_is_not_called_damaged() {
    let parent = tempfile::tempdir().unwrap();
    let config = StorageConfig {
        data_dir: parent.path().join("data"),
        cluster_id: "test".into(),
        node_id: 1,
        free_disk_min_bytes: 0,
        ballast_bytes: 1 << 20,
    };
    let storage = Storage::open(config.clone()).unwrap();
    // A snapshot that came to no end, for want of space; the next start removes what there is of it.
    storage.snapshots.writer().unwrap().push(&[7; 100_000]).unwrap();
    drop(storage);
    assert!(config.data_dir.join("ballast").exists());
    fail::cfg("db.flush", "1*return(full)").unwrap();
    let refused = Storage::open(config.clone()).err();
    fail::remove("db.flush");
    // sled is left open after an error, so it is the next process that starts, with what the ballast has freed.
    assert!(matches!(refused, Some(Error::DiskFull { .. })), "{refused:?}");
    assert!(!config.data_dir.join("ballast").exists());
}
