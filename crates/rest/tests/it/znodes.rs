//! `/v1/znodes` and `/v1/txn`.

use axum::http::Method;
use serde_json::{Value, json};

use crate::node::{Answer, Node, number, text};

/// Returns the expected stat of the znode that `answer` has created.
fn new_stat(answer: &Answer, data_length: usize, owner: u64) -> Value {
    let (zxid, at_ms) = (answer.zxid(), answer.body["stat"]["ctime"].as_u64().unwrap());
    json!({"czxid": zxid, "mzxid": zxid, "ctime": at_ms, "mtime": at_ms, "version": 0, "cversion": 0,
        "aversion": 0, "ephemeral_owner": owner, "data_length": data_length, "num_children": 0, "pzxid": zxid})
}

#[tokio::test]
async fn a_znode_is_created_read_set_and_deleted() {
    let node = Node::start().await;
    let created = node.post("/v1/znodes/a", "one").await.expect(201);
    assert_eq!(created.body, json!({"path": "/a", "stat": new_stat(&created, 3, 0), "zxid": created.zxid()}));
    assert_eq!((created.header("location"), created.header("etag")), ("/v1/znodes/a", "\"0\""));
    assert_eq!((created.header("zlock-node"), created.header("zlock-leader")), ("1", "1"));
    node.post("/v1/znodes/a", "two").await.expect_problem(409, "node-exists");

    let read = node.get("/v1/znodes/a").await.expect(200);
    assert_eq!(read.body, json!({"path": "/a", "data": "one", "stat": created.body["stat"]}));
    assert_eq!((read.header("etag"), read.header("vary")), ("\"0\"", "accept"));
    let raw = node.call(Method::GET, "/v1/znodes/a", &[("accept", "application/octet-stream")], b"").await.expect(200);
    assert_eq!((&*raw.bytes, raw.header("content-type")), (&b"one"[..], "application/octet-stream"));
    let head = node.call(Method::HEAD, "/v1/znodes/a", &[], b"").await.expect(200);
    assert_eq!((head.bytes.len(), head.header("etag")), (0, "\"0\""));
    assert_eq!(head.header("content-length"), read.bytes.len().to_string());

    let set = node.call(Method::PUT, "/v1/znodes/a", &[("if-match", "\"0\"")], b"two").await.expect(200);
    assert_eq!((number(&set, "zxid"), set.header("etag")), (set.zxid(), "\"1\""));
    assert_eq!((&set.body["stat"]["version"], &set.body["stat"]["mzxid"]), (&json!(1), &json!(set.zxid())));
    let stale = node.call(Method::PUT, "/v1/znodes/a", &[("if-match", "\"0\"")], b"x").await;
    let stale = stale.expect_problem(412, "bad-version");
    let expected = json!({"type": "urn:zlock:problem:bad-version", "title": "The version does not match", "status": 412,
        "detail": "the znode has another version", "outcome": "refused", "name": "BadVersion", "code": -103, "path": "/a",
        "zxid": stale.zxid()});
    assert_eq!((stale.body, stale.headers["content-type"].to_str().unwrap()), (expected, "application/problem+json"));

    node.call(Method::DELETE, "/v1/znodes/a", &[("if-match", "0")], b"").await.expect_problem(412, "bad-version");
    let deleted = node.call(Method::DELETE, "/v1/znodes/a", &[("if-match", "1")], b"").await.expect(200);
    assert_eq!(deleted.body, json!({"zxid": deleted.zxid()}));
    let gone = node.get("/v1/znodes/a").await.expect_problem(404, "no-node");
    assert_eq!(gone.zxid(), deleted.zxid());
    node.put("/v1/znodes/a", "x").await.expect_problem(404, "no-node");
    node.delete("/v1/znodes/a").await.expect_problem(404, "no-node");
    // A refused write is a log entry with a zxid, too.
    let head = node.call(Method::HEAD, "/v1/znodes/a", &[], b"").await.expect(404);
    assert_eq!((head.zxid(), head.bytes.len()), (deleted.zxid() + 2, 0));
}

#[tokio::test]
async fn a_set_that_is_to_meet_no_znode_never_overwrites_one() {
    let node = Node::start().await;
    let set = async |path: &str, condition: (&str, &str)| node.call(Method::PUT, path, &[condition], b"two").await;
    node.post("/v1/znodes/a", "one").await.expect(201);
    let refused = set("/v1/znodes/a", ("if-none-match", "*")).await.expect_problem(412, "bad-version");
    assert_eq!(text(&refused, "path"), "/a");
    set("/v1/znodes/a?acl", ("if-none-match", "*")).await.expect_problem(400, "bad-request");
    set("/v1/znodes/b", ("if-none-match", "*")).await.expect_problem(404, "no-node");
    set("/v1/znodes/a", ("if-none-match", "\"0\"")).await.expect_problem(400, "bad-request");
    assert_eq!(text(&node.get("/v1/znodes/a").await, "data"), "one");
    // A compressing proxy makes a weak tag of a version.
    set("/v1/znodes/a", ("if-match", "W/\"1\"")).await.expect_problem(412, "bad-version");
    assert_eq!(set("/v1/znodes/a", ("if-match", "W/\"0\"")).await.expect(200).header("etag"), "\"1\"");
}

/// Raw answers share the znode's bytes with the state, so that many slow readers of a long znode
/// need no copies.
#[tokio::test]
async fn the_data_of_an_answer_is_that_of_the_state() {
    let node = Node::start().await;
    node.post("/v1/znodes/a", &"x".repeat(100_000)).await.expect(201);
    let raw = node.call(Method::GET, "/v1/znodes/a", &[("accept", "application/octet-stream")], b"").await.expect(200);
    let state = node.replica.state();
    let data = state.node(&znode::ZPath::parse("/a").unwrap()).unwrap().data();
    assert_eq!((raw.bytes.len(), raw.bytes.as_ptr()), (100_000, data.as_ptr()));
}

#[tokio::test]
async fn every_create_mode_works() {
    let node = Node::start().await;
    let session = node.session().await;
    let owner: u64 = session.split_once('.').unwrap().0.parse().unwrap();
    node.post("/v1/znodes/p?mode=persistent", "").await.expect(201);
    let create = async |uri: &str| node.in_session(&session, Method::POST, &format!("/v1/znodes{uri}")).await;
    let created = create("/p/e?mode=ephemeral").await.expect(201);
    assert_eq!(created.body["stat"], new_stat(&created, 0, owner));
    assert_eq!(text(&create("/p/s-?mode=persistent-sequential").await.expect(201), "path"), "/p/s-0000000001");
    let created = create("/p/?mode=ephemeral-sequential").await.expect(201);
    assert_eq!(text(&created, "path"), "/p/0000000002");
    assert_eq!(created.header("location"), "/v1/znodes/p/0000000002");
    let created = create("/p/c?mode=container").await.expect(201);
    assert_eq!(created.body["stat"], new_stat(&created, 0, 1 << 63));
    let created = create("/p/t?mode=persistent-ttl&ttl=30s").await.expect(201);
    assert_eq!(created.body["stat"], new_stat(&created, 0, 0xff << 56 | 30_000));
    let created = create("/p/t-?mode=persistent-sequential-ttl&ttl=250ms").await.expect(201);
    assert_eq!(text(&created, "path"), "/p/t-0000000005");
    create("/p/e/x").await.expect_problem(409, "no-children-for-ephemerals");
    node.post("/v1/znodes/p/e2?mode=ephemeral", "").await.expect_problem(401, "session-required");
    node.post("/v1/znodes/q/x", "").await.expect_problem(404, "no-node");
    node.delete("/v1/znodes/p").await.expect_problem(409, "not-empty");
}

#[tokio::test]
async fn data_that_is_not_text_comes_in_base64() {
    let node = Node::start().await;
    node.call(Method::POST, "/v1/znodes/b", &[], b"\xff\x00").await.expect(201);
    let read = node.get("/v1/znodes/b").await.expect(200);
    assert_eq!((&read.body["data"], &read.body["data_base64"]), (&json!(null), &json!("/wA=")));
    for accept in ["*/*", "application/json, application/octet-stream", "text/html"] {
        let read = node.call(Method::GET, "/v1/znodes/b", &[("accept", accept)], b"").await.expect(200);
        assert_eq!(read.header("content-type"), "application/json", "{accept}");
    }
}

#[tokio::test]
async fn children_come_in_pages_with_their_facts() {
    let node = Node::start().await;
    node.post("/v1/znodes/p", "").await.expect(201);
    for name in ["c", "a", "b"] {
        node.post(&format!("/v1/znodes/p/{name}"), name).await.expect(201);
    }
    let page = node.get("/v1/znodes/p?children&page_size=2").await.expect(200);
    let parent = node.get("/v1/znodes/p").await.expect(200).body["stat"].clone();
    assert_eq!(page.body, json!({"path": "/p", "stat": parent, "children": ["a", "b"], "cursor": "b"}));
    let page = node.get("/v1/znodes/p?children=stat&after=b").await.expect(200);
    let child = node.get("/v1/znodes/p/c").await.expect(200).body["stat"].clone();
    let expected = json!({"path": "/p", "stat": parent, "children": ["c"], "stats": [{"name": "c", "stat": child}]});
    assert_eq!(page.body, expected);
    let root = node.get("/v1/znodes/?children").await.expect(200);
    assert!(root.body["children"].as_array().unwrap().contains(&json!("p")), "{}", root.body);
    assert_eq!(node.get("/v1/znodes?children").await.expect(200).body, root.body);
    node.get("/v1/znodes/none?children").await.expect_problem(404, "no-node");
}

#[tokio::test]
async fn acls_are_stored_and_answered() {
    let node = Node::start().await;
    node.post("/v1/znodes/a?acl=world:anyone:r,digest:bob:aGFzaA==:cdrwa", "").await.expect(201);
    let acl = node.get("/v1/znodes/a?acl").await.expect(200);
    // A reader that may not set the ACL sees no digest.
    let expected = json!([{"perms": "r", "scheme": "world", "id": "anyone"},
        {"perms": "cdrwa", "scheme": "digest", "id": "bob:x"}]);
    assert_eq!((&acl.body["acl"], acl.header("etag")), (&expected, "\"0\""));
    node.post("/v1/znodes/o", "").await.expect(201);
    let open = node.get("/v1/znodes/o?acl").await.expect(200);
    assert_eq!(open.body["acl"], json!([{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]));
    let wish = br#"[{"perms":"rwa","scheme":"world","id":"anyone"}]"#;
    let set = node.call(Method::PUT, "/v1/znodes/o?acl", &[("if-match", "\"0\"")], wish).await.expect(200);
    assert_eq!((&set.body["stat"]["aversion"], set.header("etag")), (&json!(1), "\"1\""));
    node.call(Method::PUT, "/v1/znodes/o?acl", &[("if-match", "\"0\"")], wish).await.expect_problem(412, "bad-version");
    node.put("/v1/znodes/o?acl", "[]").await.expect_problem(400, "invalid-acl");
    node.put("/v1/znodes/o?acl", r#"[{"perms":"x","scheme":"world","id":"anyone"}]"#).await.expect(400);
}

#[tokio::test]
async fn acls_forbid_what_they_do_not_grant_to_anyone() {
    let node = Node::start().await;
    node.post("/v1/znodes/read?acl=world:anyone:r", "x").await.expect(201);
    node.get("/v1/znodes/read").await.expect(200);
    node.get("/v1/znodes/read?children").await.expect(200);
    node.put("/v1/znodes/read", "y").await.expect_problem(403, "no-auth");
    node.post("/v1/znodes/read/a", "").await.expect_problem(403, "no-auth");
    node.put("/v1/znodes/read?acl", r#"[{"perms":"w","scheme":"world","id":"anyone"}]"#).await.expect(403);
    node.delete("/v1/znodes/read").await.expect(200);
    node.post("/v1/znodes/bob?acl=digest:bob:aGFzaA==:cdrwa", "x").await.expect(201);
    for what in ["", "?children", "?acl"] {
        node.get(&format!("/v1/znodes/bob{what}")).await.expect_problem(403, "no-auth");
    }
}

#[tokio::test]
async fn a_txn_is_all_or_nothing() {
    let node = Node::start().await;
    let ops = json!({"ops": [
        {"op": "create", "path": "/t", "data": "x"},
        {"op": "create", "path": "/t/s-", "data_base64": "/wA=", "mode": "persistent-sequential"},
        {"op": "set", "path": "/t", "data": "y", "version": 0},
        {"op": "check", "path": "/t", "version": 1},
        {"op": "create", "path": "/t/gone"},
        {"op": "delete", "path": "/t/gone"}]});
    let done = node.post("/v1/txn", &ops.to_string()).await.expect(200);
    let (zxid, results) = (done.zxid(), &done.body["results"]);
    assert_eq!(number(&done, "zxid"), zxid);
    let told = |at: usize| (results[at]["op"].clone(), results[at]["path"].clone());
    assert_eq!(told(0), (json!("create"), json!("/t")));
    assert_eq!(told(1), (json!("create"), json!("/t/s-0000000000")));
    assert_eq!((told(2).0, &results[2]["stat"]["mzxid"]), (json!("set"), &json!(zxid)));
    assert_eq!((&results[3], &results[5]), (&json!({"op": "done"}), &json!({"op": "done"})));

    let ops = json!({"ops": [{"op": "create", "path": "/u"}, {"op": "check", "path": "/t", "version": 7}]});
    let refused = node.post("/v1/txn", &ops.to_string()).await.expect_problem(412, "bad-version");
    assert_eq!((number(&refused, "op_index"), text(&refused, "path")), (1, "/t"));
    node.get("/v1/znodes/u").await.expect_problem(404, "no-node");
    let ops = json!({"ops": [{"op": "check", "path": "/t"}, {"op": "delete", "path": "/a/../b"}]});
    let refused = node.post("/v1/txn", &ops.to_string()).await.expect_problem(400, "bad-request");
    assert_eq!(number(&refused, "op_index"), 1);
    let typed = [("content-type", "text/plain")];
    node.call(Method::POST, "/v1/txn", &typed, b"{}").await.expect_problem(415, "unsupported-media-type");
}

#[tokio::test]
async fn a_repeated_key_is_answered_and_not_done_again() {
    let node = Node::start().await;
    let session = node.session().await;
    let key = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let headers = [("zlock-session-key", &*session), ("idempotency-key", key)];
    let uri = "/v1/znodes/s-?mode=persistent-sequential";
    let first = node.call(Method::POST, uri, &headers, b"x").await.expect(201);
    let again = node.call(Method::POST, uri, &headers, b"x").await.expect(201);
    assert_eq!((&first.body, first.zxid()), (&again.body, again.zxid()));
    let other = node.call(Method::POST, uri, &headers, b"y").await;
    other.expect_problem(422, "idempotency-key-reused");
    let headers = [("idempotency-key", key)];
    node.call(Method::POST, uri, &headers, b"x").await.expect_problem(401, "session-required");
    let headers = [("zlock-session-key", &*session), ("idempotency-key", "")];
    node.call(Method::POST, uri, &headers, b"x").await.expect_problem(400, "bad-request");
}

#[tokio::test]
async fn a_write_goes_back_behind_nothing_that_was_seen() {
    let node = Node::start().await;
    let created = node.post("/v1/znodes/a", "").await.expect(201);
    let headers = [("zlock-min-zxid", created.header("zlock-zxid"))];
    let read = node.call(Method::GET, "/v1/znodes/a?consistency=local", &headers, b"").await.expect(200);
    assert!(read.zxid() >= created.zxid());
    node.get("/v1/znodes/a?consistency=linearizable").await.expect(200);
    node.get("/v1/znodes/a?consistency=eventual").await.expect_problem(400, "bad-request");
}
