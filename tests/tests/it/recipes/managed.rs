//! Managed locks (locks with priorities and hand-over), and queues with a bounded length.

use super::scene::{Scene, problem};
use crate::harness::Call;

const MANAGED: &str = "{\"managed\":true}";

#[tokio::test]
async fn priorities_of_a_managed_lock_count_for_the_next_leader() {
    let mut scene = Scene::set().await;
    let session = scene.session().await;
    scene.settings("/l", MANAGED).await;
    let mut held = scene.hold(&session, "/l?label=0").await;
    let low = scene.wait(&session, "/l?priority=1", "low").await;
    let high = scene.wait(&session, "/l?priority=5", "high").await;
    scene.kill_leader().await;
    let top = scene.wait(&session, "/l?priority=9", "top").await;
    assert_eq!(scene.queue("/l").await, "0 | top high low", "the queue is shown in the order of turns");
    let by_hand = Call::post("/v1/znodes/l/_c_x-lock-?mode=ephemeral-sequential").session(&session).once();
    assert_eq!(problem(&scene.ask(by_hand).await), "lock-managed");
    for (waiting, then) in [(top, "top | high low"), (high, "high | low"), (low, "low | ")] {
        scene.release(&session, &held.ticket).await;
        let next = waiting.held().await;
        assert_eq!(scene.queue("/l").await, then);
        assert!(next.token > held.token, "{} after {}: tokens rise with grants", next.token, held.token);
        held = next;
    }
}

#[tokio::test]
async fn a_queue_stays_bounded_over_a_leaders_death() {
    let mut scene = Scene::set().await;
    let session = scene.session().await;
    scene.settings("/l", "{\"waiters_max\":1}").await;
    let held = scene.hold(&session, "/l?label=0").await;
    let waiting = scene.wait(&session, "/l", "1").await;
    scene.kill_leader().await;
    let refused = scene.acquire(&session, "/l?wait=90s").await;
    assert_eq!((refused.status, &*problem(&refused)), (429, "too-many"));
    scene.release(&session, &held.ticket).await;
    waiting.held().await;
    let _room = scene.wait(&session, "/l", "2").await;
    assert_eq!(scene.queue("/l").await, "1 | 2");
}

#[tokio::test]
async fn the_holder_hands_over_once_although_the_answer_and_the_leader_are_lost() {
    let mut scene = Scene::set().await;
    let (first, second, third) = (scene.session().await, scene.session().await, scene.session().await);
    scene.settings("/l", MANAGED).await;
    let held = scene.hold(&first, "/l?label=0").await;
    let _passed = scene.wait(&second, "/l", "passed").await;
    let named = scene.wait(&third, "/l", "named").await;
    let to = scene.read("/v1/locks/l").await["waiters"][1]["ticket"].as_str().unwrap().to_owned();
    let hand_over = Call::post(format!("/v1/hand-overs{}?to={to}", held.ticket)).session(&first).once();
    let given = scene.ask(hand_over.clone()).await;
    scene.kill_leader().await;
    // The retry finds the hand-over done, and does nothing.
    assert_eq!(scene.ask(hand_over).await.body, given.body);
    let named = named.held().await;
    assert_eq!((&*named.ticket, &*scene.queue("/l").await), (&*to, "named | passed"));
    assert!(named.token > held.token);
    assert!(scene.token_holds("/l", named.token).await && !scene.token_holds("/l", held.token).await);
}
