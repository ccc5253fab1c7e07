//! Answers for balancers and operators: readiness, roles, the cluster's health, and drains.

use axum::http::Method;
use replica::Member;
use rest::RestConfig;
use serde_json::{Value, json};

use crate::node::{Answer, Node};

fn lines(answer: &Answer) -> Vec<&str> {
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    std::str::from_utf8(&answer.bytes).unwrap().lines().collect()
}

/// Starts one node of a cluster of two. The other node cannot run, because its port is the reserved
/// port 0.
async fn alone() -> Node {
    let (peer_addr, http_addr) = ("127.0.0.1:0".to_owned(), "127.0.0.1:0".to_owned());
    Node::start_unready(RestConfig::default(), |config| config.members.push(Member { id: 2, peer_addr, http_addr }))
        .await
}

/// Returns the statuses of `/health/leader`, `/health/voter` and `/health/serving`. Each must be
/// the same for GET, HEAD and OPTIONS.
async fn roles(node: &Node) -> [u16; 3] {
    let mut statuses = [0; 3];
    for (status, role) in statuses.iter_mut().zip(["leader", "voter", "serving"]) {
        let uri = format!("/health/{role}");
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            let answer = node.call(method.clone(), &uri, &[], b"").await;
            assert!(answer.bytes.is_empty(), "{method} {uri}");
            assert!(*status == 0 || *status == answer.status, "{method} {uri}: {}", answer.status);
            *status = answer.status;
        }
    }
    statuses
}

#[tokio::test]
async fn every_condition_has_a_line_and_can_be_left_out() {
    let node = Node::start().await;
    let answer = node.get("/readyz?verbose").await.expect(200);
    let all = ["alive", "recovered", "disk", "quorum", "agreement", "lag", "space", "drain", "certificates"];
    assert_eq!(lines(&answer), all.map(|name| format!("[+]{name} ok")));
    let answer = node.get("/readyz?verbose=true&exclude=disk&exclude=space").await.expect(200);
    assert_eq!(lines(&answer)[2], "[ ]disk excluded");
    assert_eq!(lines(&answer)[6], "[ ]space excluded");
    let every = all.map(|name| format!("exclude={name}")).join("&");
    let answer = node.get(&format!("/readyz?verbose&{every}")).await.expect(200);
    assert_eq!(lines(&answer), all.map(|name| format!("[ ]{name} excluded")));
    node.get("/readyz?max_lag=0").await.expect(200);
    for (query, detail) in [
        ("exclude=disc", "exclude: there is no condition \"disc\"; these are: alive, recovered, disk"),
        ("exclude", "exclude: there is no condition \"\""),
        ("max_lag=x", "max_lag: a number is expected"),
        ("max_lag=1&max_lag=2", "max_lag: given twice"),
        ("verbos", "verbos: unknown parameter"),
        ("verbose=yes", "verbose: true or false"),
    ] {
        let refused = node.get(&format!("/readyz?{query}")).await.expect_problem(400, "bad-request");
        assert!(refused.body["detail"].as_str().unwrap().starts_with(detail), "{query}: {}", refused.body);
    }
    for uri in ["/health/leader?x", "/v1/cluster/health?x"] {
        node.get(uri).await.expect_problem(400, "bad-request");
    }
}

#[tokio::test]
async fn a_node_that_is_not_ready_says_which_conditions_it_lacks() {
    let node = alone().await;
    let refused = node.get("/readyz").await.expect_problem(503, "unavailable");
    assert_eq!(refused.body["detail"], "not ready: recovering");
    let answer = node.get("/readyz?verbose").await.expect(503);
    let failed: Vec<&str> = lines(&answer).into_iter().filter(|line| line.starts_with("[-]")).collect();
    let quorum = "[-]quorum failed: no leader is heard, or this leader has lost its quorum";
    assert_eq!(
        failed,
        [
            "[-]recovered failed: it has not caught up with its log from before the start, or waits for its cluster: its messages say which",
            quorum
        ]
    );
    let refused = node.get("/readyz?exclude=recovered").await.expect_problem(503, "unavailable");
    assert_eq!(refused.body["detail"], "not ready: no-quorum");
    node.get("/readyz?exclude=recovered&exclude=quorum").await.expect(200);
    assert_eq!(roles(&node).await, [503; 3]);
    node.get("/livez").await.expect(200);
    let health = node.get("/v1/cluster/health").await.expect(200).body;
    assert_eq!(
        (&health["healthy"], &health["leader"], &health["failure_tolerance"]),
        (&json!(false), &Value::Null, &Value::Null)
    );
    assert_eq!((&health["voters"], &health["members"][1]["reachable"]), (&json!(2), &Value::Null));
}

#[tokio::test]
async fn a_leader_alone_is_healthy_and_can_lose_nothing() {
    let node = Node::start().await;
    assert_eq!(roles(&node).await, [200; 3]);
    let health = node.get("/v1/cluster/health").await.expect(200).body;
    let own = json!({"id": 1, "role": "leader", "reachable": true, "last_contact_ms": 0, "lag_entries": 0});
    assert_eq!(
        health,
        json!({"node_id": 1, "leader": 1, "healthy": true, "failure_tolerance": 0, "voters": 1, "learners": 0, "members": [own]})
    );
    let metrics = node.get("/metrics").await.expect(200);
    assert!(String::from_utf8_lossy(&metrics.bytes).contains("\nzlock_failure_tolerance 0\n"));
}

#[tokio::test]
async fn a_node_that_an_operator_drains_sends_clients_elsewhere_until_that_is_taken_back() {
    let node = Node::start().await;
    let drain = |draining: bool| json!({"node_id": 1, "draining": draining, "leads": true, "leader": 1});
    assert_eq!(node.operate(Method::GET, "/v1/admin/drain", "").await.expect(200).body, drain(false));
    for _ in 0..2 {
        // The node is the only member, so it keeps leading.
        assert_eq!(node.operate(Method::PUT, "/v1/admin/drain", "").await.expect(200).body, drain(true));
    }
    let refused = node.get("/readyz").await.expect_problem(503, "unavailable");
    assert_eq!(refused.body["detail"], "not ready: draining");
    let answer = node.get("/readyz?verbose").await.expect(503);
    assert!(lines(&answer).contains(&"[-]drain failed: an operator has drained the node"));
    node.get("/readyz?exclude=drain").await.expect(200);
    assert_eq!(roles(&node).await, [503; 3]);
    assert_eq!(node.get("/v1/cluster").await.expect(200).body["status"], "draining");
    // The drained node still serves requests, and ends no connection.
    let created = node.post("/v1/znodes/a", "").await.expect(201);
    assert_eq!(created.header("connection"), "");
    assert_eq!(node.operate(Method::DELETE, "/v1/admin/drain", "").await.expect(200).body, drain(false));
    node.get("/readyz").await.expect(200);
    assert_eq!(roles(&node).await, [200; 3]);
    node.operate(Method::PUT, "/v1/admin/drain?x", "").await.expect_problem(400, "bad-request");
    node.put("/v1/admin/drain", "").await.expect_problem(401, "operator-only");
    node.get("/readyz").await.expect(200);
}
