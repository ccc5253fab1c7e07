//! Warnings about kinds of clients in one queue that do not count each other's lock nodes.

use axum::http::Method;
use serde_json::json;

use crate::node::{Node, number, text};

#[tokio::test]
async fn curator_beside_kazoo_is_told_of_in_the_queue_a_header_and_a_count() {
    let node = Node::start().await;
    let session = node.session().await;
    let join = async |name: &str| {
        let uri = format!("/v1/znodes/l/{name}?mode=ephemeral-sequential");
        node.in_session(&session, Method::POST, &uri).await.expect(201)
    };
    node.post("/v1/znodes/l", "").await.expect(201);
    let curator = join("_c_0a3a5b6c-0000-4000-8000-00000000000a-lock-").await;
    let queue = node.get("/v1/locks/l").await.expect(200);
    assert_eq!((&queue.body["mixed_clients"], queue.header("zlock-mixed-clients")), (&json!(null), ""));
    join("0123456789abcdef0123456789abcdef__lock__").await;
    let queue = node.get("/v1/locks/l").await.expect(200);
    let mixed = json!([{"clients": "curator", "unseen": "kazoo"}, {"clients": "kazoo", "unseen": "curator"}]);
    assert_eq!(queue.body["mixed_clients"], mixed);
    let header = "curator does not see kazoo, kazoo does not see curator";
    assert_eq!(queue.header("zlock-mixed-clients"), header);
    let queued = node.acquire(&session, "/l?keep=true").await.expect(202);
    assert_eq!(queued.header("zlock-mixed-clients"), header);
    let ticket = format!("/v1/tickets{}", text(&queued, "ticket"));
    assert_eq!(node.get(&ticket).await.expect(202).header("zlock-mixed-clients"), header);
    let mixed = async || number(&node.get("/v1/cluster").await.expect(200), "mixed_clients_locks");
    assert_eq!(mixed().await, 1);
    // Curator knows zlock's own lock nodes.
    node.delete("/v1/znodes/l/0123456789abcdef0123456789abcdef__lock__0000000001").await.expect(200);
    assert_eq!((mixed().await, node.get("/v1/locks/l").await.header("zlock-mixed-clients")), (0, ""));
    node.delete(&format!("/v1/znodes{}", text(&curator, "path"))).await.expect(200);
    assert_eq!(node.get(&ticket).await.expect(200).header("zlock-mixed-clients"), "");
}
