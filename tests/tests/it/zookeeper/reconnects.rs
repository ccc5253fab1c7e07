//! A client whose node is killed: it keeps its session, its ephemeral znodes and its one-shot
//! watches.
//!
//! Persistent watches are not kept: zookeeper-client 0.11.2 forgets to set them again
//! (`resend_watches` sends three lists of five).

use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use zookeeper_client::{Client, EventType, SessionState, WatchedEvent};

use super::scene::{
    EPHEMERAL, PERSISTENT, Scene, answered, connect, connector, create, delete, fired, set, stat, sync,
};
use crate::harness::{Proxy, Rule};

/// The longest time that a node waits before it stands for election (`raft.election_timeout_max`).
const ELECTION: Duration = Duration::from_millis(800);

/// Kills the client's node by SIGKILL. Returns when another node has answered the client, and the
/// client's watches are set at that node.
async fn kill_node_of(scene: &mut Scene, client: &Client) -> u64 {
    let node = scene.node_of(client.session_id()).await;
    scene.http.kill(node);
    assert_ne!(scene.node_of(client.session_id()).await, node);
    sync(client).await;
    node
}

async fn follower(scene: &Scene) -> u64 {
    let leader = scene.cluster().leader().await;
    scene.cluster().ids().into_iter().find(|id| *id != leader).unwrap()
}

/// Checks that the session still lives, and is the owner of this ephemeral znode.
async fn assert_lives(client: &Client, ephemeral: &str) {
    let stat = stat(client, ephemeral).await.expect("its session lives");
    assert_eq!(stat.ephemeral_owner, client.session_id().0);
    assert_eq!(client.state(), SessionState::SyncConnected);
    create(client, &format!("{ephemeral}-later"), "", &EPHEMERAL).await;
}

#[tokio::test]
async fn a_session_goes_on_when_the_clients_node_is_killed() {
    let mut scene = Scene::set().await;
    let client = scene.client_at(follower(&scene).await).await;
    let session = client.session_id();
    create(&client, "/ephemeral", "", &EPHEMERAL).await;
    kill_node_of(&mut scene, &client).await;
    assert_eq!(client.session_id(), session);
    assert_lives(&client, "/ephemeral").await;
}

#[tokio::test]
async fn a_session_goes_on_when_the_clients_node_is_killed_and_was_the_leader() {
    let mut scene = Scene::set().await;
    let client = scene.client_at(scene.cluster().leader().await).await;
    create(&client, "/ephemeral", "", &EPHEMERAL).await;
    kill_node_of(&mut scene, &client).await;
    assert_lives(&client, "/ephemeral").await;
}

#[tokio::test]
async fn a_client_of_another_node_stays_connected_when_the_leader_is_killed() {
    let mut scene = Scene::set().await;
    let client = scene.client_of(follower(&scene).await).await;
    create(&client, "/ephemeral", "", &EPHEMERAL).await;
    let (.., watcher) = answered("it is read", async || client.get_and_watch_data("/ephemeral").await).await;
    let mut states = client.state_watcher();
    let killed = Instant::now();
    scene.http.kill_leader().await;
    set(&client, "/ephemeral", "under the next leader", 0).await;
    let took = killed.elapsed();
    assert_eq!(fired(watcher).await.event_type, EventType::NodeDataChanged);
    assert_lives(&client, "/ephemeral").await;
    // A node without a leader for longer than an election sends its clients to the others.
    if took < ELECTION {
        assert_eq!(states.changed().now_or_never(), None);
    }
}

#[tokio::test]
async fn one_shot_watches_are_set_again_at_the_next_node() {
    let mut scene = Scene::set().await;
    let (watching, writing) = (scene.client().await, scene.client().await);
    create(&watching, "/a", "", &PERSISTENT).await;
    let (.., data) = answered("it is read", async || watching.get_and_watch_data("/a").await).await;
    let (.., children) = answered("it is listed", async || watching.get_and_watch_children("/a").await).await;
    let (_, absent) = answered("it is looked at", async || watching.check_and_watch_stat("/b").await).await;
    kill_node_of(&mut scene, &watching).await;
    sync(&writing).await;
    set(&writing, "/a", "1", 0).await;
    create(&writing, "/a/child", "", &PERSISTENT).await;
    create(&writing, "/b", "", &PERSISTENT).await;
    let events = [fired(data).await, fired(children).await, fired(absent).await];
    let [data, children, absent] = events.map(|event| (event.event_type, event.path, event.zxid > 0));
    assert_eq!(data, (EventType::NodeDataChanged, "/a".into(), true));
    assert_eq!(children, (EventType::NodeChildrenChanged, "/a".into(), true));
    assert_eq!(absent, (EventType::NodeCreated, "/b".into(), true));
}

#[tokio::test]
async fn what_a_client_missed_while_it_was_away_is_told_when_it_is_back() {
    let scene = Scene::set().await;
    let writing = scene.client_of(1).await;
    let proxy = Proxy::start(scene.cluster().zookeeper_endpoint(1)).await;
    let away = connect(connector(), proxy.addr()).await;
    for path in ["/set", "/deleted", "/parent"] {
        create(&away, path, "", &PERSISTENT).await;
    }
    let (.., set_one) = answered("it is read", async || away.get_and_watch_data("/set").await).await;
    let (.., deleted) = answered("it is read", async || away.get_and_watch_data("/deleted").await).await;
    let (.., parent) = answered("it is listed", async || away.get_and_watch_children("/parent").await).await;
    let (_, created) = answered("it is looked at", async || away.check_and_watch_stat("/created").await).await;

    proxy.set(Rule::Cut);
    set(&writing, "/set", "1", 0).await;
    delete(&writing, "/deleted").await;
    create(&writing, "/parent/child", "", &PERSISTENT).await;
    create(&writing, "/created", "", &PERSISTENT).await;
    // The old connection, with all that was sent to it, is gone for good.
    proxy.set(Rule::Pass);
    let events = [fired(set_one).await, fired(deleted).await, fired(parent).await, fired(created).await];
    // These events have no zxid: there may have been several changes.
    let expected = [
        WatchedEvent::new(EventType::NodeDataChanged, "/set"),
        WatchedEvent::new(EventType::NodeDeleted, "/deleted"),
        WatchedEvent::new(EventType::NodeChildrenChanged, "/parent"),
        WatchedEvent::new(EventType::NodeCreated, "/created"),
    ];
    assert_eq!(events, expected);
}
