//! Histories of locks and sessions, which are the same at every node.

use serde_json::Value;

use super::scene::{Scene, problem};
use crate::harness::{Call, until};

async fn bodies(scene: &Scene, ids: &[u64], path: &str) -> Vec<Value> {
    let mut bodies = Vec::new();
    for id in ids {
        bodies.push(serde_json::from_slice(&scene.ask_at(*id, Call::get(path)).await.body).unwrap());
    }
    bodies
}

#[tokio::test]
async fn the_history_of_grants_is_the_same_after_a_leaders_death() {
    let mut scene = Scene::set().await;
    let (one, two) = (scene.session().await, scene.session().await);
    let held = scene.hold(&one, "/l?owner=o&label=first").await;
    let waiting = scene.wait(&two, "/l", "second").await;
    assert_eq!(problem(&scene.acquire(&one, "/l?label=tries").await), "not-acquired");
    scene.release(&one, &held.ticket).await;
    let second = waiting.held().await;
    let revoked =
        scene.ask(Call::post(format!("/v1/revocations{}?deadline=0", second.ticket)).session(&one).once()).await;
    assert_eq!(revoked.status, 200);
    let path = "/v1/history/l";
    let before = scene.read(path).await;
    let ends: Vec<_> = before["history"].as_array().unwrap().iter().map(|past| past["ended"]["how"].clone()).collect();
    assert_eq!(ends, ["revoked", "released", "withdrawn"], "{before}");
    assert_eq!(before["history"][0]["fencing_token"], second.token);

    let killed = scene.kill_leader().await;
    let _write = scene.session().await;
    for (id, after) in scene.up().into_iter().zip(bodies(&scene, &scene.up(), path).await) {
        assert_eq!(after, before, "node {id}");
    }
    // The history goes on, and the killed node learns of it.
    let third = scene.hold(&two, "/l?label=third").await;
    scene.release(&two, &third.ticket).await;
    let longer = scene.read(path).await;
    assert_eq!(longer["history"].as_array().unwrap().len(), 4);
    scene.restart(killed).await;
    assert_eq!(bodies(&scene, &[killed], path).await, [longer]);
}

#[tokio::test]
async fn how_a_session_ended_is_the_same_after_a_leaders_death() {
    let mut scene = Scene::set().await;
    let (closed, silent) = (scene.session().await, scene.session_for(2_000).await);
    let close = Call::delete(format!("/v1/sessions/{}", closed.id)).session(&closed);
    assert_eq!(scene.ask(close).await.status, 200);
    let paths = [closed.id, silent.id].map(|id| format!("/v1/sessions/{id}"));
    let look = async |path: &str| scene.ask(Call::get(path)).await;
    until("the silent session has expired", async || (look(&paths[1]).await.status == 410).then_some(())).await;
    let before = [look(&paths[0]).await.problem().ended.unwrap(), look(&paths[1]).await.problem().ended.unwrap()];
    let how = |ended: &zlock_client::api::End| serde_json::to_value(ended.how).unwrap();
    assert_eq!((how(&before[0]), how(&before[1])), ("closed".into(), "expired".into()));
    scene.kill_leader().await;
    let _write = scene.session().await;
    for (path, before) in paths.iter().zip(&before) {
        for (id, after) in scene.up().into_iter().zip(bodies(&scene, &scene.up(), path).await) {
            assert_eq!(after["ended"], serde_json::to_value(before).unwrap(), "node {id}: {path}");
        }
    }
}
