//! Tests of groups: a member leaves its group when its session ends.

use serde_json::{Value, json};

use super::scene::Scene;
use crate::harness::Call;

#[tokio::test]
async fn a_group_loses_a_member_that_fell_silent_under_the_leader_before() {
    let scene = Scene::set().await;
    let (lasting, silent) = (scene.session().await, scene.session_for(3_000).await);
    let join =
        |session, name: &str| Call::post(format!("/v1/groups/team?member={name}")).session(session).body("here").once();
    assert_eq!(scene.ask(join(&lasting, "a")).await.status, 201);
    assert_eq!(scene.ask(join(&silent, "b")).await.status, 201);
    let group = scene.read("/v1/groups/team").await;
    assert_eq!(group["count"], 2);
    let changes = |seen: &Value| scene.ask_later(Call::get(format!("/v1/groups/team?since={}&wait=90s", seen["upto"])));
    let observing = changes(&group);
    let paused = scene.pause_leader().await;
    let without: Value = observing.answer().await.json();
    let names = |group: &Value| group["members"].as_array().unwrap().iter().map(|one| one["member"].clone()).collect();
    let seen: Vec<Value> = names(&without);
    assert_eq!(seen, [json!("a")]);
    let observing = changes(&without);
    assert_eq!(scene.ask(join(&lasting, "c")).await.status, 201);
    let with: Value = observing.answer().await.json();
    let seen: Vec<Value> = names(&with);
    assert_eq!(seen, [json!("a"), json!("c")]);
    // The paused leader knew the silent member as alive.
    scene.resume(paused).await;
    let there: Value = scene.ask_at(paused, Call::get("/v1/groups/team")).await.json();
    assert_eq!(there, with);
}
