//! `/zookeeper` and the znodes below it: the znode with the members, and quotas.

use jute::{Acl, AuthRequest, ReconfigRequest, Request, SetAclRequest, op};
use replica::Order;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use wire::WireConfig;
use znode::{State, ZPath};

use crate::client::{Client, create, set};
use crate::node::{Node, PATIENCE};

async fn text(client: &mut Client, path: &str) -> String {
    String::from_utf8(client.get(path, false).await.unwrap().data.into_bytes()).unwrap()
}

fn request_acl(perms: i32, scheme: &str) -> Vec<Acl> {
    vec![Acl { perms, scheme: scheme.into(), id: String::new() }]
}

async fn create_with(client: &mut Client, path: &str, data: &str) -> Result<Vec<u8>, i32> {
    let Request::Create(op, mut request) = create(path, 0) else { panic!("what else?") };
    request.data = data.as_bytes().into();
    client.call(Request::Create(op, request)).await
}

#[tokio::test]
async fn the_configuration_names_the_members_and_where_clients_connect() {
    let mut nodes = Node::start_many(3, WireConfig::default(), |_| {}).await;
    let mut client = nodes[0].client().await;
    let peers: Vec<String> = nodes[0].replica.status().members.iter().map(|member| member.peer_addr.clone()).collect();
    let line = |at: usize| {
        let port: u16 = peers[at].rsplit(':').next().unwrap().parse().unwrap();
        // Clients of ZooKeeper 3.9 refuse a line with two equal ports.
        format!("server.{}={}:{}:participant", at + 1, peers[at], port + 1)
    };
    let lines = [line(0), line(1), line(2)].join("\n");
    assert_eq!(text(&mut client, "/zookeeper/config").await, format!("{lines}\nversion=1"));

    // A server that starts writes its address into the configuration, which fires the watch. The
    // node's first server has another address, and would write that one again.
    nodes[1].close_door().await;
    client.get("/zookeeper/config", true).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = WireConfig { addr: "node2.example:2181".into(), ..WireConfig::default() };
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async move { _ = stopped.await };
    let door = tokio::spawn(wire::serve(listener, nodes[1].replica.clone(), config, shutdown));
    let event = timeout(PATIENCE, client.event()).await.expect("the watch is told");
    assert_eq!(event, (3, "/zookeeper/config".into()));
    let lines = [line(0), line(1) + ";node2.example:2181", line(2)].join("\n");
    assert_eq!(text(&mut client, "/zookeeper/config").await, format!("{lines}\nversion=2"));
    drop(stop);
    door.await.unwrap().unwrap();

    // Another node does not listen for ZooKeeper clients.
    client.get("/zookeeper/config", true).await.unwrap();
    let config = ZPath::parse("/zookeeper/config").unwrap();
    let is_second = |state: &State| state.node(&config).is_some_and(|node| node.data().ends_with(b"version=2"));
    nodes[1].wait_until(is_second).await;
    let replica = nodes[1].replica.clone();
    let announces = tokio::spawn(async move { wire::announce_no_door(&replica).await });
    assert_eq!(timeout(PATIENCE, client.event()).await.expect("the watch is told").0, 3);
    assert!(text(&mut client, "/zookeeper/config").await.ends_with(&format!("{}\nversion=3", line(2))));
    announces.abort();

    // A member is removed.
    client.get("/zookeeper/config", true).await.unwrap();
    let removal = Order::Remove { id: 3, force: false };
    nodes[0].replica.order(removal, Instant::now() + PATIENCE).await.unwrap();
    assert_eq!(timeout(PATIENCE, client.event()).await.expect("the watch is told").0, 3);
    let lines = [line(0), line(1)].join("\n");
    assert_eq!(text(&mut client, "/zookeeper/config").await, format!("{lines}\nversion=4"));

    // No client may write the configuration.
    assert_eq!(client.set("/zookeeper/config", "x").await, Err(-102));
    let reconfig = ReconfigRequest { leaving: Some("3".into()), config_id: -1, ..ReconfigRequest::default() };
    assert_eq!(client.call(Request::Reconfig(reconfig)).await, Err(-123));
}

/// Requests that zkCli sends for its commands setquota, listquota and delquota.
#[tokio::test]
async fn quotas_are_set_listed_and_deleted_as_zkcli_does() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for path in ["/a", "/a/b"] {
        create_with(&mut client, path, "").await.unwrap();
    }
    assert_eq!(client.exists("/zookeeper/quota/a", false).await, Err(-101));
    client.create("/zookeeper/quota/a", 0).await.unwrap();
    let (limits, stats) = ("/zookeeper/quota/a/zookeeper_limits", "/zookeeper/quota/a/zookeeper_stats");
    create_with(&mut client, limits, "count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=3").await.unwrap();
    create_with(&mut client, stats, "count=0,bytes=0").await.unwrap();
    assert_eq!(text(&mut client, stats).await, "count=2,bytes=0");

    client.set("/a/b", "12345").await.unwrap();
    client.create("/a/e", 1).await.unwrap();
    assert_eq!(text(&mut client, stats).await, "count=3,bytes=6");
    assert_eq!(client.create("/a/c", 0).await, Err(-125));
    assert_eq!(client.set("/a", "12345").await.map(|stat| stat.version), Err(-125));
    let Request::Create(create_op, request) = create("/a/c", 0) else { panic!("what else?") };
    assert_eq!(create_op, op::CREATE);
    let multi = Request::Multi(vec![jute::MultiOp::Create(create_op, request)]);
    let results = jute::read_multi_results(&mut jute::Input::new(&client.call(multi).await.unwrap())).unwrap();
    assert_eq!(results, [jute::MultiResult::Error(-125)]);

    client.call(set(limits, "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=4")).await.unwrap();
    client.create("/a/c", 0).await.unwrap();
    client.set("/a", "123456").await.unwrap();
    // The session's ephemeral znode is deleted with the session, which frees its part of the quota.
    client.close().await;
    let mut client = node.client().await;
    assert_eq!(text(&mut client, stats).await, "count=3,bytes=12");
    for path in [limits, stats, "/zookeeper/quota/a"] {
        client.delete(path).await.unwrap();
    }
    client.create("/a/d", 0).await.unwrap();
    client.create("/a/f", 0).await.unwrap();
    // The ACL of the subtree decides who may set its limits; the znode with the limits has no ACL
    // of its own.
    client
        .call(Request::Auth(AuthRequest { kind: 0, scheme: "digest".into(), auth: b"a:b".as_slice().into() }))
        .await
        .unwrap();
    client.create("/zookeeper/quota/a", 0).await.unwrap();
    let Request::Create(op, mut request) = create(limits, 0) else { panic!("what else?") };
    request.data = b"count=5,bytes=-1".as_slice().into();
    request.acl = request_acl(31, "auth");
    client.call(Request::Create(op, request)).await.unwrap();
    assert_eq!(node.client().await.set(limits, "count=4").await.map(|stat| stat.version), Ok(1));
    let set_acl = SetAclRequest { path: "/a".into(), acl: request_acl(31, "auth"), version: -1 };
    client.call(Request::SetAcl(set_acl)).await.unwrap();
    assert_eq!(node.client().await.set(limits, "count=1").await.map(|stat| stat.version), Err(-102));
}
