//! Watches of each kind: the changes that fire them, and the clients that get the events.

use jute::{
    AddWatchRequest, AuthRequest, PathVersion, PathWatch, PathWatcher, Request, SetAclRequest, SetWatches, event,
    watcher,
};

use crate::client::{Client, create, open_acl, set};
use crate::node::Node;

async fn add(client: &mut Client, path: &str, mode: i32) -> Result<Vec<u8>, i32> {
    client.call(Request::AddWatch(AddWatchRequest { path: path.into(), mode })).await
}

/// Returns the events since the last call, in order. The answer to a ping marks their end.
async fn heard(client: &mut Client) -> Vec<(i32, String)> {
    client.send(&Request::Ping).await;
    client.answer().await;
    client.events.drain(..).collect()
}

fn events(expected: &[(i32, &str)]) -> Vec<(i32, String)> {
    expected.iter().map(|(kind, path)| (*kind, (*path).to_owned())).collect()
}

#[tokio::test]
async fn one_shot_watches_fire_once_for_what_they_are_about() {
    let node = Node::start().await;
    let mut client = node.client().await;
    // The znode does not exist: `exists` sets a watch for its creation, the other reads set none.
    assert_eq!(client.exists("/a", true).await, Err(-101));
    assert_eq!(client.get("/a", true).await, Err(-101));
    assert_eq!(client.children("/a", true).await, Err(-101));
    client.create("/a", 0).await.unwrap();
    assert_eq!(heard(&mut client).await, events(&[(event::NODE_CREATED, "/a")]));
    client.set("/a", "1").await.unwrap();
    assert_eq!(heard(&mut client).await, []);
    // Two watches of the same kind at the same path are one watch.
    client.get("/a", true).await.unwrap();
    client.exists("/a", true).await.unwrap();
    client.set("/a", "2").await.unwrap();
    client.set("/a", "3").await.unwrap();
    assert_eq!(heard(&mut client).await, events(&[(event::NODE_DATA_CHANGED, "/a")]));
    client.children("/a", true).await.unwrap();
    client.set("/a", "4").await.unwrap();
    client.create("/a/b", 0).await.unwrap();
    client.create("/a/c", 0).await.unwrap();
    assert_eq!(heard(&mut client).await, events(&[(event::NODE_CHILDREN_CHANGED, "/a")]));
    // Watches of both kinds at one deleted znode give one event.
    client.children("/a/b", true).await.unwrap();
    client.get("/a/b", true).await.unwrap();
    client.call(Request::GetChildren2(PathWatch { path: "/a".into(), watch: true })).await.unwrap();
    client.delete("/a/b").await.unwrap();
    let gone = [(event::NODE_DELETED, "/a/b"), (event::NODE_CHILDREN_CHANGED, "/a")];
    assert_eq!(heard(&mut client).await, events(&gone));
    // A refused change fires no watch, and neither does a change of the ACL.
    client.get("/a", true).await.unwrap();
    assert_eq!(client.delete("/a").await, Err(-111));
    let acl = SetAclRequest { path: "/a".into(), acl: open_acl(), version: -1 };
    client.call(Request::SetAcl(acl)).await.unwrap();
    assert_eq!(heard(&mut client).await, []);
}

#[tokio::test]
async fn persistent_watches_stay_and_recursive_ones_see_below() {
    let node = Node::start().await;
    let (mut both, mut plain) = (node.client().await, node.client().await);
    for mode in [watcher::MODE_PERSISTENT, watcher::MODE_PERSISTENT_RECURSIVE] {
        assert_eq!(add(&mut both, "/a", mode).await, Ok(vec![0; 4]));
    }
    add(&mut plain, "/a", watcher::MODE_PERSISTENT).await.unwrap();
    // A one-shot watch leaves a persistent one at the same path (ZOOKEEPER-4466).
    assert_eq!(plain.exists("/a", true).await, Err(-101));
    assert_eq!(add(&mut both, "/a", 2).await, Err(-5));
    assert_eq!(add(&mut both, "a", 0).await, Err(-8));
    let mut other = node.client().await;
    for path in ["/a", "/a/b", "/a/b/c", "/ab"] {
        other.create(path, 0).await.unwrap();
    }
    other.set("/a", "1").await.unwrap();
    other.set("/a", "2").await.unwrap();
    for path in ["/a/b/c", "/a/b", "/a"] {
        other.delete(path).await.unwrap();
    }
    let zxid = other.last_zxid;
    node.wait_until(|state| state.last_zxid().0 as i64 >= zxid).await;
    let of_the_znode = [
        (event::NODE_CREATED, "/a"),
        (event::NODE_CHILDREN_CHANGED, "/a"),
        (event::NODE_DATA_CHANGED, "/a"),
        (event::NODE_DATA_CHANGED, "/a"),
        (event::NODE_CHILDREN_CHANGED, "/a"),
        (event::NODE_DELETED, "/a"),
    ];
    assert_eq!(heard(&mut plain).await, events(&of_the_znode));
    let of_both = [
        (event::NODE_CREATED, "/a"),
        (event::NODE_CREATED, "/a/b"),
        (event::NODE_CHILDREN_CHANGED, "/a"),
        (event::NODE_CREATED, "/a/b/c"),
        (event::NODE_DATA_CHANGED, "/a"),
        (event::NODE_DATA_CHANGED, "/a"),
        (event::NODE_DELETED, "/a/b/c"),
        (event::NODE_DELETED, "/a/b"),
        (event::NODE_CHILDREN_CHANGED, "/a"),
        (event::NODE_DELETED, "/a"),
    ];
    assert_eq!(heard(&mut both).await, events(&of_both));
}

#[tokio::test]
async fn watches_are_compared_and_taken_out_by_kind() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("/a", 0).await.unwrap();
    client.get("/a", true).await.unwrap();
    client.children("/a", true).await.unwrap();
    add(&mut client, "/a", watcher::MODE_PERSISTENT_RECURSIVE).await.unwrap();
    let which = |kind| PathWatcher { path: "/a".into(), kind };
    for (kind, there) in
        [(1, Ok(vec![])), (2, Ok(vec![])), (3, Ok(vec![])), (4, Err(-121)), (5, Ok(vec![])), (6, Err(-5))]
    {
        assert_eq!(client.call(Request::CheckWatches(which(kind))).await, there, "kind {kind}");
    }
    assert_eq!(client.call(Request::RemoveWatches(which(watcher::DATA))).await, Ok(vec![]));
    assert_eq!(client.call(Request::RemoveWatches(which(watcher::DATA))).await, Err(-121));
    assert_eq!(client.call(Request::RemoveWatches(which(watcher::PERSISTENT_RECURSIVE))).await, Ok(vec![]));
    client.set("/a", "1").await.unwrap();
    client.create("/a/b", 0).await.unwrap();
    assert_eq!(heard(&mut client).await, events(&[(event::NODE_CHILDREN_CHANGED, "/a")]));
    client.get("/a", true).await.unwrap();
    assert_eq!(client.call(Request::RemoveWatches(which(watcher::ANY))).await, Ok(vec![]));
    assert_eq!(client.call(Request::CheckWatches(which(watcher::ANY))).await, Err(-121));
    client.set("/a", "2").await.unwrap();
    client.nothing_more().await;
}

#[tokio::test]
async fn watches_are_the_connections_and_go_with_it() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("/a", 0).await.unwrap();
    client.get("/a", true).await.unwrap();
    let mut again = Client::resume(node.addr, &client).await;
    again.set("/a", "x").await.unwrap();
    again.nothing_more().await;
}

#[tokio::test]
async fn an_operation_of_a_multi_fires_like_one_alone() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("/a", 0).await.unwrap();
    client.get("/a", true).await.unwrap();
    client.exists("/b", true).await.unwrap_err();
    let (Request::SetData(set), Request::Create(op, create)) =
        (crate::client::set("/a", "y"), crate::client::create("/b", 0))
    else {
        panic!("what else?")
    };
    let check = jute::MultiOp::Check(PathVersion { path: "/a".into(), version: 9 });
    let ops = vec![jute::MultiOp::Create(op, create), jute::MultiOp::SetData(set)];
    client.call(Request::Multi([ops.clone(), vec![check]].concat())).await.unwrap();
    assert_eq!(heard(&mut client).await, []);
    client.call(Request::Multi(ops)).await.unwrap();
    let fired = [(event::NODE_CREATED, "/b"), (event::NODE_DATA_CHANGED, "/a")];
    assert_eq!(heard(&mut client).await, events(&fired));
}

#[tokio::test]
async fn who_may_not_read_a_znode_is_not_told_of_it() {
    let node = Node::start().await;
    let (mut bob, mut eve) = (node.client().await, node.client().await);
    let auth = AuthRequest { kind: 0, scheme: "digest".into(), auth: b"bob:secret".as_slice().into() };
    bob.call(Request::Auth(auth)).await.unwrap();
    for client in [&mut bob, &mut eve] {
        add(client, "/", watcher::MODE_PERSISTENT_RECURSIVE).await.unwrap();
        client.exists("/secret", true).await.unwrap_err();
    }
    let Request::Create(op, mut create) = crate::client::create("/secret", 0) else { panic!("what else?") };
    create.acl = vec![jute::Acl { perms: 31, scheme: "auth".into(), id: String::new() }];
    bob.call(Request::Create(op, create)).await.unwrap();
    bob.set("/secret", "x").await.unwrap();
    bob.delete("/secret").await.unwrap();
    bob.create("/open", 0).await.unwrap();
    let all = [
        (event::NODE_CREATED, "/secret"),
        (event::NODE_DATA_CHANGED, "/secret"),
        (event::NODE_DELETED, "/secret"),
        (event::NODE_CREATED, "/open"),
    ];
    assert_eq!(heard(&mut bob).await, events(&all));
    assert_eq!(heard(&mut eve).await, events(&all[3..]));
}

#[tokio::test]
async fn an_event_tells_the_zxid_of_its_change_and_one_that_was_missed_tells_none() {
    let node = Node::start().await;
    let (mut client, mut other) = (node.client().await, node.client().await);
    let created: jute::PathStat = other.ask(create2("/a")).await.unwrap();
    let add = jute::AddWatchRequest { path: "/".into(), mode: watcher::MODE_PERSISTENT_RECURSIVE };
    client.call(Request::AddWatch(add)).await.unwrap();
    // The two changes are applied together, and each has its own event.
    other.send(&set("/a", "1")).await;
    other.send(&set("/a", "2")).await;
    let mut zxids = Vec::new();
    for _ in 0..2 {
        assert_eq!(other.answer().await.error, 0);
        let event = client.packet().await.unwrap();
        assert_eq!(event.xid, jute::xid::EVENT);
        zxids.push(event.zxid);
    }
    assert_eq!(zxids[1], other.get("/a", false).await.unwrap().stat.mzxid);
    assert!(created.stat.czxid < zxids[0] && zxids[0] < zxids[1], "{zxids:?} after {}", created.stat.czxid);
    let missed = SetWatches { relative_zxid: created.stat.czxid, data: vec!["/a".into()], ..SetWatches::default() };
    client.send(&Request::SetWatches(missed)).await;
    assert_eq!(client.packet().await.unwrap().zxid, -1);
}

fn create2(path: &str) -> Request {
    let Request::Create(_, one) = create(path, 0) else { panic!("what else?") };
    Request::Create(jute::op::CREATE2, one)
}

#[tokio::test]
async fn who_may_not_read_a_znode_any_more_is_not_told_what_it_missed() {
    let node = Node::start().await;
    let (mut bob, mut eve) = (node.client().await, node.client().await);
    let auth = AuthRequest { kind: 0, scheme: "digest".into(), auth: b"bob:secret".as_slice().into() };
    bob.call(Request::Auth(auth)).await.unwrap();
    bob.create("/a", 0).await.unwrap();
    bob.create("/open", 0).await.unwrap();
    let relative_zxid = bob.last_zxid;
    let acl = vec![jute::Acl { perms: 31, scheme: "auth".into(), id: String::new() }];
    bob.call(Request::SetAcl(SetAclRequest { path: "/a".into(), acl, version: -1 })).await.unwrap();
    bob.set("/a", "y").await.unwrap();
    bob.set("/open", "y").await.unwrap();
    let watches = SetWatches { relative_zxid, data: vec!["/a".into(), "/open".into()], ..SetWatches::default() };
    for (client, paths) in [(&mut eve, &["/open"][..]), (&mut bob, &["/a", "/open"][..])] {
        client.call(Request::SetWatches(watches.clone())).await.unwrap();
        let told: Vec<String> = client.events.drain(..).map(|(_, path)| path).collect();
        assert_eq!(told, paths);
    }
}

#[tokio::test]
async fn nobody_watches_a_path_that_no_znode_can_have() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let long = format!("/{}", "l".repeat(2_000));
    // The errors are the same as without a watch.
    assert_eq!(client.exists(&long, true).await, Err(-101));
    assert_eq!(add(&mut client, &long, watcher::MODE_PERSISTENT).await, Err(-8));
    let again = SetWatches { exist: vec![long.clone()], ..SetWatches::default() };
    client.call(Request::SetWatches(again)).await.unwrap();
    let any = PathWatcher { path: long.clone(), kind: watcher::ANY };
    assert_eq!(client.call(Request::CheckWatches(any)).await, Err(-121));
    assert_eq!(client.exists(&long, false).await, Err(-101));
}
