//! Quotas over HTTP: set by the same znodes as in ZooKeeper, and valid for locks, too.

use serde_json::json;

use crate::node::Node;

#[tokio::test]
async fn a_quota_is_set_by_znodes_and_refuses_with_its_subtree() {
    let node = Node::start().await;
    for path in ["zookeeper", "zookeeper/quota", "zookeeper/quota/a", "a"] {
        node.post(&format!("/v1/znodes/{path}"), "").await.expect(201);
    }
    let limits = "count=-1,bytes=-1=;byteHardLimit=4;countHardLimit=2";
    node.post("/v1/znodes/zookeeper/quota/a/zookeeper_limits", "count=x").await.expect_problem(400, "bad-request");
    node.post("/v1/znodes/zookeeper/quota/a/zookeeper_limits", limits).await.expect(201);
    node.post("/v1/znodes/zookeeper/quota/a/zookeeper_stats", "").await.expect(201);
    node.post("/v1/znodes/a/b", "123").await.expect(201);
    let read = node.get("/v1/znodes/zookeeper/quota/a/zookeeper_stats").await.expect(200);
    assert_eq!(read.body["data"], json!("count=2,bytes=3"));

    let refused = node.post("/v1/znodes/a/c", "").await.expect_problem(507, "quota-exceeded");
    let told = ["name", "code", "path"].map(|key| refused.body[key].clone());
    assert_eq!(told, [json!("QuotaExceeded"), json!(-125), json!("/a")]);
    node.put("/v1/znodes/a", "12").await.expect_problem(507, "quota-exceeded");
    let session = node.session().await;
    let refused = node.acquire(&session, "/a/lock").await.expect_problem(507, "quota-exceeded");
    assert_eq!(refused.body["path"], json!("/a"));
    node.delete("/v1/znodes/a/b").await.expect(200);
    node.put("/v1/znodes/a", "1234").await.expect(200);
}
