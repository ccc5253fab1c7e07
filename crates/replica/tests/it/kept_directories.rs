//! Kinds of records in the data directories that the test `kept_directories` of the crate `tests`
//! makes and opens.
//!
//! ```sh
//! UPDATE_GOLDENFILES=1 cargo test -p replica --test it kept_directories
//! ```
//!
//! adds entries to the logs that no cluster of processes has soon. That is allowed only until the
//! first release, and only after that test has made the directories anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use openraft::RaftLogReader as _;
use storage::{Payload, Storage, StorageConfig};
use znode::{Error, Op, Request};

use crate::ensemble::{Ensemble, eventually, soon};

const LEVEL_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tests/golden/level-1");
/// Kinds of records in a snapshot, by number.
const RECORDS: [u8; 11] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
/// Operations in the log.
const OPERATIONS: [&str; 21] = [
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
    "scrub",
    "set-acl",
    "set-level",
    "set-limits",
    "set-lock",
    "upgrade",
    "withdraw",
    "znode",
];

/// Copies a data directory, but not the files that every start makes anew.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if ["LOCK", "ballast"].iter().any(|name| to.ends_with(name)) || to.extension().is_some_and(|it| it == "copy") {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn kept(at: usize) -> PathBuf {
    Path::new(LEVEL_1).join(format!("node-{}", at + 1))
}

/// Lets nodes on these directories write two entries that a cluster of processes has rarely. A
/// leader proposes `scrub` an hour after its start, and `set-level` for a level above the present
/// one. The entry for level 1 is refused when it is applied, like the later one of two entries that
/// raise the level to the same number.
async fn write_rare_entries() {
    // The nodes have the limits of the directories, or else the leader would set other ones.
    let mut ensemble = Ensemble::new(3, |config| {
        config.scrub_round_ms = 1;
        config.limits.history_max = 15;
    });
    for at in 0..3 {
        copy(&kept(at), &ensemble.data_dir(at));
        ensemble.start(at).await;
    }
    let leader = ensemble.leader().await;
    let node = ensemble.node(leader);
    eventually("a round of the scrub has ended", || node.status().scrubbed_ms > 0).await;
    let refused = node.propose(Request::new(Op::SetLevel { level: 1 }), soon()).await.unwrap();
    assert_eq!(refused.reply.unwrap_err().error, Error::BadArguments);
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
    for at in 0..3 {
        fs::remove_dir_all(kept(at)).unwrap();
        copy(&ensemble.data_dir(at), &kept(at));
    }
}

/// Kinds of what is in the directories.
#[derive(Default)]
struct Kinds {
    /// Numbers of the kinds of records in the snapshots.
    records: BTreeSet<u8>,
    operations: BTreeSet<&'static str>,
    payloads: BTreeSet<&'static str>,
    /// Number of nodes that removed the beginning of their log.
    purged: u64,
}

async fn kinds_in_directories() -> Kinds {
    let mut kinds = Kinds::default();
    let dir = tempfile::tempdir().unwrap();
    for at in 0..3 {
        let (node_id, data_dir) = (at as u64 + 1, dir.path().join(at.to_string()));
        copy(&kept(at), &data_dir);
        let (free_disk_min_bytes, ballast_bytes) = (0, 0);
        let (cluster_id, has_peers) = ("test".into(), false);
        let config = StorageConfig { data_dir, cluster_id, node_id, free_disk_min_bytes, ballast_bytes, has_peers };
        let storage = Storage::open(config).unwrap();
        let snapshot = storage.snapshots.current().unwrap();
        // The number of its kind follows the version of a record.
        kinds.records.extend(snapshot.records().map(|record| record.unwrap()[1]));
        let entries = storage.log.clone().try_get_log_entries(..).await.unwrap();
        assert!(entries.last().map(|entry| entry.log_id) > snapshot.meta().last_log_id, "node {node_id}");
        kinds.purged += u64::from(storage.log.purged().is_some());
        for entry in entries {
            kinds.payloads.insert(match &entry.payload {
                Payload::Blank => "blank",
                Payload::Membership(membership) if membership.get_joint_config().len() > 1 => "joint membership",
                Payload::Membership(_) => "membership",
                Payload::Normal(command) => {
                    kinds.operations.insert(znode::decode_txn(&command.0).unwrap().request.op.row().name);
                    "command"
                }
            });
        }
    }
    kinds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kept_directories_have_records_of_each_kind() {
    let mut kinds = kinds_in_directories().await;
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() && !kinds.operations.contains("set-level") {
        write_rare_entries().await;
        kinds = kinds_in_directories().await;
    }
    assert_eq!(Vec::from_iter(kinds.records), RECORDS);
    assert_eq!(Vec::from_iter(kinds.operations), OPERATIONS);
    assert_eq!(Vec::from_iter(kinds.payloads), ["blank", "command", "joint membership", "membership"]);
    assert_eq!(kinds.purged, 1, "one node removed the beginning of its log");
}
