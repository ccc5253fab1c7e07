//! Barriers and groups.

use serde_json::{Value, json};

use super::scene::{Scene, Waiting};
use crate::harness::{Call, Session, until};

#[tokio::test]
async fn a_barrier_stays_closed_over_a_leaders_death_and_then_lets_all_pass() {
    let mut scene = Scene::set().await;
    assert_eq!(scene.ask(Call::put("/v1/barriers/gate")).await.status, 201);
    let passing: Vec<_> = (0..6).map(|_| scene.ask_later(Call::get("/v1/barriers/gate?wait=90s"))).collect();
    until("some wait at each node", async || {
        for id in scene.cluster.ids() {
            let status = scene.cluster.status(id).await?;
            if status.watches == 0 {
                return None;
            }
        }
        Some(())
    })
    .await;
    scene.kill_leader().await;
    assert_eq!(scene.read("/v1/barriers/gate").await["state"], "closed");
    let opened: Value = scene.ask(Call::delete("/v1/barriers/gate")).await.json();
    for waiting in passing {
        let passed: Value = waiting.answer().await.json();
        assert_eq!(passed["state"], "open");
        assert!(passed["zxid"].as_u64() >= opened["zxid"].as_u64(), "not before it was opened: {passed} {opened}");
    }
}

fn member(scene: &Scene, call: fn(String) -> Call, session: &Session, name: &str) -> Waiting {
    scene.ask_later(call(format!("/v1/double-barriers/start?count=3&member={name}&wait=100s")).session(session).once())
}

async fn members(scene: &Scene, session: &Session, names: [&str; 2], call: fn(String) -> Call) -> Vec<Waiting> {
    let mut waiting = Vec::new();
    for name in names {
        waiting.push(member(scene, call, session, name));
    }
    waiting
}

async fn children(scene: &Scene) -> Vec<String> {
    let answer = scene.ask(Call::get("/v1/znodes/start?children")).await;
    if answer.status == 404 { Vec::new() } else { answer.json::<zlock_client::api::Children>().children }
}

#[tokio::test]
async fn a_double_barrier_holds_all_back_until_the_last_comes_and_the_last_leaves() {
    let mut scene = Scene::set().await;
    let session = scene.session().await;
    let mut entering = members(&scene, &session, ["a", "b"], Call::post).await;
    until("two have come", async || (children(&scene).await == ["a", "b"]).then_some(())).await;
    let killed = scene.kill_leader().await;
    assert_eq!(children(&scene).await, ["a", "b"], "not complete, and nobody was let in");
    entering.push(member(&scene, Call::post, &session, "c"));
    for waiting in entering {
        assert_eq!(waiting.answer().await.json::<Value>()["state"], "entered");
    }
    // And out again, with the next leader dying under it.
    scene.restart(killed).await;
    let leave = |path: String| Call::delete(path.replace("count=3&", ""));
    let mut leaving = members(&scene, &session, ["a", "b"], leave).await;
    until("two have left", async || (children(&scene).await == ["c", "ready"]).then_some(())).await;
    scene.kill_leader().await;
    assert_eq!(children(&scene).await, ["c", "ready"]);
    leaving.push(member(&scene, leave, &session, "c"));
    for waiting in leaving {
        assert_eq!(waiting.answer().await.json::<Value>()["state"], "left");
    }
    assert!(children(&scene).await.is_empty());
}

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
    let changes =
        |seen: &Value| scene.ask_later(Call::get(format!("/v1/groups/team?since={}&wait=90s", seen["changed"])));
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
