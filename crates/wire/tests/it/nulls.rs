//! Requests with null in place of a text, data or a list; kazoo writes every empty text as null.
//! Most answers equal ZooKeeper 3.8's. The deliberate differences have a list of their own here and
//! in docs/zookeeper.md (Null). `OTHER_NULLS` of `tests/clients/compare.py` lists them with
//! ZooKeeper's answers, and compares each with a real ZooKeeper.

use jute::{AuthRequest, Buffer, Record, Request, framed, op, xid};
use tokio::io::AsyncWriteExt;

use crate::client::{Client, create, open_acl};
use crate::node::Node;

const NULL: &[u8] = &[255, 255, 255, 255];

fn text(text: &str) -> Vec<u8> {
    text.to_owned().to_bytes()
}

fn int(value: i32) -> Vec<u8> {
    value.to_bytes()
}

/// Encodes an ACL of one entry with all permissions. `None` is encoded as null.
fn acl(scheme: Option<&str>, id: Option<&str>) -> Vec<u8> {
    let field = |field: Option<&str>| field.map_or(NULL.to_vec(), text);
    [int(1), int(31), field(scheme), field(id)].concat()
}

fn open() -> Vec<u8> {
    open_acl().to_bytes()
}

/// Encodes a multi of one operation.
fn multi(op: i32, body: &[u8]) -> Vec<u8> {
    [&*int(op), &[0], NULL, body, NULL, &[1], NULL].concat()
}

/// Sends a request. Returns the error code of the answer: that of the header, or of a multi's first
/// result.
async fn code(client: &mut Client, op: i32, body: &[u8]) -> i32 {
    client.send_raw(77, op, body).await;
    let answer = client.answer().await;
    assert_eq!(answer.xid, 77);
    match jute::MultiHeader::from_bytes(&answer.body) {
        Ok(header) if op == op::MULTI && answer.error == 0 && header.op == -1 => header.error,
        _ => answer.error,
    }
}

async fn proven(node: &Node) -> Client {
    let mut client = node.client().await;
    let auth = AuthRequest { kind: 0, scheme: "digest".into(), auth: Buffer::from(b"bob:x".as_slice()) };
    client.call(Request::Auth(auth)).await.unwrap();
    client
}

#[tokio::test]
async fn null_in_an_acl_is_what_zookeeper_takes_it_for() {
    let node = Node::start().await;
    let mut client = proven(&node).await;
    client.create("/n", 0).await.unwrap();
    let data = [text("/n"), acl(Some("auth"), None), int(-1)].concat();
    assert_eq!(code(&mut client, op::SET_ACL, &data).await, 0);
    let cases = [
        (Some("auth"), None, 0),
        (Some("auth"), Some(""), 0),
        (Some("world"), None, -5),
        (Some("digest"), None, -5),
        (Some("ip"), None, -5),
        (Some("x509"), None, -114),
        (Some("super"), None, -114),
        (Some("nope"), None, -114),
        (None, Some("anyone"), -114),
        (None, None, -114),
        (Some("world"), Some(""), -114),
    ];
    for (number, (scheme, id, expected)) in cases.into_iter().enumerate() {
        let create =
            |name: &str, flags| [text(&format!("/{name}{number}")), text("x"), acl(scheme, id), int(flags)].concat();
        let set = [text("/n"), acl(scheme, id), int(-1)].concat();
        let ttl = [create("t", 5), 1_000i64.to_bytes()].concat();
        let asked = [
            (op::CREATE, create("c", 0)),
            (op::CREATE2, create("d", 0)),
            (op::CREATE_CONTAINER, create("k", 4)),
            (op::CREATE_TTL, ttl),
            (op::SET_ACL, set),
            (op::MULTI, multi(op::CREATE, &create("m", 0))),
        ];
        for (op, body) in asked {
            assert_eq!(code(&mut client, op, &body).await, expected, "op {op}, {scheme:?} {id:?}");
        }
    }
    // kazoo's CREATOR_ALL_ACL lets only the creator use the znode.
    let mut stranger = node.client().await;
    assert_eq!(stranger.get("/c0", false).await, Err(-102));
    assert!(client.get("/c0", false).await.is_ok());
}

#[tokio::test]
async fn null_in_most_other_fields_is_what_zookeeper_takes_it_for() {
    let node = Node::start().await;
    let mut client = proven(&node).await;
    client.create("/n", 0).await.unwrap();
    let create = |path: &[u8], data: &[u8], acl: &[u8]| [path, data, acl, &int(0)].concat();
    let (d, x) = (text("/d"), text("x"));
    let watch = |flag: u8| [NULL, &[flag]].concat();
    let with = |more: &[u8]| [NULL, more].concat();
    let set = |path: &[u8], data: &[u8]| [path, data, &int(-1)].concat();
    let any = int(-1);
    let cases = [
        ("create.path", op::CREATE, create(NULL, &x, &open()), -5),
        ("create.data", op::CREATE, create(&d, NULL, &open()), 0),
        ("create.acl", op::CREATE, create(&text("/e"), &x, NULL), -114),
        ("delete.path", op::DELETE, with(&any), -5),
        ("exists.path", op::EXISTS, watch(0), -5),
        ("exists.path with a watch", op::EXISTS, watch(1), -5),
        ("getData.path", op::GET_DATA, watch(0), -5),
        ("setData.path", op::SET_DATA, set(NULL, &x), -8),
        ("setData.data", op::SET_DATA, set(&text("/n"), NULL), 0),
        ("getACL.path", op::GET_ACL, NULL.to_vec(), -5),
        ("setACL.path", op::SET_ACL, [NULL, &open(), &any].concat(), -8),
        ("setACL.acl", op::SET_ACL, [&*text("/n"), NULL, &any].concat(), -114),
        ("getChildren.path", op::GET_CHILDREN, watch(0), -5),
        ("getChildren2.path", op::GET_CHILDREN2, watch(1), -5),
        ("sync.path", op::SYNC, NULL.to_vec(), 0),
        ("multi: create.data", op::MULTI, multi(op::CREATE, &create(&text("/m"), NULL, &open())), 0),
        ("multi: create.acl", op::MULTI, multi(op::CREATE, &create(&text("/o"), &x, NULL)), -114),
        ("multi: setData.data", op::MULTI, multi(op::SET_DATA, &set(&text("/n"), NULL)), 0),
        ("multiRead: getData.path", op::MULTI_READ, multi(op::GET_DATA, &watch(0)), -5),
        ("multiRead: getChildren.path", op::MULTI_READ, multi(op::GET_CHILDREN, &watch(0)), -5),
        ("reconfig, all", op::RECONFIG, [NULL, NULL, NULL, &(-1i64).to_bytes()].concat(), -123),
        ("checkWatches.path", op::CHECK_WATCHES, with(&int(3)), -5),
        ("removeWatches.path", op::REMOVE_WATCHES, with(&int(3)), -121),
        ("getEphemerals.prefix", op::GET_EPHEMERALS, NULL.to_vec(), 0),
        ("getAllChildrenNumber.path", op::GET_ALL_CHILDREN_NUMBER, NULL.to_vec(), -5),
    ];
    for (field, op, body, expected) in cases {
        assert_eq!(code(&mut client, op, &body).await, expected, "{field}");
    }
}

/// Requests in which null is answered differently from ZooKeeper 3.8 on purpose.
#[tokio::test]
async fn null_is_answered_otherwise_than_by_zookeeper_where_the_page_says_so() {
    let node = Node::start().await;
    let mut client = proven(&node).await;
    let with = |more: &[u8]| [NULL, more].concat();
    let create = [NULL, &text("x"), &open(), &int(0)].concat();
    let set = [NULL, &text("x"), &int(-1)].concat();
    let any = int(-1);
    let cases = [
        // ZooKeeper: -8.
        ("check.path", op::CHECK, with(&any), -5),
        // ZooKeeper never answers these requests, and then opens no new session at that leader.
        ("multi: create.path", op::MULTI, multi(op::CREATE, &create), -5),
        ("multi: delete.path", op::MULTI, multi(op::DELETE, &with(&any)), -5),
        ("multi: setData.path", op::MULTI, multi(op::SET_DATA, &set), -5),
        ("multi: check.path", op::MULTI, multi(op::CHECK, &with(&any)), -5),
        // ZooKeeper sets a watch even on a path that no znode can have; zlock refuses such a path.
        ("addWatch.path", op::ADD_WATCH, with(&int(0)), -8),
        ("addWatch.path recursive", op::ADD_WATCH, with(&int(1)), -8),
    ];
    for (field, op, body, expected) in cases {
        assert_eq!(code(&mut client, op, &body).await, expected, "{field}");
    }
    // ZooKeeper answers -5 to these; for zlock, a null list is an empty list.
    for (op, lists) in [(op::SET_WATCHES, 3), (op::SET_WATCHES2, 5)] {
        client.send_raw(xid::SET_WATCHES, op, &[1i64.to_bytes(), NULL.repeat(lists)].concat()).await;
        assert_eq!(client.answer().await.error, 0, "lists of op {op}");
    }
}

#[tokio::test]
async fn null_proves_nothing_and_is_no_password() {
    let node = Node::start().await;
    for (scheme, proof, expected) in
        [(NULL.to_vec(), text("x:y"), -115), (text("digest"), NULL.to_vec(), -115), (text("ip"), NULL.to_vec(), 0)]
    {
        let mut client = node.client().await;
        client.send_raw(xid::AUTH, op::AUTH, &[int(0), scheme, proof].concat()).await;
        assert_eq!(client.answer().await.error, expected);
    }
    // A client that opens a new session has no password yet.
    let asked = jute::ConnectRequest { timeout_ms: 9_000, password: Buffer(None), ..jute::ConnectRequest::default() };
    let mut stream = tokio::net::TcpStream::connect(node.addr).await.unwrap();
    stream.write_all(&framed(|out| asked.write(out))).await.unwrap();
    let mut client = Client::of(crate::client::greet(node.addr, &asked).await);
    client.call(create("/a", 0)).await.unwrap();
}
