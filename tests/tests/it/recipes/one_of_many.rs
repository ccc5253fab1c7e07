//! Tests of elections.

use serde_json::{Value, json};

use super::scene::{Held, Scene, Waiting, problem};
use crate::harness::{Call, Session};

fn campaign(scene: &Scene, session: &Session, label: &str) -> Waiting {
    scene.ask_later(Call::post(format!("/v1/elections/boss?wait=100s&label={label}")).session(session).once())
}

fn proclaim(session: &Session, value: &'static str) -> Call {
    Call::put("/v1/elections/boss").session(session).body(value).once()
}

fn observe(scene: &Scene, seen: &Value) -> Waiting {
    let since = seen["upto"].as_str().unwrap();
    scene.ask_later(Call::get(format!("/v1/elections/boss?since={since}&wait=90s")))
}

#[tokio::test]
async fn an_election_goes_on_at_the_next_leader_and_its_observers_miss_nothing() {
    let scene = Scene::set().await;
    let (one, two) = (scene.session().await, scene.session().await);
    let leads = Held::of(&campaign(&scene, &one, "one").answer().await);
    let standing = campaign(&scene, &two, "two");
    crate::harness::until("two candidates stand", async || {
        (scene.read("/v1/elections/boss").await["candidates"] == 2).then_some(())
    })
    .await;
    let first = scene.read("/v1/elections/boss").await;
    assert_eq!((&first["leader"]["data"], &first["leader"]["fencing_token"]), (&json!("one"), &json!(leads.token)));
    let observing = observe(&scene, &first);
    let paused = scene.pause_leader().await;

    assert_eq!(scene.ask(proclaim(&one, "http://one")).await.status, 200);
    let spoken: Value = observing.answer().await.json();
    assert_eq!(spoken["leader"]["data"], "http://one");
    assert_eq!(problem(&scene.ask(proclaim(&two, "usurper")).await), "lock-not-held");
    let observing = observe(&scene, &spoken);
    assert_eq!(scene.ask(Call::delete("/v1/elections/boss").session(&one).once()).await.status, 200);
    let elected = standing.held().await;
    assert!(elected.token > leads.token);
    let changed: Value = observing.answer().await.json();
    assert_eq!((&changed["leader"]["data"], &changed["leader"]["session"]), (&json!("two"), &json!(two.id)));
    assert_eq!((&changed["leader"]["fencing_token"], &changed["candidates"]), (&json!(elected.token), &json!(1)));
    assert_eq!(problem(&scene.ask(proclaim(&one, "still me")).await), "lock-not-held");
    // The resumed node has the new leader of the election, too, and the cursor is the same there.
    scene.resume(paused).await;
    let there: Value = scene.ask_at(paused, Call::get("/v1/elections/boss")).await.json();
    assert_eq!((&there["leader"], &there["upto"]), (&changed["leader"], &changed["upto"]));
}
