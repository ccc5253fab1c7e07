//! Long polls with `?watch=`.

use replica::Config;
use rest::RestConfig;
use serde_json::json;

use crate::node::{Node, number, text};

#[tokio::test]
async fn a_poll_waits_for_the_first_event() {
    let node = Node::start().await;
    let since = node.get("/v1/znodes").await.expect(200).zxid();
    let uri = format!("/v1/znodes/a?watch=exists&since={since}&wait=20s");
    let poll = node.get(&uri);
    let create = node.post("/v1/znodes/a", "");
    let (events, created) = tokio::join!(poll, create);
    let zxid = created.expect(201).zxid();
    let expected = json!({"events": [{"zxid": zxid, "kind": "created", "path": "/a"}], "upto": zxid});
    assert_eq!(events.expect(200).body, expected);
}

#[tokio::test]
async fn resumed_polls_lose_nothing_and_repeat_nothing() {
    let node = Node::start().await;
    let begin = node.post("/v1/znodes/p", "").await.expect(201).zxid();
    let writes = async {
        for round in 0..50 {
            node.post("/v1/znodes/p/c", "").await.expect(201);
            node.put("/v1/znodes/p/c", &round.to_string()).await.expect(200);
            node.delete("/v1/znodes/p/c").await.expect(200);
        }
    };
    let polls = async {
        let (mut since, mut kinds) = (begin, Vec::new());
        while kinds.len() < 150 {
            let batch = node.get(&format!("/v1/znodes/p/c?watch=data&since={since}&wait=20s")).await.expect(200);
            for event in batch.body["events"].as_array().unwrap() {
                assert!(event["zxid"].as_u64().unwrap() > since);
                kinds.push(event["kind"].as_str().unwrap().to_owned());
            }
            since = number(&batch, "upto");
        }
        kinds
    };
    let ((), kinds) = tokio::join!(writes, polls);
    let expected: Vec<&str> = ["created", "data_changed", "deleted"].repeat(50);
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn each_kind_of_watch_sees_its_own_events() {
    let node = Node::start().await;
    let begin = node.post("/v1/znodes/p", "").await.expect(201).zxid();
    node.post("/v1/znodes/p/c", "").await.expect(201);
    node.put("/v1/znodes/p", "x").await.expect(200);
    node.put("/v1/znodes/p/c", "x").await.expect(200);
    node.delete("/v1/znodes/p/c").await.expect(200);
    let last = node.delete("/v1/znodes/p").await.expect(200).zxid();
    for (watch, expected) in [
        ("exists", vec!["deleted /p"]),
        ("data", vec!["data_changed /p", "deleted /p"]),
        ("children", vec!["children_changed /p", "children_changed /p", "deleted /p"]),
    ] {
        let batch = node.get(&format!("/v1/znodes/p?watch={watch}&since={begin}")).await.expect(200);
        let events = batch.body["events"].as_array().unwrap();
        let seen: Vec<_> = events
            .iter()
            .map(|event| format!("{} {}", event["kind"].as_str().unwrap(), event["path"].as_str().unwrap()))
            .collect();
        assert_eq!(
            (seen, number(&batch, "upto")),
            (expected.iter().map(|text| text.to_string()).collect(), last),
            "{watch}"
        );
    }
    node.get(&format!("/v1/znodes/p?watch=data&since={begin}&consistency=local")).await.expect(200);
    node.get(&format!("/v1/znodes/p?watch=data&since={begin}&consistency=x")).await.expect_problem(400, "bad-request");
    let batch = node.get(&format!("/v1/znodes/p?watch=subtree&since={begin}")).await.expect(200);
    let of_child = |event: &&serde_json::Value| event["path"] == "/p/c";
    assert_eq!(batch.body["events"].as_array().unwrap().iter().filter(of_child).count(), 3);
}

#[tokio::test]
async fn a_poll_that_sees_nothing_says_how_far_it_looked() {
    let node = Node::start().await;
    let before = node.get("/v1/znodes").await.expect(200).zxid();
    let batch = node.get("/v1/znodes/a?watch=data&wait=10ms").await.expect(200);
    assert_eq!(batch.body, json!({"events": [], "upto": batch.zxid()}));
    assert!(batch.zxid() >= before);
    for query in ["watch=all", "watch=data&since=-1", "watch=data&wait=11m", "watch=data&children", "watch=data&wait=x"]
    {
        node.get(&format!("/v1/znodes/a?{query}")).await.expect_problem(400, "bad-request");
    }
}

#[tokio::test]
async fn events_that_are_no_longer_kept_are_gone() {
    let node = Node::start_with(RestConfig::default(), |config| {
        *config = Config { event_ring_max: 4, ..config.clone() };
    })
    .await;
    let begin = node.post("/v1/znodes/a", "").await.expect(201).zxid();
    for _ in 0..8 {
        node.put("/v1/znodes/a", "x").await.expect(200);
    }
    let gone = node.get(&format!("/v1/znodes/a?watch=data&since={begin}")).await.expect_problem(410, "events-gone");
    let oldest = number(&gone, "zxid");
    assert!(oldest > begin, "{}", text(&gone, "detail"));
    node.get(&format!("/v1/znodes/a?watch=data&since={oldest}")).await.expect(200);
}

/// A client may have a later zxid than the cluster after a restore from an older backup. Its watch
/// would get no event until the cluster reaches that zxid again.
#[tokio::test]
async fn a_watch_from_beyond_what_is_committed_is_refused() {
    let node = Node::start().await;
    let now = node.post("/v1/znodes/a", "").await.expect(201).zxid();
    for (ahead, kind) in [(1, "data"), (1, "exists"), (1_000, "children"), (u64::MAX - now, "subtree")] {
        let uri = format!("/v1/znodes/a?watch={kind}&since={}&wait=20s", now + ahead);
        let gone = node.get(&uri).await.expect_problem(410, "events-gone");
        assert_eq!(number(&gone, "zxid"), now);
        assert!(text(&gone, "detail").contains("beyond all that the cluster has committed"), "{}", gone.body);
    }
    node.get(&format!("/v1/znodes/a?watch=data&since={now}")).await.expect(200);
}

#[tokio::test]
async fn who_may_not_read_a_znode_is_not_told_of_it() {
    let node = Node::start().await;
    let since = node.get("/v1/znodes").await.expect(200).zxid();
    node.post("/v1/znodes/secret?acl=world:anyone:cwda", "").await.expect(201);
    node.put("/v1/znodes/secret", "x").await.expect(200);
    node.delete("/v1/znodes/secret").await.expect(200);
    let open = node.post("/v1/znodes/open", "").await.expect(201).zxid();
    for watch in ["/v1/znodes?watch=subtree", "/v1/znodes/secret?watch=data"] {
        let told = node.get(&format!("{watch}&since={since}")).await.expect(200);
        let events = told.body["events"].as_array().unwrap();
        assert!(events.iter().all(|event| event["path"] != "/secret"), "{events:?}");
        assert!(told.body["upto"].as_u64().unwrap() >= open, "it goes on behind what it is not told");
    }
}
