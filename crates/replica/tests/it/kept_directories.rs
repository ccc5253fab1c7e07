//! Kinds of records in the data directories that the test `kept_directories` of the crate `tests`
//! opens.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use openraft::RaftLogReader as _;
use storage::{Payload, Storage, StorageConfig};

const LEVEL_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tests/golden/level-1");
/// Kinds of records in a snapshot, by number. Only number 6, for a lock whose next grants are left
/// to a later entry, is missing: such a lock needs thousands of waiters.
const RECORDS: [u8; 10] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10];
/// Operations in the log. Two are missing: `set-level`, which no log at level 1 has, and `scrub`,
/// which a leader first proposes after many minutes.
const OPERATIONS: [&str; 19] = [
    "acquire",
    "acquire-all",
    "attach-session",
    "close-session",
    "expire-sessions",
    "found",
    "hand-over",
    "multi",
    "note-removed",
    "open-session",
    "reap",
    "release",
    "revoke",
    "set-acl",
    "set-limits",
    "set-lock",
    "upgrade",
    "withdraw",
    "znode",
];

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[tokio::test]
async fn the_kept_directories_have_records_of_each_kind() {
    let (mut records, mut operations, mut payloads) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut purged = 0;
    let dir = tempfile::tempdir().unwrap();
    for node_id in 1..=3 {
        let data_dir = dir.path().join(node_id.to_string());
        copy(&Path::new(LEVEL_1).join(format!("node-{node_id}")), &data_dir);
        let (free_disk_min_bytes, ballast_bytes) = (0, 0);
        let (cluster_id, has_peers) = ("test".into(), false);
        let config = StorageConfig { data_dir, cluster_id, node_id, free_disk_min_bytes, ballast_bytes, has_peers };
        let storage = Storage::open(config).unwrap();
        let snapshot = storage.snapshots.current().unwrap();
        // The number of its kind follows the version of a record.
        records.extend(snapshot.records().map(|record| record.unwrap()[1]));
        let entries = storage.log.clone().try_get_log_entries(..).await.unwrap();
        assert!(entries.last().map(|entry| entry.log_id) > snapshot.meta().last_log_id, "node {node_id}");
        purged += u64::from(storage.log.purged().is_some());
        for entry in entries {
            payloads.insert(match &entry.payload {
                Payload::Blank => "blank",
                Payload::Membership(membership) if membership.get_joint_config().len() > 1 => "joint membership",
                Payload::Membership(_) => "membership",
                Payload::Normal(command) => {
                    operations.insert(znode::decode_txn(&command.0).unwrap().request.op.row().name);
                    "command"
                }
            });
        }
    }
    assert_eq!(Vec::from_iter(records), RECORDS);
    assert_eq!(Vec::from_iter(operations), OPERATIONS);
    assert_eq!(Vec::from_iter(payloads), ["blank", "command", "joint membership", "membership"]);
    assert_eq!(purged, 1, "one node removed the beginning of its log");
}
