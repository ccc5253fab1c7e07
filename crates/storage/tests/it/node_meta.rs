//! Tests of the identity of a data directory, and of the refusal to open it as another node.

use std::os::unix::fs::PermissionsExt;

use storage::{Error, Storage, StorageConfig};

use crate::harness::{config, data_dir, meta, open, write_snapshot};

#[test]
fn the_directory_is_for_this_user_only() {
    let (_parent, dir) = data_dir();
    let _storage = open(&dir).unwrap();
    assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn two_cannot_have_it_open() {
    let (_parent, dir) = data_dir();
    let first = open(&dir).unwrap();
    assert!(matches!(open(&dir), Err(Error::Locked { .. })));
    drop(first);
    open(&dir).unwrap();
}

#[test]
fn another_nodes_data_is_refused_and_left_alone() {
    let (_parent, dir) = data_dir();
    drop(open(&dir).unwrap());
    let refused = Storage::open(StorageConfig { node_id: 2, ..config(&dir) });
    assert!(matches!(refused, Err(Error::OtherNode { found: 1, wanted: 2, .. })));
    open(&dir).unwrap();
}

#[test]
fn another_clusters_data_is_refused_and_left_alone() {
    let (_parent, dir) = data_dir();
    drop(open(&dir).unwrap());
    let refused = Storage::open(StorageConfig { cluster_id: "other".into(), ..config(&dir) });
    assert!(matches!(refused, Err(Error::OtherCluster { .. })));
    open(&dir).unwrap();
}

#[test]
fn joining_is_remembered() {
    let (_parent, dir) = data_dir();
    {
        let meta = open(&dir).unwrap().meta;
        assert!(meta.pristine() && !meta.joined());
        meta.set_joined().unwrap();
        assert!(meta.joined());
    }
    let meta = open(&dir).unwrap().meta;
    assert!(meta.joined() && !meta.pristine());
    assert_eq!(meta.founding(), None);
}

#[test]
fn a_wiped_directory_is_pristine_again() {
    let (_parent, dir) = data_dir();
    open(&dir).unwrap().meta.set_joined().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let meta = open(&dir).unwrap().meta;
    assert!(meta.pristine() && !meta.joined());
}

#[track_caller]
fn check_refused(result: Result<Storage, Error>, words: &str) {
    let message = result.map(drop).unwrap_err().to_string();
    assert!(message.contains(words) && message.contains("move"), "{message}");
}

#[test]
fn a_lost_log_is_noticed() {
    let (_parent, dir) = data_dir();
    drop(open(&dir).unwrap());
    std::fs::remove_dir_all(dir.join("log")).unwrap();
    check_refused(open(&dir), "its log, and with it the vote, is gone");
}

#[test]
fn a_lost_identity_is_noticed() {
    let (_parent, dir) = data_dir();
    drop(open(&dir).unwrap());
    std::fs::remove_file(dir.join("node")).unwrap();
    check_refused(open(&dir), "the node's identity is gone");
}

#[test]
fn another_nodes_log_is_noticed() {
    let (_parent, dir) = data_dir();
    let (_other_parent, other) = data_dir();
    drop(open(&dir).unwrap());
    drop(Storage::open(StorageConfig { node_id: 7, ..config(&other) }).unwrap());
    std::fs::remove_dir_all(dir.join("log")).unwrap();
    std::fs::rename(other.join("log"), dir.join("log")).unwrap();
    check_refused(open(&dir), "its log is the one of test/7");
}

#[test]
fn a_purged_log_without_its_snapshot_is_noticed() {
    use openraft::storage::RaftLogStorage;
    let (_parent, dir) = data_dir();
    crate::harness::block_on(async {
        let storage = open(&dir).unwrap();
        write_snapshot(&storage, &[], &meta(1, 3)).unwrap();
        let mut log = storage.log.clone();
        log.purge(crate::harness::log_id(1, 4)).await.unwrap();
    });
    check_refused(open(&dir), "its log is purged up to");
}

#[test]
fn a_log_from_before_the_directory_was_new_is_noticed() {
    let (parent, dir) = data_dir();
    drop(open(&dir).unwrap());
    let old = parent.path().join("old");
    std::fs::rename(&dir, &old).unwrap();
    drop(open(&dir).unwrap());
    std::fs::remove_dir_all(dir.join("log")).unwrap();
    std::fs::rename(old.join("log"), dir.join("log")).unwrap();
    check_refused(open(&dir), "its log is from before its data directory was new");
}

/// Simulates that an older copy replaced the log, and only the log, of a data directory.
#[test]
fn an_older_log_in_the_place_of_the_newer_one_is_noticed() {
    use crate::harness::{append, block_on, copy_dir, entry};
    let (parent, dir) = data_dir();
    let fill = |from: u64| {
        let storage = open(&dir).unwrap();
        block_on(append(&storage, (from..from + 10).map(|index| entry(1, index, b"x")).collect())).unwrap();
    };
    fill(0);
    let old = parent.path().join("old");
    copy_dir(&dir.join("log"), &old);
    fill(10);
    std::fs::remove_dir_all(dir.join("log")).unwrap();
    std::fs::rename(&old, dir.join("log")).unwrap();
    // Repeated, as a refused start must not change the directory.
    for _ in 0..10 {
        check_refused(open(&dir), "bytes of it were on disk");
    }
}
