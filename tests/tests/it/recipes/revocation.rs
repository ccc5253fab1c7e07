//! A lock that is revoked from its holder, and a lock with a lock-delay.

use serde_json::json;

use super::scene::{Scene, problem};
use crate::harness::{Call, until};

/// Deadline that is longer than an election on a busy machine.
const DEADLINE_MS: u64 = 8_000;

#[tokio::test]
async fn a_revoked_lock_is_taken_away_at_its_deadline_by_the_next_leader() {
    let scene = Scene::set().await;
    let (holder, other) = (scene.session().await, scene.session().await);
    let held = scene.hold(&holder, "/l?label=old").await;
    let hearing =
        scene.ask_later(Call::get(format!("/v1/tickets{}?until=revoked&wait=90s", held.ticket)).session(&holder));
    let waiting = scene.wait(&other, "/l", "new").await;
    let revoke = Call::post(format!("/v1/revocations/l?deadline={DEADLINE_MS}ms")).session(&other).once();
    let asked: zlock_client::api::Revocation = scene.ask(revoke).await.json();
    assert_eq!(asked.tickets, [held.ticket.as_str()]);
    let paused = scene.pause_leader().await;

    let heard: serde_json::Value = hearing.answer().await.json();
    assert_eq!((&heard["state"], &heard["revoke"]["zxid"]), (&json!("held"), &json!(asked.zxid)));
    assert_eq!(heard["revoke"]["session"], other.id);
    let next = waiting.held().await;
    assert!(next.token > held.token && scene.token_holds("/l", next.token).await);
    let guard = format!("/l;{}", held.token);
    let write = Call::post("/v1/znodes/x").session(&holder).header("if-lock", guard).once();
    assert_eq!(problem(&scene.ask(write).await), "lock-not-held", "the token is dead");
    scene.resume(paused).await;
    for id in scene.up() {
        let gone = scene.ask_at(id, Call::get(format!("/v1/tickets{}", held.ticket))).await;
        assert_eq!(
            (&*problem(&gone), gone.problem().ended.map(|ended| ended.how)),
            ("ticket-gone", Some(zlock_client::api::EndCause::Revoked))
        );
    }
    let past = &scene.read("/v1/history/l").await["history"][0];
    let ended = past["ended"]["at_ms"].as_u64().unwrap();
    assert!(ended >= heard["revoke"]["due_at_ms"].as_u64().unwrap(), "not before its time: {past}");
    assert!(ended >= heard["revoke"]["asked_at_ms"].as_u64().unwrap() + DEADLINE_MS, "{heard}");
}

const DELAY_MS: u64 = 3_000;

#[tokio::test]
async fn a_lock_delay_keeps_others_out_under_the_next_leader() {
    let mut scene = Scene::set().await;
    let (silent, other) = (scene.session_for(2_000).await, scene.session().await);
    let held = scene.hold(&silent, &format!("/l?label=dead&lock_delay={DELAY_MS}ms")).await;
    let waiting = scene.wait(&other, "/l", "next").await;
    let lingering =
        until("the session has expired", async || scene.read("/v1/locks/l").await["lingering"].get(0).cloned()).await;
    assert_eq!(lingering["ticket"], held.ticket.as_str());
    scene.kill_leader().await;
    let next = waiting.held().await;
    assert!(next.token > held.token);
    let until_ms = lingering["lingers_until_at_ms"].as_u64().unwrap();
    let queue = scene.read("/v1/locks/l").await;
    let since = queue["holders"][0]["granted_at_ms"].as_u64().unwrap();
    assert!(since >= until_ms, "granted at {since}, and the delay lasts until {until_ms}");
    let ended = scene.ask(Call::get(format!("/v1/sessions/{}", silent.id))).await.problem().ended.unwrap();
    assert!(since >= ended.at_ms + DELAY_MS, "{ended:?}");
}
