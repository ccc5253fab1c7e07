//! Semaphores, and multi-locks (several locks that are acquired together or not at all).

use zlock_client::api::MultiTicket;

use super::scene::{Scene, Waiting, problem};
use crate::harness::{Call, Session};

#[tokio::test]
async fn a_semaphore_grants_permits_together_in_order_and_under_its_one_limit() {
    let scene = Scene::set().await;
    let session = scene.session().await;
    let wish = |permits: u32, limit: u32| format!("/s?mode=semaphore&permits={permits}&permits_max={limit}");
    let held = scene.hold(&session, &format!("{}&label=a", wish(2, 3))).await;
    let many = scene.wait(&session, &wish(2, 3), "many").await;
    let few = scene.wait(&session, &wish(1, 3), "few").await;
    let paused = scene.pause_leader().await;
    assert_eq!(problem(&scene.acquire(&session, &wish(1, 4)).await), "permits-max-differs");
    assert_eq!(scene.queue("/s").await, "a | many few", "one permit is free, and who wants two is not passed");
    scene.release(&session, &held.ticket).await;
    let (many, few) = (many.held().await, few.held().await);
    assert_eq!(scene.queue("/s").await, "many few | ");
    scene.resume(paused).await;
    let queue = scene.read("/v1/locks/s").await;
    assert_eq!((&queue["permits_max"], &queue["permits_held"]), (&3.into(), &3.into()));
    for ticket in [many.ticket, few.ticket] {
        scene.release(&session, &ticket).await;
    }
    // The limit stays with the lock while its queue is empty.
    assert_eq!(problem(&scene.acquire(&session, &wish(1, 4)).await), "permits-max-differs");
}

fn both(scene: &Scene, session: &Session, policy: &str) -> Waiting {
    let body = format!(
        "{{\"locks\":[{{\"path\":\"/a\"}},{{\"path\":\"/b\",\"mode\":\"write\"}}],\"policy\":\"{policy}\",\"label\":\"both\"}}"
    );
    scene.ask_later(Call::post("/v1/multilocks?wait=100s").session(session).body(body).once())
}

async fn stands(scene: &Scene, lock: &str, queue: &str) {
    let what = format!("{lock} is {queue}");
    crate::harness::until(&what, async || (scene.queue(lock).await == queue).then_some(())).await;
}

async fn granted(waiting: Waiting) -> (String, Vec<(String, u64)>) {
    match waiting.answer().await.json() {
        MultiTicket::Held { ticket, locks, .. } => {
            (ticket, locks.into_iter().map(|part| (part.path, part.fencing_token)).collect())
        }
        MultiTicket::Waiting { .. } => panic!("it waits"),
    }
}

#[tokio::test]
async fn a_multi_lock_holds_all_or_nothing_under_any_leader() {
    let mut scene = Scene::set().await;
    let (mine, other) = (scene.session().await, scene.session().await);
    let held = scene.hold(&other, "/a?label=a").await;
    let waiting = both(&scene, &mine, "strict");
    stands(&scene, "/a", "a | both").await;
    let behind = scene.wait(&other, "/b?mode=read", "behind").await;
    scene.kill_leader().await;
    assert_eq!(scene.queue("/b").await, " | both behind", "it holds none, and nobody passes it");
    scene.release(&other, &held.ticket).await;
    let (ticket, parts) = granted(waiting).await;
    assert_eq!((scene.queue("/a").await, scene.queue("/b").await), ("both | ".into(), "both | behind".into()));
    assert_eq!(parts.iter().map(|(lock, _)| &**lock).collect::<Vec<_>>(), ["/a", "/b"]);
    for (lock, token) in &parts {
        assert!(scene.token_holds(lock, *token).await);
    }
    assert!(parts[0].1 > held.token);
    scene.release(&mine, &ticket).await;
    assert_eq!((scene.queue("/a").await, scene.queue("/b").await), (" | ".into(), "behind | ".into()));
    assert!(behind.held().await.token > 0);
    for (lock, token) in &parts {
        assert!(!scene.token_holds(lock, *token).await);
    }
}

#[tokio::test]
async fn a_backfill_multi_lock_lets_others_pass_until_all_its_locks_are_free() {
    let scene = Scene::set().await;
    let (mine, other) = (scene.session().await, scene.session().await);
    let held = scene.hold(&other, "/a?label=a").await;
    let waiting = both(&scene, &mine, "backfill");
    stands(&scene, "/a", "a | both").await;
    let paused = scene.pause_leader().await;
    let passed = scene.hold(&other, "/b?mode=read&label=b").await;
    assert_eq!(scene.queue("/b").await, "b | both");
    scene.release(&other, &held.ticket).await;
    assert_eq!(scene.queue("/a").await, " | both", "free, and still none of it is held");
    scene.release(&other, &passed.ticket).await;
    let (_, parts) = granted(waiting).await;
    assert!(parts[0].1 > held.token && parts[1].1 > passed.token, "{parts:?}");
    scene.resume(paused).await;
    assert_eq!((scene.queue("/a").await, scene.queue("/b").await), ("both | ".into(), "both | ".into()));
}
