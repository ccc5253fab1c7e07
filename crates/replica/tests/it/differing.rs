//! Nodes whose states differ because of a damaged log entry.

use bytes::Bytes;
use openraft::RaftLogReader as _;
use openraft::storage::{IOFlushed, RaftLogStorage as _};
use openraft::type_config::TypeConfigExt as _;
use replica::{Consistency, Error, Failure, Readiness};
use storage::{Command, Payload, Storage, StorageConfig, TypeConfig};
use tokio::time::timeout;

use crate::ensemble::{Ensemble, LONG, create, eventually, read_data, soon, write};

/// Makes the data directory of a stopped node anew, with the same log, in which "wrong" stands in
/// place of the first "right". All checksums are right.
async fn damage(ensemble: &Ensemble, at: usize) {
    let config = ensemble.config(at);
    let open = || {
        let (data_dir, cluster_id, node_id) = (config.data_dir.clone(), config.cluster_id.clone(), config.node_id);
        let (free_disk_min_bytes, ballast_bytes, has_peers) = (0, 0, true);
        Storage::open(StorageConfig { data_dir, cluster_id, node_id, free_disk_min_bytes, ballast_bytes, has_peers })
            .unwrap()
    };
    let close = async |storage: Storage| {
        let closing = storage.closing();
        drop(storage);
        closing.closed().await;
    };
    let before = open();
    let mut log = before.log.clone();
    let mut entries = log.try_get_log_entries(..).await.unwrap();
    let vote = log.read_vote().await.unwrap().unwrap();
    drop(log);
    close(before).await;
    let place = |bytes: &[u8]| bytes.windows(5).position(|part| part == b"right");
    let damaged = entries.iter_mut().find_map(|entry| {
        let Payload::Normal(Command(bytes)) = &mut entry.payload else { return None };
        let (begin, mut changed) = (place(bytes)?, bytes.to_vec());
        changed[begin..begin + 5].copy_from_slice(b"wrong");
        *bytes = Bytes::from(changed);
        Some(())
    });
    damaged.expect("an entry has the data");
    ensemble.wipe(at);
    let storage = open();
    storage.meta.set_joined().unwrap();
    let mut log = storage.log.clone();
    log.save_vote(&vote).await.unwrap();
    let (done, flushed) = TypeConfig::oneshot();
    log.append(entries, IOFlushed::signal(done)).await.unwrap();
    flushed.await.unwrap().unwrap();
    drop(log);
    close(storage).await;
}

/// Three stopped nodes, of which node 0 has another value in its log than the others.
async fn with_a_damaged_node() -> Ensemble {
    // Node 0 leads if it can.
    let mut ensemble = Ensemble::started(3, |config| {
        config.leader_priority = if config.node_id == 1 { 100 } else { 50 };
    })
    .await;
    write(ensemble.node(0), create("/", "value", b"right")).await;
    write(ensemble.node(0), create("/", "later", b"")).await;
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
    damage(&ensemble, 0).await;
    ensemble
}

/// Waits until node 0 has failed because its state differs, and checks that the others go on.
async fn the_damaged_node_fails(ensemble: &mut Ensemble) {
    let node = ensemble.take(0);
    let failure = timeout(LONG, node.failed()).await.expect("it finds that it differs");
    assert!(
        matches!(&failure, Failure::Contradiction(why) if why.contains("differs from that of the majority")),
        "{failure}"
    );
    let read = node.read(Consistency::Linearizable, soon()).await;
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    // The others compare for themselves, with a node that still answers.
    for at in [1, 2] {
        eventually("they know who differs", || ensemble.node(at).status().differing == 1).await;
    }
    node.shutdown().await;
    for at in [1, 2] {
        assert_eq!(read_data(ensemble.node(at), "/value").await.as_deref(), Some(&b"right"[..]));
        eventually("they are ready", || ensemble.node(at).status().ready == Readiness::Ready).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_damaged_entry_ends_and_comes_back_wiped() {
    let mut ensemble = with_a_damaged_node().await;
    for at in 0..3 {
        ensemble.start(at).await;
    }
    the_damaged_node_fails(&mut ensemble).await;
    ensemble.start(0).await;
    the_damaged_node_fails(&mut ensemble).await;
    ensemble.wipe(0);
    ensemble.start(0).await;
    eventually("no member differs", || ensemble.running().all(|node| node.status().differing == 0)).await;
    assert_eq!(read_data(ensemble.node(0), "/value").await.as_deref(), Some(&b"right"[..]));
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_differ_serve_nothing_before_a_third_decides() {
    let mut ensemble = with_a_damaged_node().await;
    for at in [0, 1] {
        ensemble.start(at).await;
    }
    for at in [0, 1] {
        eventually("it knows that they differ", || ensemble.node(at).status().ready == Readiness::Divided).await;
        let node = ensemble.node(at);
        let read = node.read(Consistency::Linearizable, soon()).await;
        let written = node.propose(create("/", "more", b""), soon()).await;
        for refused in [read.map(drop), written.map(drop)] {
            let Err(Error::Unavailable { reason, .. }) = refused else { panic!("{refused:?}") };
            assert!(reason.contains("no majority agrees"), "{reason}");
        }
        assert!(!node.serves());
    }
    ensemble.start(2).await;
    the_damaged_node_fails(&mut ensemble).await;
    ensemble.stop_all().await;
}
