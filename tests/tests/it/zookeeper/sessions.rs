//! Sessions of ZooKeeper clients: their opening, their moves to another node, and their end.

use std::time::{Duration, Instant};

use zookeeper_client::{Client, Error};

use super::scene::{EPHEMERAL, Scene, connect, connector, create, stat, sync};
use crate::harness::until;

/// Waits until a read of this client shows that the znode does not exist.
async fn gone(client: &Client, path: &str) {
    until("the znode is gone", async || stat(client, path).await.is_none().then_some(())).await;
}

#[tokio::test]
async fn an_open_session_is_known_to_every_node() {
    let scene = Scene::set().await;
    let client = scene.client_of(1).await;
    assert_eq!(client.session_timeout(), super::scene::LONG);
    let line = format!("{}\t{}ms", client.session_id(), super::scene::LONG.as_millis());
    for id in scene.cluster().ids() {
        let what = format!("node {id} knows the session");
        until(&what, async || scene.word(id, "dump").await?.contains(&line).then_some(())).await;
    }
}

#[tokio::test]
async fn a_session_goes_on_at_another_node_by_its_id_and_password() {
    let scene = Scene::set().await;
    let first = connect(connector().with_detached(), scene.cluster().zookeeper_endpoint(1)).await;
    create(&first, "/ephemeral", "", &EPHEMERAL).await;
    let session = first.into_session();

    let second = connect(connector().with_session(session.clone()), scene.cluster().zookeeper_endpoint(2)).await;
    assert_eq!(second.session_id(), session.id());
    assert_eq!(scene.node_of(session.id()).await, 2);
    sync(&second).await;
    let ephemeral = stat(&second, "/ephemeral").await.expect("its session lives");
    assert_eq!(ephemeral.ephemeral_owner, session.id().0);
    create(&second, "/another", "", &EPHEMERAL).await;
}

#[tokio::test]
async fn closing_a_session_removes_its_ephemerals() {
    let scene = Scene::set().await;
    let (closing, other) = (scene.client_of(1).await, scene.client_of(2).await);
    create(&closing, "/ephemeral", "", &EPHEMERAL).await;
    sync(&other).await;
    assert!(stat(&other, "/ephemeral").await.is_some());
    // The session's timeout is longer than any wait here, so the close has ended it.
    drop(closing);
    gone(&other, "/ephemeral").await;
}

#[tokio::test]
async fn a_closed_session_cannot_go_on() {
    let scene = Scene::set().await;
    let (closing, other) = (scene.client_of(1).await, scene.client_of(2).await);
    create(&closing, "/ephemeral", "", &EPHEMERAL).await;
    let session = closing.into_session();
    gone(&other, "/ephemeral").await;
    sync(&other).await;
    let again = connector().with_session(session).connect(scene.cluster().zookeeper_endpoint(2)).await;
    assert_eq!(again.unwrap_err(), Error::SessionExpired);
}

#[tokio::test]
async fn the_session_of_a_client_that_crashed_expires_and_not_before_its_timeout() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let scene = Scene::set().await;
    let other = scene.client_of(2).await;
    // This is like a crash: the connection is gone, and the session is not closed.
    let crashing = connector().with_session_timeout(TIMEOUT).with_detached();
    let crashing = connect(crashing, scene.cluster().zookeeper_endpoint(1)).await;
    create(&crashing, "/ephemeral", "", &EPHEMERAL).await;
    let last_sign = Instant::now();
    assert!(crashing.check_stat("/ephemeral").await.is_ok_and(|stat| stat.is_some()));
    let session = crashing.into_session();
    sync(&other).await;
    gone(&other, "/ephemeral").await;
    assert!(last_sign.elapsed() >= TIMEOUT, "it is gone after {:?}", last_sign.elapsed());
    let again = connector().with_session(session).connect(scene.cluster().zookeeper_endpoint(2)).await;
    assert_eq!(again.unwrap_err(), Error::SessionExpired);
}
