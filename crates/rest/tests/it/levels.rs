//! The cluster's format level, shown and raised over HTTP.

use axum::http::Method;
use replica::Program;
use serde_json::{Value, json};
use znode::Levels;

use crate::node::Node;

const ROUTE: &str = "/v1/admin/upgrade";

/// Starts a node that pretends to run a newer program, which supports the format levels 1 and 2.
async fn newer() -> Node {
    let program = Program { version: "0.9.0".into(), levels: Levels { min: 1, max: 2 } };
    Node::start_with(rest::RestConfig::default(), |config| config.program = program).await
}

#[tokio::test]
async fn an_operator_sees_the_level_and_raises_it() {
    let node = newer().await;
    node.get(ROUTE).await.expect_problem(401, "operator-only");
    let upgrade = |level: u16, next: Value| {
        let member = json!({"id": 1, "version": "0.9.0", "level_min": 1, "level_max": 2, "reachable": true});
        json!({"level": level, "next_level": next, "members": [member]})
    };
    let seen = node.operate(Method::GET, ROUTE, "").await.expect(200);
    assert_eq!(seen.body, upgrade(1, json!(2)));

    let held_up = node.operate(Method::PUT, &format!("{ROUTE}?level=3"), "").await;
    let held_up = held_up.expect_problem(409, "members-not-ready");
    let detail = held_up.body["detail"].as_str().unwrap();
    assert!(detail.contains("node 1 runs 0.9.0, which knows 1 to 2"), "{detail}");
    node.operate(Method::PUT, &format!("{ROUTE}?level=x"), "").await.expect_problem(400, "bad-request");

    for uri in [ROUTE.to_owned(), format!("{ROUTE}?level=2")] {
        let raised = node.operate(Method::PUT, &uri, "").await.expect(200);
        assert_eq!(raised.body, upgrade(2, Value::Null));
    }
    let lowered = node.operate(Method::PUT, &format!("{ROUTE}?level=1"), "").await;
    let lowered = lowered.expect_problem(400, "bad-request");
    assert_eq!(lowered.body["detail"], json!("level: nothing lowers it: to go back, restore a backup of before"));
    assert_eq!(node.get("/v1/cluster").await.expect(200).body["level"], json!(2));
}
