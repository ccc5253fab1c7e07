//! Test that the new cluster works: it has a leader, and a lock can be taken and released.

use std::time::Duration;

use tokio::time::Instant;
use zlock_client::api::{Cluster, NewSession, Release, Ticket};

use super::http::{Call, call, try_call};
use super::layout::Layout;

const PAUSE: Duration = Duration::from_millis(50);

/// Waits until every node is ready and all nodes report the same leader. Returns the leader's id.
pub(super) async fn wait_for_leader(layout: &Layout, deadline: Instant) -> Result<u64, String> {
    loop {
        let problem = match common_leader(layout).await {
            Ok(leader) => return Ok(leader),
            Err(problem) => problem,
        };
        if Instant::now() >= deadline {
            return Err(format!("no leader yet, so something is wrong: {problem}"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn common_leader(layout: &Layout) -> Result<u64, String> {
    let mut leader = None;
    for node in &layout.nodes {
        let seen: Cluster =
            call(&Call { method: "GET", node: &node.http_addr, path: "/v1/cluster", session: None, body: "" }).await?;
        if seen.status != "ready" || leader.is_some_and(|leader| seen.leader != Some(leader)) {
            return Err(format!("node {} is {}, its leader {:?}", node.id, seen.status, seen.leader));
        }
        leader = seen.leader;
    }
    leader.ok_or_else(|| "no node leads".to_owned())
}

/// Opens a session at node 1, takes a lock at node 2, and releases it at node 3. Returns a message
/// about the result.
pub(super) async fn take_a_lock(layout: &Layout) -> Result<String, String> {
    let node = |turn: usize| layout.nodes[turn % layout.nodes.len()].http_addr.as_str();
    let began = Instant::now();
    let open = Call {
        method: "POST",
        node: node(0),
        path: "/v1/sessions",
        session: None,
        body: r#"{"timeout":"10s","label":"zlock dev"}"#,
    };
    let opened: NewSession = call(&open).await?;
    let session = Some(opened.session_key.as_str());
    // A try without waiting, because another session may hold the lock: sessions outlive a restart.
    let acquire = Call { method: "POST", node: node(1), path: "/v1/locks/hello", session, body: "" };
    let said = match try_call::<Ticket>(&acquire).await? {
        Ok(Ticket::Held { ticket, fencing_token, .. }) => {
            let path = format!("/v1/tickets{ticket}");
            let _: Release = call(&Call { method: "DELETE", node: node(2), path: &path, session, body: "" }).await?;
            let took_ms = began.elapsed().as_millis();
            format!("a lock was taken with fencing token {fencing_token} and released, {took_ms} ms in all")
        }
        Ok(Ticket::Waiting { .. }) => return Err("a try for the lock /hello was queued".to_owned()),
        Err(refused) if refused.status == 409 => {
            "the lock /hello is held by another session, so no lock was taken: `zlock locks` shows by which".to_owned()
        }
        Err(refused) => return Err(refused.text),
    };
    let path = format!("/v1/sessions/{}", opened.session);
    let _: serde_json::Value = call(&Call { method: "DELETE", node: node(0), path: &path, session, body: "" }).await?;
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
