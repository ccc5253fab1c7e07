//! Test that the new cluster works: it has a leader, and a lock can be taken and released.

use std::time::Duration;

use tokio::time::Instant;
use zlock_client::{Client, Error};

use super::layout::Layout;

const PAUSE: Duration = Duration::from_millis(50);
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns a client of all nodes.
pub(super) fn client(layout: &Layout) -> Result<Client, String> {
    let endpoints = layout.nodes.iter().map(|node| node.http_addr.as_str());
    let builder = Client::builder(endpoints).label("zlock dev").session_timeout(SESSION_TIMEOUT);
    builder.build().map_err(|error| error.to_string())
}

/// Waits until every node is ready and all nodes report the same leader. Returns the leader's id.
pub(super) async fn wait_for_leader(layout: &Layout, client: &Client, deadline: Instant) -> Result<u64, String> {
    loop {
        let problem = match common_leader(layout, client).await {
            Ok(leader) => return Ok(leader),
            Err(problem) => problem,
        };
        if Instant::now() >= deadline {
            return Err(format!("no leader yet, so something is wrong: {problem}"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn common_leader(layout: &Layout, client: &Client) -> Result<u64, String> {
    let mut leader = None;
    for (node, (_, seen)) in layout.nodes.iter().zip(client.status().await) {
        let seen = seen.map_err(|error| error.to_string())?;
        if seen.status != "ready" || leader.is_some_and(|leader| seen.leader != Some(leader)) {
            return Err(format!("node {} is {}, its leader {:?}", node.id, seen.status, seen.leader));
        }
        leader = seen.leader;
    }
    leader.ok_or_else(|| "no node leads".to_owned())
}

/// Takes a lock and releases it. Returns a message about the result.
pub(super) async fn take_a_lock(client: &Client) -> Result<String, Error> {
    let began = Instant::now();
    // A try without waiting, because another session may hold the lock: sessions outlive a restart.
    let said = match client.lock("/hello").try_acquire().await? {
        Some(guard) => {
            let fencing_token = guard.fencing_token();
            guard.release().await?;
            let took_ms = began.elapsed().as_millis();
            format!("a lock was taken with fencing token {fencing_token} and released, {took_ms} ms in all")
        }
        None => {
            "the lock /hello is held by another session, so no lock was taken: `zlock locks` shows by which".to_owned()
        }
    };
    client.close().await?;
    Ok(said)
}

/// Returns shell commands, for the user to paste, that take and release a lock.
pub(super) fn lines_to_paste(layout: &Layout) -> String {
    let node = |turn: usize| layout.nodes[turn % layout.nodes.len()].http_addr.as_str();
    format!(
        r#"
paste this to take a lock, and the last line to release it:

A=$(curl -sS -X POST {}/v1/sessions -d '{{"timeout":"60s","label":"me"}}')
S=$(echo "$A" | sed -n 's/.*"session_key":"\([^"]*\)".*/\1/p'); : "${{S:?$A}}"
A=$(curl -sS -X POST '{}/v1/locks/orders?wait=30s' -H "Zlock-Session-Key: ${{S:?}}" -H 'Idempotency-Key: first'); echo "$A"
T=$(echo "$A" | sed -n 's/.*"ticket":"\([^"]*\)".*/\1/p'); : "${{T:?$A}}"
curl -sS -X DELETE "{}/v1/tickets${{T:?}}" -H "Zlock-Session-Key: $S" -H 'Idempotency-Key: first-back'

Ctrl-C stops all nodes.
"#,
        node(0),
        node(1),
        node(2)
    )
}
