//! Test that no `Debug` output of this crate shows a secret.

use std::fmt::Debug;

use crate::api::LockMode;

use crate::Client;
use crate::client::fake_node::fake_node;

/// Texts that `Debug` output must not contain: a session's secret, a password, `name:password` in
/// base64 as in the header `Authorization`, and the header of a private key in PEM.
const SECRETS: [&str; 4] =
    ["5ec2e70000000000000000000000ce2d", "pa55word", "YWxpY2U6cGE1NXdvcmQ=", "BEGIN PRIVATE KEY"];
/// Longest allowed `Debug` output, in bytes. Longer output would fill logs with internals.
const LENGTH_MAX: usize = 600;

#[track_caller]
fn check(shown: &impl Debug) {
    for text in [format!("{shown:?}"), format!("{shown:#?}")] {
        let leaked = SECRETS.iter().find(|secret| text.contains(**secret));
        assert_eq!(leaked, None, "{text}");
    }
    let length = format!("{shown:?}").len();
    assert!(length <= LENGTH_MAX, "{length} bytes: {shown:?}");
}

fn answer(request: &str) -> String {
    let held = r#""state":"held","ticket":"/l/_c_x-lock-0000000000","holds":1,"safe_for_ms":58800"#;
    match request {
        "POST /v1/sessions" => {
            format!(r#"{{"session":5,"session_key":"5.{0}","timeout_ms":60000,"safe_for_ms":58800}}"#, SECRETS[0])
        }
        _ if request.starts_with("POST /v1/multilocks") => {
            format!(r#"{{{held},"locks":[{{"path":"/l","ticket":"/l/_c_x-lock-0000000000","fencing_token":7}}]}}"#)
        }
        _ => format!(r#"{{{held},"path":"/l","fencing_token":7}}"#),
    }
}

#[tokio::test]
async fn nothing_shows_a_secret() {
    let (addr, _requests) = fake_node(async |request: String| answer(&request)).await;
    let builder = Client::builder([addr]).user("alice", SECRETS[1]);
    check(&builder.clone().certificate_pem("-----BEGIN CERTIFICATE-----", "-----BEGIN PRIVATE KEY-----\nhidden"));
    let client = builder.build().unwrap();
    check(&client);
    check(&client.session_events());
    let session = client.open_session().await.unwrap();
    assert_eq!(session.key(), format!("5.{}", SECRETS[0]), "it is what is looked for");
    check(&session);
    check(&client);

    let lock = client.lock("/l").owner("me").label("x");
    let guard = lock.acquire().await.unwrap();
    check(&(&lock, client.rw_lock("/l"), client.semaphore("/l", 2)));
    check(&guard);
    check(&client.create("/a", "x").if_lock(&guard));
    check(&client.set("/a", "x").if_lock(&guard));
    check(&client.delete("/a").if_lock(&guard));
    check(&client.txn().create("/a", "x").if_lock(&guard));
    check(&client.watch("/a", crate::WatchKind::Data));
    check(&client.simple_lock("/l"));
    check(&client.simple_lock("/l").acquire().await.unwrap());
    let all = client.multi_lock().and("/l", LockMode::Exclusive);
    check(&all);
    check(&all.acquire().await.unwrap());
    check(&client.election("/l"));
    check(&client.election("/l").campaign("x").await.unwrap());
    check(&client.election("/l").observe());
    check(&(client.barrier("/b"), client.double_barrier("/b", 2), client.group("/g")));
}
