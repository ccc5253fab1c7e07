//! Each operation of the protocol, with its answers and its refusals.

use jute::{
    Acl, AclStat, AuthRequest, Buffer, ConnectRequest, CreateRequest, CreateTtlRequest, Input, MultiOp, MultiResult,
    Names, NamesStat, Number, PathOnly, PathStat, PathVersion, PathWatch, ReconfigRequest, Record, Request, SaslToken,
    SetAclRequest, SetDataRequest, Stat, WhoAmIResponse, create_flags as flags, op, read_multi_results,
};
use tokio::time::Instant;

use crate::client::{Client, create, greet, open_acl, set};
use crate::node::Node;

fn read(path: &str) -> PathWatch {
    PathWatch { path: path.into(), watch: false }
}

fn only(path: &str) -> PathOnly {
    PathOnly { path: path.into() }
}

fn at(path: &str, version: i32) -> PathVersion {
    PathVersion { path: path.into(), version }
}

#[tokio::test]
async fn znodes_are_created_in_every_mode() {
    let node = Node::start().await;
    let mut client = node.client().await;
    assert_eq!(client.create("/p", flags::PERSISTENT).await.unwrap(), "/p");
    assert_eq!(client.create("/p/s-", flags::PERSISTENT_SEQUENTIAL).await.unwrap(), "/p/s-0000000000");
    assert_eq!(client.create("/p/", flags::EPHEMERAL_SEQUENTIAL).await.unwrap(), "/p/0000000001");
    assert_eq!(client.create("/p/e", flags::EPHEMERAL).await.unwrap(), "/p/e");
    let container = CreateRequest { path: "/c".into(), data: Buffer(None), acl: open_acl(), flags: flags::CONTAINER };
    let made: PathStat = client.ask(Request::Create(op::CREATE_CONTAINER, container)).await.unwrap();
    assert_eq!((made.path.as_str(), made.stat.ephemeral_owner), ("/c", 0));
    let ttl = |flags, ttl_ms| {
        let (path, data, acl) = ("/p/t".into(), Buffer(None), open_acl());
        Request::CreateTtl(CreateTtlRequest { path, data, acl, flags, ttl_ms })
    };
    let made: PathStat = client.ask(ttl(flags::PERSISTENT_TTL, 60_000)).await.unwrap();
    assert_eq!((made.path.as_str(), made.stat.ephemeral_owner), ("/p/t", 0));
    let made: PathStat = client.ask(ttl(flags::PERSISTENT_SEQUENTIAL_TTL, 60_000)).await.unwrap();
    assert_eq!(made.path, "/p/t0000000004");
    let Request::Create(_, again) = create("/p/two", flags::EPHEMERAL) else { panic!("what else?") };
    let made: PathStat = client.ask(Request::Create(op::CREATE2, again)).await.unwrap();
    assert_eq!((made.path.as_str(), made.stat.ephemeral_owner), ("/p/two", client.session));
    // The create flags 5 and 6 need a TTL, and a TTL needs these flags.
    for wrong in [5, 6, 7, -1] {
        assert_eq!(client.create("/w", wrong).await, Err(-8), "flags {wrong}");
    }
    for (flags, ttl_ms) in [(0, 9), (1, 9), (5, 0), (5, -1), (6, 1 << 40)] {
        assert_eq!(client.call(ttl(flags, ttl_ms)).await, Err(-8), "flags {flags} with {ttl_ms} ms");
    }
}

#[tokio::test]
async fn a_create_is_refused_with_zookeepers_numbers() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("/e", flags::EPHEMERAL).await.unwrap();
    for (path, error) in [
        ("/e", -110),
        ("/", -110),
        ("/none/a", -101),
        ("/e/a", -108),
        ("a", -8),
        ("", -8),
        ("/a/", -101),
        ("/e/..", -8),
        ("//a", -8),
        ("/a\u{0}", -8),
        ("/😀", -8),
    ] {
        assert_eq!(client.create(path, 0).await, Err(error), "{path:?}");
    }
    let with = |acl: Vec<Acl>| {
        Request::Create(op::CREATE, CreateRequest { path: "/acl".into(), data: Buffer(None), acl, flags: 0 })
    };
    let one = |scheme: &str, id: &str| vec![Acl { perms: 31, scheme: scheme.into(), id: id.into() }];
    for acl in [vec![], one("world", "bob"), one("digest", "bob"), one("auth", ""), one("ip", "x"), one("x", "y")] {
        assert_eq!(client.call(with(acl.clone())).await, Err(-114), "{acl:?}");
    }
}

#[tokio::test]
async fn data_is_read_written_and_deleted_by_version() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("/a", 0).await.unwrap();
    let set_at = |version| Request::SetData(SetDataRequest { path: "/a".into(), data: Buffer(None), version });
    assert_eq!(client.call(set_at(1)).await, Err(-103));
    let stat: Stat = client.ask(set_at(0)).await.unwrap();
    assert_eq!((stat.version, stat.data_length), (1, 0));
    assert!(stat.mzxid > stat.czxid && stat.mtime_ms >= stat.ctime_ms && stat.pzxid == stat.czxid);
    // Null data is stored as empty data.
    assert_eq!(client.get("/a", false).await.unwrap().data, Buffer(Some(Vec::new())));
    client.create("/a/b", 0).await.unwrap();
    assert_eq!(client.call(Request::Delete(at("/a", 1))).await, Err(-111));
    assert_eq!(client.call(Request::Delete(at("/a/b", 1))).await, Err(-103));
    assert_eq!(client.call(Request::Delete(at("/a/b", 0))).await, Ok(vec![]));
    assert_eq!(client.delete("/a/b").await, Err(-101));
    let stat = client.exists("/a", false).await.unwrap();
    assert_eq!((stat.cversion, stat.num_children), (2, 0));
    for own in ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"] {
        assert_eq!(client.delete(own).await, Err(-8), "{own}");
    }
    assert_eq!(client.set("/none", "").await, Err(-101));
    assert_eq!(client.set("none", "").await, Err(-8));
    for path in ["/none", "none", "/a/", "/a\u{0}"] {
        assert_eq!(client.exists(path, false).await, Err(-101), "{path:?}");
    }
    assert_eq!(client.call(Request::Check(at("/a", 1))).await, Err(-6), "a check stands in a multi");
}

#[tokio::test]
async fn children_are_listed_and_counted() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for path in ["/a", "/a/b", "/a/c", "/a/b/d", "/a-b", "/a0"] {
        client.create(path, if path == "/a/b/d" { 1 } else { 0 }).await.unwrap();
    }
    assert_eq!(client.children("/a", false).await.unwrap(), ["b", "c"]);
    let both: NamesStat = client.ask(Request::GetChildren2(read("/a"))).await.unwrap();
    assert_eq!((both.names.len(), both.stat.num_children), (2, 2));
    for (path, count) in [("/a", 3), ("/a/b", 1), ("/a/c", 0), ("/", 9)] {
        let counted: Number = client.ask(Request::GetAllChildrenNumber(only(path))).await.unwrap();
        assert_eq!(counted.number, count, "{path}");
    }
    assert_eq!(client.call(Request::GetAllChildrenNumber(only("/none"))).await, Err(-101));
    client.create("/e", 1).await.unwrap();
    for (prefix, paths) in [("/", vec!["/a/b/d", "/e"]), ("/a", vec!["/a/b/d"]), ("/x", vec![])] {
        let mine: Names = client.ask(Request::GetEphemerals(only(prefix))).await.unwrap();
        assert_eq!(mine.names, paths, "{prefix}");
    }
    let mut other = node.client().await;
    let none: Names = other.ask(Request::GetEphemerals(only("/"))).await.unwrap();
    assert_eq!(none.names, [""; 0]);
}

fn results(body: &[u8]) -> Vec<MultiResult> {
    read_multi_results(&mut Input::new(body)).unwrap()
}

#[tokio::test]
async fn a_multi_does_all_or_nothing_and_answers_for_each() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let make = |op, path: &str, flags| {
        let Request::Create(_, create) = create(path, flags) else { panic!("what else?") };
        MultiOp::Create(op, create)
    };
    let Request::SetData(set) = set("/a", "y") else { panic!("what else?") };
    let ttl = CreateTtlRequest {
        path: "/t".into(),
        data: Buffer(None),
        acl: open_acl(),
        flags: flags::PERSISTENT_TTL,
        ttl_ms: 60_000,
    };
    let ops = vec![
        make(op::CREATE, "/a", 0),
        make(op::CREATE2, "/a/s-", 2),
        make(op::CREATE_CONTAINER, "/c", 4),
        MultiOp::CreateTtl(ttl),
        MultiOp::SetData(set),
        MultiOp::Check(at("/a", 1)),
        MultiOp::Delete(at("/a/s-0000000000", -1)),
    ];
    let done = results(&client.call(Request::Multi(ops)).await.unwrap());
    let [one, two, container, ttl, set, check, delete] = &done[..] else { panic!("{done:?}") };
    assert_eq!(*one, MultiResult::Created("/a".into()));
    assert!(matches!(two, MultiResult::CreatedStat(made) if made.path == "/a/s-0000000000"));
    assert!(matches!(container, MultiResult::CreatedStat(made) if made.path == "/c"));
    assert!(matches!(ttl, MultiResult::CreatedStat(made) if made.path == "/t"));
    assert!(matches!(set, MultiResult::Set(stat) if stat.version == 1 && stat.mzxid == stat.czxid));
    assert_eq!((check, delete), (&MultiResult::Checked, &MultiResult::Deleted));

    let errors = |codes: &[i32]| codes.iter().map(|code| MultiResult::Error(*code)).collect::<Vec<_>>();
    let ops = vec![make(op::CREATE, "/b", 0), MultiOp::Delete(at("/none", -1)), MultiOp::Check(at("/a", 9))];
    assert_eq!(results(&client.call(Request::Multi(ops)).await.unwrap()), errors(&[0, -101, -2]));
    assert_eq!(client.exists("/b", false).await, Err(-101));
    let ops = vec![make(op::CREATE, "/b", 0), make(op::CREATE, "/b", 99)];
    assert_eq!(results(&client.call(Request::Multi(ops)).await.unwrap()), errors(&[0, -8]));
    assert_eq!(results(&client.call(Request::Multi(vec![])).await.unwrap()), []);

    let reads =
        vec![MultiOp::GetData(read("/a")), MultiOp::GetData(read("/none")), MultiOp::GetChildren(read("/zookeeper"))];
    let done = results(&client.call(Request::MultiRead(reads)).await.unwrap());
    assert!(matches!(&done[0], MultiResult::Data(data) if data.data == Buffer::from(b"y".as_slice())));
    assert_eq!(done[1..], [MultiResult::Error(-101), MultiResult::Children(vec!["config".into(), "quota".into()])]);
    // A read in a multi and a write in a multiRead are refused.
    client.send_raw(5, op::MULTI, &golden_mix(MultiOp::GetData(read("/a")))).await;
    assert_eq!(client.answer().await.error, -5);
    client.send_raw(6, op::MULTI_READ, &golden_mix(MultiOp::Delete(at("/a", -1)))).await;
    assert_eq!(client.answer().await.error, -5);
}

fn golden_mix(one: MultiOp) -> Vec<u8> {
    let mut body = Vec::new();
    jute::write_multi(&[one], &mut body);
    body
}

async fn prove(client: &mut Client, scheme: &str, auth: &str) -> Result<Vec<u8>, i32> {
    let auth = AuthRequest { kind: 0, scheme: scheme.into(), auth: auth.as_bytes().into() };
    client.call(Request::Auth(auth)).await
}

#[tokio::test]
async fn acls_are_enforced_by_what_a_connection_has_proven() {
    let node = Node::start().await;
    let (mut bob, mut eve) = (node.client().await, node.client().await);
    prove(&mut bob, "digest", "bob:secret").await.unwrap();
    prove(&mut bob, "ip", "").await.unwrap();
    let who: WhoAmIResponse = bob.ask(Request::WhoAmI).await.unwrap();
    let who: Vec<_> = who.clients.iter().map(|one| (one.scheme.as_str(), one.user.as_str())).collect();
    assert_eq!(who, [("ip", "127.0.0.1"), ("digest", "bob")]);
    let acl = vec![Acl { perms: 31, scheme: "auth".into(), id: String::new() }];
    let made = CreateRequest { path: "/bob".into(), data: Buffer(None), acl, flags: 0 };
    bob.call(Request::Create(op::CREATE, made)).await.unwrap();
    bob.create("/bob/a", 0).await.unwrap();
    for request in [
        Request::GetData(read("/bob")),
        Request::GetChildren(read("/bob")),
        Request::GetAcl(only("/bob")),
        Request::GetAllChildrenNumber(only("/bob")),
        set("/bob", "x"),
        create("/bob/b", 0),
        Request::Delete(at("/bob/a", -1)),
        Request::SetAcl(SetAclRequest { path: "/bob".into(), acl: open_acl(), version: -1 }),
    ] {
        assert_eq!(eve.call(request.clone()).await, Err(-102), "{request:?}");
        if !matches!(request, Request::SetAcl(_)) {
            bob.call(request.clone()).await.unwrap_or_else(|error| panic!("{error} for {request:?}"));
        }
    }
    // The existence of a znode is no secret.
    assert!(eve.exists("/bob", false).await.is_ok());
    let failed = eve.call(Request::Multi(vec![MultiOp::Check(at("/bob", -1))])).await.unwrap();
    assert_eq!(results(&failed), [MultiResult::Error(-102)]);
    let shown: AclStat = bob.ask(Request::GetAcl(only("/bob"))).await.unwrap();
    assert!(shown.acl[0].id.starts_with("bob:") && shown.acl[0].scheme == "digest");
    let everyone = [open_acl(), shown.acl.clone()].concat();
    let everyone = everyone.into_iter().zip([1, 31]).map(|(entry, perms)| Acl { perms, ..entry }).collect();
    bob.call(Request::SetAcl(SetAclRequest { path: "/bob".into(), acl: everyone, version: 0 })).await.unwrap();
    let shown: AclStat = eve.ask(Request::GetAcl(only("/bob"))).await.unwrap();
    assert_eq!((shown.acl[1].id.as_str(), shown.stat.aversion), ("bob:x", 1), "no hash for those who may not set it");
    let stale = SetAclRequest { path: "/bob".into(), acl: open_acl(), version: 0 };
    assert_eq!(bob.call(Request::SetAcl(stale)).await, Err(-103));
    // No client may set the configuration.
    assert_eq!(bob.set("/zookeeper/config", "x").await, Err(-102));
    for scheme in ["world", "sasl", "x509"] {
        let mut stranger = node.client().await;
        assert_eq!(prove(&mut stranger, scheme, "x").await, Err(-115), "{scheme}");
        assert_eq!(stranger.packet().await, None);
    }
}

/// As in ZooKeeper (PrepRequestProcessor.fixupACL), unknown permission bits are kept, and getACL
/// shows them.
#[tokio::test]
async fn permissions_without_a_meaning_are_kept_and_grant_nothing() {
    let node = Node::start().await;
    let (mut bob, mut eve) = (node.client().await, node.client().await);
    prove(&mut bob, "digest", "bob:secret").await.unwrap();
    let entry = |perms, scheme: &str, id: &str| Acl { perms, scheme: scheme.into(), id: id.into() };
    let acl = vec![entry(0, "world", "anyone"), entry(0xff, "auth", ""), entry(-1, "digest", "carol:x")];
    let made = CreateRequest { path: "/a".into(), data: Buffer(None), acl: acl.clone(), flags: 0 };
    bob.call(Request::Create(op::CREATE, made)).await.unwrap();
    let perms = |shown: &AclStat| shown.acl.iter().map(|entry| entry.perms).collect::<Vec<_>>();
    assert_eq!(perms(&bob.ask(Request::GetAcl(only("/a"))).await.unwrap()), [0, 0xff, -1]);
    assert_eq!(eve.get("/a", false).await, Err(-102));
    let set = |acl| Request::SetAcl(SetAclRequest { path: "/a".into(), acl, version: -1 });
    assert_eq!(eve.call(set(open_acl())).await, Err(-102));
    bob.call(set([&acl[..], &[entry(0x20, "world", "anyone")]].concat())).await.unwrap();
    assert_eq!(perms(&bob.ask(Request::GetAcl(only("/a"))).await.unwrap()), [0, 0xff, -1, 0x20]);
    assert_eq!(eve.get("/a", false).await, Err(-102));
    bob.call(set(vec![entry(0, "world", "anyone")])).await.unwrap();
    assert_eq!(bob.get("/a", false).await, Err(-102));
}

#[tokio::test]
async fn what_is_not_done_here_is_refused_and_the_connection_stays() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for op in [op::DELETE_CONTAINER, op::CREATE_SESSION, 0, 10, 99, 12_345] {
        assert_eq!(client.call(Request::Unknown(op)).await, Err(-6), "op {op}");
    }
    assert_eq!(client.call(Request::Reconfig(ReconfigRequest::default())).await, Err(-123));
    let token: SaslToken = client.ask(Request::Sasl(SaslToken { token: Buffer(None) })).await.unwrap();
    assert_eq!(token.token, Buffer(None));
    // The first request's body is too short, and the second one's is too long.
    client.send_raw(7, op::SET_DATA, &only("/a").to_bytes()).await;
    assert_eq!(client.answer().await.error, -5);
    client.send_raw(-77, op::EXISTS, &[read("/").to_bytes(), vec![1, 2, 3]].concat()).await;
    let answer = client.answer().await;
    assert_eq!((answer.xid, answer.error), (-77, 0), "an xid is echoed, whatever it is");
    assert_eq!(client.call(Request::Sync(only("/none"))).await, Ok(only("/none").to_bytes()));
    client.nothing_more().await;
}

#[tokio::test]
async fn both_doors_queue_for_the_same_lock() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("/lock", 4).await.unwrap();
    let mine = client.create("/lock/_c_7af2fd6c-7bd2-4ebf-a4a7-4c1c6d6a4b44-lock-", 3).await.unwrap();
    let deadline = Instant::now() + crate::node::PATIENCE;
    let open = znode::Op::OpenSession {
        secret_hash: [1; 16],
        timeout_ms: 30_000,
        label: String::new(),
        address: None,
        client: znode::ClientInfo::default(),
    };
    let opened = node.replica.propose(znode::Request::new(open), deadline).await.unwrap();
    let Ok(znode::Reply::SessionOpened { session, .. }) = opened.reply else { panic!("{opened:?}") };
    let acquire = znode::Acquire::new(znode::ZPath::parse("/lock").unwrap(), znode::LockMode::Exclusive);
    let mut request = znode::Request::new(znode::Op::Acquire(acquire));
    request.credential = Some(znode::Credential { session, secret_hash: [1; 16] });
    (request.key, request.attempt) = (Some(znode::RequestKey([9; 16])), znode::Attempt(1));
    let acquired = node.replica.propose(request, deadline).await.unwrap();
    let Ok(znode::Reply::Acquired { ticket, held: None }) = acquired.reply else { panic!("{acquired:?}") };
    // The later contender sees the earlier one, and is next when the earlier one leaves.
    let mut queue = client.children("/lock", false).await.unwrap();
    queue.sort_by_key(|name| name[name.len() - 10..].to_owned());
    assert_eq!([format!("/lock/{}", queue[0]), format!("/lock/{}", queue[1])], [mine.clone(), ticket.to_string()]);
    client.delete(&mine).await.unwrap();
    let state = node.replica.state();
    let held = znode::lock::status(&state, &ticket).unwrap();
    let czxid = client.exists(ticket.as_str(), false).await.unwrap().czxid as u64;
    assert!(matches!(held, znode::lock::LockStatus::Held { token, .. } if token.0 == czxid), "{held:?}");
}

#[tokio::test]
async fn clients_older_than_the_read_only_field_are_served() {
    let node = Node::start().await;
    let asked = ConnectRequest { timeout_ms: 9_000, ..ConnectRequest::default() };
    let mut client = Client::of(greet(node.addr, &asked).await);
    client.create("/old", 0).await.unwrap();
    client.close().await;
}
