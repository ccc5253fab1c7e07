//! One lock that is used both by HTTP clients and by the lock recipe of the crate
//! `zookeeper-client`.

use std::sync::{Arc, Mutex};

use zlock_client::api::LockQueue;
use zookeeper_client::{Acls, Client, Error, LockOptions, LockPrefix, OwnedLockClient};

use super::scene::{PERSISTENT, Scene, stat, sync};
use crate::harness::{Call, Pace, until};

/// Takes the lock `/orders` with the recipe of `zookeeper-client`, and waits until it is held. The
/// ticket's name has kazoo's pattern, like the names of HTTP clients' tickets, so all tickets form
/// one queue.
async fn lock(client: &Client, label: &str) -> OwnedLockClient {
    let prefix = LockPrefix::new_custom(format!("/orders/{:x}__lock__", client.session_id().0), "lock__").unwrap();
    let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(PERSISTENT).unwrap();
    client.lock(prefix, label.as_bytes(), options).await.unwrap().into_owned()
}

/// The fencing token of a lock that was taken over ZooKeeper's protocol: the ticket's czxid.
async fn czxid(lock: &OwnedLockClient) -> u64 {
    let mut pace = Pace::new("the lock is looked at");
    loop {
        pace.next().await;
        match lock.client().check_stat(lock.lock_path()).await {
            Ok(stat) => return u64::try_from(stat.expect("it is held").czxid).unwrap(),
            Err(Error::ConnectionLoss) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until an HTTP client sees this queue, in the form `holders | waiters`, each as a list of
/// labels.
async fn queued(scene: &Scene, expected: &str) {
    let what = format!("the queue is {expected}");
    until(&what, async || (scene.http.queue("/orders").await == expected).then_some(())).await;
}

#[tokio::test]
async fn an_http_client_waits_for_a_lock_of_the_other_door() {
    let scene = Scene::set().await;
    let client = scene.client_of(1).await;
    let held = lock(&client, "zookeeper").await;
    let token = czxid(&held).await;
    let session = scene.http.session().await;
    let waiting = scene.http.wait(&session, "/orders", "http").await;
    queued(&scene, "zookeeper | http").await;
    drop(held);
    let granted = waiting.held().await;
    assert!(granted.token > token, "{} behind {token}", granted.token);
    queued(&scene, "http | ").await;
}

#[tokio::test]
async fn a_zookeeper_client_waits_for_a_lock_of_the_other_door() {
    let scene = Scene::set().await;
    let client = scene.client_of(1).await;
    let session = scene.http.session().await;
    let held = scene.http.hold(&session, "/orders?label=http").await;
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { lock(&client, "zookeeper").await })
    };
    queued(&scene, "http | zookeeper").await;
    assert!(!waiting.is_finished());
    scene.http.release(&session, &held.ticket).await;
    let granted = waiting.await.unwrap();
    let token = czxid(&granted).await;
    assert!(token > held.token, "{token} behind {}", held.token);
    queued(&scene, "zookeeper | ").await;
}

#[tokio::test]
async fn clients_of_both_doors_get_a_lock_in_the_order_of_the_queue() {
    let scene = Arc::new(Scene::set().await);
    let session = scene.http.session().await;
    let first = scene.http.hold(&session, "/orders?label=first").await;
    let granted = Arc::new(Mutex::new(vec![("first".to_owned(), first.token)]));
    let mut queue = "first |".to_owned();
    let mut waiting = Vec::new();
    for n in 0..8 {
        let (label, granted) = (format!("{}{n}", ["http", "zookeeper"][n % 2]), Arc::clone(&granted));
        if n % 2 == 0 {
            let session = scene.http.session().await;
            let in_queue = scene.http.wait(&session, "/orders", &label).await;
            let (scene, label) = (Arc::clone(&scene), label.clone());
            waiting.push(tokio::spawn(async move {
                let held = in_queue.held().await;
                granted.lock().unwrap().push((label, held.token));
                scene.http.release(&session, &held.ticket).await;
            }));
        } else {
            let client = scene.client_of(1 + n as u64 % 3).await;
            let label = label.clone();
            waiting.push(tokio::spawn(async move {
                let held = lock(&client, &label).await;
                let token = czxid(&held).await;
                granted.lock().unwrap().push((label, token));
            }));
        }
        queue = format!("{queue} {label}");
        queued(&scene, &queue).await;
    }
    scene.http.release(&session, &first.ticket).await;
    for waiting in waiting {
        waiting.await.unwrap();
    }
    let granted = granted.lock().unwrap();
    let order: Vec<_> = granted.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(order, queue.replace(" |", "").split(' ').collect::<Vec<_>>());
    assert!(granted.is_sorted_by(|(_, one), (_, next)| one < next), "{granted:?}");
}

#[tokio::test]
async fn the_fencing_token_is_the_czxid_at_both_doors() {
    let scene = Scene::set().await;
    let client = scene.client_of(1).await;
    let session = scene.http.session().await;
    let held = scene.http.hold(&session, "/orders").await;
    // The node may be behind the one that the HTTP client has asked.
    sync(&client).await;
    let ticket = stat(&client, &held.ticket).await.expect("it is held");
    assert_eq!(u64::try_from(ticket.czxid).unwrap(), held.token);
    scene.http.release(&session, &held.ticket).await;

    let held = lock(&client, "zookeeper").await;
    let token = czxid(&held).await;
    let queue: LockQueue = scene.http.ask(Call::get("/v1/locks/orders")).await.json();
    assert_eq!((&*queue.holders[0].ticket, queue.holders[0].fencing_token), (held.lock_path(), Some(token)));
    assert!(scene.http.token_holds("/orders", token).await);
}

#[tokio::test]
async fn a_lock_outlives_the_leader_at_both_doors() {
    let mut scene = Scene::set().await;
    let client = scene.client().await;
    let held = lock(&client, "zookeeper").await;
    let session = scene.http.session().await;
    let waiting = scene.http.wait(&session, "/orders", "http").await;
    let other = scene.client().await;
    let last = {
        let other = other.clone();
        tokio::spawn(async move { lock(&other, "last").await })
    };
    queued(&scene, "zookeeper | http last").await;
    scene.http.kill_leader().await;
    queued(&scene, "zookeeper | http last").await;
    let token = czxid(&held).await;
    drop(held);
    let granted = waiting.held().await;
    queued(&scene, "http | last").await;
    scene.http.release(&session, &granted.ticket).await;
    let last = czxid(&last.await.unwrap()).await;
    assert!(token < granted.token && granted.token < last, "{token}, {}, {last}", granted.token);
}
