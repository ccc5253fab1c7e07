//! Nodes that return with data from a crash between the first membership in the log and the
//! cluster's uuid in the file `node`. Without the uuid a peer cannot tell their cluster.

use openraft::RaftLogReader as _;
use openraft::storage::{IOFlushed, RaftLogStorage as _};
use openraft::type_config::TypeConfigExt as _;
use replica::offline::{Beginning, Survivor, begin};
use replica::{Failure, NewMember, Order, Role};
use storage::{LogId, Storage, StorageConfig, TypeConfig};
use tokio::time::timeout;
use znode::{ClusterUuid, Founding, Restore};

use crate::ensemble::{Ensemble, LONG, create, eventually, write};
use crate::members::{new_member, order, roles, three_and_a_stopped_learner, three_of, voters};

/// Replaces the data of a stopped node by what a crash leaves on its disk before the node has
/// applied an entry: at most the first `count` entries, and no cluster uuid. `joined` tells whether
/// the node may vote.
async fn crash_before_identity(ensemble: &Ensemble, at: usize, count: usize, joined: bool) {
    let config = ensemble.config(at);
    let open = || {
        let (data_dir, cluster_id) = (config.data_dir.clone(), config.cluster_id.clone());
        let (node_id, has_peers) = (config.node_id, true);
        let (free_disk_min_bytes, ballast_bytes) = (0, 0);
        Storage::open(StorageConfig { data_dir, cluster_id, node_id, free_disk_min_bytes, ballast_bytes, has_peers })
            .unwrap()
    };
    let close = async |storage: Storage| {
        let closing = storage.closing();
        drop(storage);
        closing.closed().await;
    };
    let before = open();
    let mut entries = before.log.clone().try_get_log_entries(..).await.unwrap();
    close(before).await;
    entries.truncate(count);
    // Whatever the first term was, the entries are now those of a leader in term 1.
    entries[1..].iter_mut().for_each(|entry| entry.log_id = LogId::new_term_index(1, entry.log_id.index));
    ensemble.wipe(at);
    let storage = open();
    if joined {
        storage.meta.set_joined().unwrap();
    }
    let (done, flushed) = TypeConfig::oneshot();
    storage.log.clone().append(entries, IOFlushed::signal(done)).await.unwrap();
    flushed.await.unwrap().unwrap();
    assert_eq!(storage.meta.founding(), None);
    close(storage).await;
}

/// Starts a node that was removed, and checks that it ends because of that, and never leads.
async fn ends_as_removed(ensemble: &mut Ensemble, at: usize) {
    ensemble.start(at).await;
    let removed = ensemble.take(at);
    let failure = timeout(LONG, removed.failed()).await.expect("it hears of its removal");
    assert!(matches!(failure, Failure::Removed { .. }), "{failure}");
    assert_ne!(removed.status().role, Role::Leader);
    removed.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_founder_without_its_clusters_uuid_ends() {
    let mut ensemble = three_of(4).await;
    let leader = ensemble.leader().await;
    let dead = (0..3).find(|at| *at != leader).unwrap();
    ensemble.stop(dead).await;
    crash_before_identity(&ensemble, dead, 2, true).await;
    ensemble.start(3).await;
    let new = NewMember { replaces: Some(dead as u64 + 1), ..new_member(&ensemble, 3) };
    order(ensemble.node(leader), Order::Add(new)).await.unwrap();
    let left: Vec<u64> = (1..=4).filter(|id| *id != dead as u64 + 1).collect();
    eventually("the members are others", || roles(ensemble.node(leader)) == voters(&left)).await;
    ends_as_removed(&mut ensemble, dead).await;
    write(ensemble.node(3), create("/", "after", b"")).await;
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_learner_without_its_clusters_uuid_ends() {
    let mut ensemble = three_and_a_stopped_learner().await;
    crash_before_identity(&ensemble, 3, usize::MAX, false).await;
    order(ensemble.node(0), Order::Remove { id: 4, force: false }).await.unwrap();
    let leader = ensemble.leader().await;
    eventually("it is no member", || roles(ensemble.node(leader)) == voters(&[1, 2, 3])).await;
    ends_as_removed(&mut ensemble, 3).await;
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

/// Node 3 is a member of the restored cluster, and the operator forgot to replace its old data.
/// Without a uuid its peers accept it, and its entry 1 must not pass for that of the restored
/// cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_cluster_shares_no_entry_with_the_old_one() {
    let mut ensemble = Ensemble::started(3, |_| {}).await;
    write(ensemble.node(0), create("/", "kept", b"")).await;
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
    let mut state = Survivor::read(&ensemble.data_dir(0)).await.unwrap().state;
    let founding = Founding { uuid: ClusterUuid([7; 16]), zxid_base: 1 << 30, group: 0 };
    state.restore(Restore { founding, time_ms: state.time_ms(), grace_ms: 0 }).unwrap();
    for at in 0..2 {
        ensemble.wipe(at);
        let config = ensemble.config(at);
        let (data_dir, cluster_id, node_id) = (config.data_dir, config.cluster_id, config.node_id);
        begin(Beginning { data_dir, cluster_id, node_id, members: config.members }, &state).await.unwrap();
    }
    crash_before_identity(&ensemble, 2, 2, true).await;
    for at in 0..3 {
        ensemble.start(at).await;
    }
    write(ensemble.node(0), create("/", "after", b"")).await;
    ensemble.assert_equal_states().await;
    assert_eq!(ensemble.node(2).state().cluster().unwrap().founding(), &founding);
    ensemble.stop_all().await;
}
