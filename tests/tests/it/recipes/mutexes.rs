//! Locks with one holder at a time.

use serde_json::json;

use super::scene::{Held, Scene, problem};
use crate::harness::{Call, Client, Proxy, Rule};

#[tokio::test]
async fn who_lost_the_answer_and_the_leader_finds_its_own_simple_lock() {
    let mut scene = Scene::set().await;
    let (mine, other) = (scene.session().await, scene.session().await);
    let acquire = |session| Call::post("/v1/simple-locks/cron?owner=job").session(session);
    let proxy = Proxy::start(scene.cluster.endpoint(scene.cluster.leader().await)).await;
    proxy.set(Rule::LoseAnswers);
    assert!(Client::new(proxy.addr()).send(acquire(&mine)).await.is_err(), "the answer is lost");
    let shown = scene.read("/v1/simple-locks/cron").await;
    scene.kill_leader().await;

    // An equal owner in another session is another client; in this session it is the holder.
    assert_eq!(problem(&scene.ask(acquire(&other)).await), "not-acquired");
    let found = Held::of(&scene.ask(acquire(&mine)).await);
    assert_eq!(
        json!({"session": mine.id, "session_label": "test", "client": {"address": "127.0.0.1"}, "owner": "job",
        "fencing_token": found.token, "granted_at_ms": shown["holder"]["granted_at_ms"]}),
        shown["holder"]
    );
    let waiting = scene.ask_later(Call::post("/v1/simple-locks/cron?owner=next&wait=90s").session(&other));
    assert!(scene.token_holds("/cron", found.token).await);
    let release = Call::delete("/v1/simple-locks/cron?owner=job").session(&mine).once();
    assert_eq!(scene.ask(release).await.status, 200);
    assert!(waiting.held().await.token > found.token);
    assert!(!scene.token_holds("/cron", found.token).await);
}

#[tokio::test]
async fn a_fair_mutex_keeps_its_order_over_a_leaders_death() {
    let mut scene = Scene::set().await;
    let session = scene.session().await;
    let mut held = scene.hold(&session, "/m?label=0").await;
    let mut waiting = Vec::new();
    for label in ["1", "2", "3", "4"] {
        waiting.push(scene.wait(&session, "/m", label).await);
        if label == "3" {
            scene.kill_leader().await;
        }
    }
    assert_eq!(scene.queue("/m").await, "0 | 1 2 3 4");
    for (n, next) in waiting.into_iter().enumerate() {
        assert_eq!(scene.release(&session, &held.ticket).await.holds, 0);
        let granted = next.held().await;
        assert!(granted.token > held.token, "{} after {}", granted.token, held.token);
        let queue = scene.queue("/m").await;
        assert!(queue.starts_with(&format!("{} | ", n + 1)), "one holds, the next in order: {queue}");
        held = granted;
    }
    assert!(scene.token_holds("/m", held.token).await);
}

#[tokio::test]
async fn a_reentrant_mutex_counts_its_holds_over_a_leaders_death() {
    let mut scene = Scene::set().await;
    let (mine, other) = (scene.session().await, scene.session().await);
    let first = scene.hold(&mine, "/m?owner=me&label=me").await;
    assert_eq!(scene.hold(&mine, "/m?owner=me").await.holds, 2);
    let waiting = scene.wait(&other, "/m?owner=me", "other").await;
    scene.kill_leader().await;
    let third = scene.hold(&mine, "/m?owner=me").await;
    assert_eq!((&third.ticket, third.token, third.holds), (&first.ticket, first.token, 3));
    for left in [2, 1] {
        assert_eq!(scene.release(&mine, &first.ticket).await.holds, left);
        assert_eq!(scene.queue("/m").await, "me | other");
    }
    assert_eq!(scene.release(&mine, &first.ticket).await.holds, 0);
    assert!(waiting.held().await.token > first.token);
}

#[tokio::test]
async fn a_mutex_that_is_not_reentrant_is_released_by_another_thread_at_another_node() {
    let scene = Scene::set().await;
    let session = scene.session().await;
    let held = scene.hold(&session, "/m?label=first").await;
    assert_eq!(problem(&scene.acquire(&session, "/m").await), "not-acquired");
    let waiting = scene.wait(&session, "/m", "second").await;
    let paused = scene.pause_leader().await;
    assert_eq!(scene.release(&session, &held.ticket).await.holds, 0);
    let next = waiting.held().await;
    assert!(next.token > held.token);
    // The resumed node ends work for clients that have gone to other nodes, and takes nothing from
    // these clients.
    scene.resume(paused).await;
    assert_eq!(scene.queue("/m").await, "second | ");
    assert!(scene.token_holds("/m", next.token).await);
}

#[tokio::test]
async fn a_cycle_of_waits_is_refused_by_a_leader_that_saw_none_of_them_begin() {
    let mut scene = Scene::set().await;
    let (one, two) = (scene.session().await, scene.session().await);
    let a = scene.hold(&one, "/a?owner=o").await;
    let b = scene.hold(&two, "/b?owner=p").await;
    let waiting = scene.wait(&one, "/b?owner=o", "waits").await;
    scene.kill_leader().await;
    let refused = scene.acquire(&two, "/a?owner=p&wait=90s").await;
    assert_eq!(problem(&refused), "deadlock");
    let cycle = json!([
        {"session": two.id, "owner": "p", "path": "/a", "blocker": a.ticket},
        {"session": one.id, "owner": "o", "path": "/b", "blocker": b.ticket},
    ]);
    assert_eq!(serde_json::to_value(refused.problem().cycle).unwrap(), cycle);
    // The holder releases the lock by itself, and the client that waits for the lock goes on.
    assert!(scene.token_holds("/b", b.token).await);
    scene.release(&two, &b.ticket).await;
    assert!(waiting.held().await.token > b.token);
    assert!(scene.token_holds("/a", a.token).await);
}
