//! ACLs for ZooKeeper clients. They also protect locks, quotas and the configuration, and the state
//! machine checks them.

use jute::{
    Acl, AddWatchRequest, AuthRequest, Buffer, CreateRequest, MultiOp, MultiResult, PathOnly, PathVersion, Request,
    SetAclRequest, op, watcher,
};
use tokio::time::Instant;
use wire::WireConfig;
use znode::{Acquire, Attempt, Credential, LockMode, Op, Reply, Request as Proposal, RequestKey, ZPath};

use crate::client::{Client, open_acl, set};
use crate::node::{Node, PATIENCE};

fn acl(scheme: &str, perms: i32) -> Vec<Acl> {
    let id = if scheme == "world" { "anyone" } else { "" };
    vec![Acl { perms, scheme: scheme.into(), id: id.into() }]
}

async fn create(client: &mut Client, path: &str, data: &str, acl: Vec<Acl>) -> Result<(), i32> {
    let request = CreateRequest { path: path.into(), data: data.as_bytes().into(), acl, flags: 0 };
    client.call(Request::Create(op::CREATE, request)).await.map(drop)
}

async fn client_of(node: &Node, proof: &str) -> Client {
    let mut client = node.client().await;
    let auth = AuthRequest { kind: 0, scheme: "digest".into(), auth: proof.as_bytes().into() };
    client.call(Request::Auth(auth)).await.unwrap();
    client
}

/// Opens a session without a connection of a ZooKeeper client, like the sessions of HTTP clients.
async fn session(node: &Node) -> Credential {
    let open = Op::OpenSession {
        secret_hash: [1; 16],
        timeout_ms: 60_000,
        label: String::new(),
        address: None,
        client: znode::ClientInfo::default(),
    };
    let opened = node.replica.propose(Proposal::new(open), Instant::now() + PATIENCE).await.unwrap();
    let Ok(Reply::SessionOpened { session, .. }) = opened.reply else { panic!("{opened:?}") };
    Credential { session, secret_hash: [1; 16] }
}

/// Acquires a lock as an HTTP request does. Returns the path of the ticket, the znode that queues
/// for the lock.
async fn acquire(node: &Node, credential: Credential, lock: &str, identities: Vec<znode::Identity>) -> String {
    let op = Op::Acquire(Acquire::new(ZPath::parse(lock).unwrap(), LockMode::Exclusive));
    let mut request = Proposal { identities, attempt: Attempt(1), ..Proposal::new(op) };
    request.credential = Some(credential);
    request.key = Some(RequestKey([7; 16]));
    let acquired = node.replica.propose(request, Instant::now() + PATIENCE).await.unwrap();
    let Ok(Reply::Acquired { ticket, .. }) = acquired.reply else { panic!("{acquired:?}") };
    ticket.as_str().into()
}

fn super_user() -> Vec<znode::Identity> {
    vec![znode::Identity { scheme: znode::SUPER.into(), id: String::new() }]
}

/// Curator's Revoker asks a holder for its lock by setting the data of the holder's znode to
/// `__REVOKE__`, in another session.
#[tokio::test]
async fn a_revoker_asks_where_it_may_and_forges_nothing() {
    let node = Node::start().await;
    let mut anyone = node.client().await;
    let owner = session(&node).await;
    let open = acquire(&node, owner, "/open", Vec::new()).await;
    anyone.set(&open, "__REVOKE__").await.unwrap();
    assert_eq!(anyone.set(&open, "forged").await.map(drop), Err(-102));
    let forge = SetAclRequest { path: open.clone(), acl: open_acl(), version: -1 };
    assert_eq!(anyone.call(Request::SetAcl(forge)).await.map(drop), Err(-102));
    let path = ZPath::parse(&open).unwrap();
    assert!(znode::lock::revocation(&node.replica.state(), &path).is_some());

    let mut bob = client_of(&node, "bob:x").await;
    create(&mut bob, "/vault", "", acl("auth", 31)).await.unwrap();
    let ticket = acquire(&node, session(&node).await, "/vault", super_user()).await;
    for word in ["__REVOKE__", "unlock", "forged"] {
        assert_eq!(anyone.set(&ticket, word).await.map(drop), Err(-102), "{word}");
    }
    assert_eq!(anyone.get(&ticket, false).await.map(drop), Err(-102));
    assert_eq!(anyone.children("/vault", false).await.map(drop), Err(-102));
    assert_eq!(anyone.delete(&ticket).await.map(drop), Err(-102));
    assert_eq!(bob.set(&ticket, "forged").await.map(drop), Err(-102));
    bob.set(&ticket, "__REVOKE__").await.unwrap();
    bob.delete(&ticket).await.unwrap();
    // A ticket that a ZooKeeper client has created has its own ACL.
    anyone.create("/open/x-0000000009", 1).await.unwrap();
    bob.set("/open/x-0000000009", "else").await.unwrap();
}

#[tokio::test]
async fn a_watch_on_the_root_tells_no_names_of_a_vault() {
    let node = Node::start().await;
    let mut anyone = node.client().await;
    let add = AddWatchRequest { path: "/".into(), mode: watcher::MODE_PERSISTENT_RECURSIVE };
    anyone.call(Request::AddWatch(add)).await.unwrap();
    let mut bob = client_of(&node, "bob:x").await;
    create(&mut bob, "/vault", "", acl("auth", 31)).await.unwrap();
    // No event is sent even for a znode that all may read, because its name is in the vault's list.
    create(&mut bob, "/vault/hidden", "", open_acl()).await.unwrap();
    acquire(&node, session(&node).await, "/vault/lock", super_user()).await;
    bob.create("/seen", 0).await.unwrap();
    assert_eq!(anyone.event().await, (1, "/seen".into()));
    anyone.nothing_more().await;
}

/// Requests that zkCli sends for setquota. The client has the permission ADMIN only on the znodes
/// that the quota bounds.
#[tokio::test]
async fn setquota_needs_admin_on_its_subtree() {
    let node = Node::start().await;
    let mut bob = client_of(&node, "bob:x").await;
    let mut eve = client_of(&node, "eve:x").await;
    create(&mut bob, "/team", "", acl("world", 5)).await.unwrap();
    create(&mut bob, "/team/vault", "", acl("auth", 31)).await.unwrap();
    let limits = "/zookeeper/quota/team/vault/zookeeper_limits";
    let stats = "/zookeeper/quota/team/vault/zookeeper_stats";
    create(&mut bob, "/zookeeper/quota/team", "", open_acl()).await.unwrap();
    assert_eq!(create(&mut eve, "/zookeeper/quota/team/vault", "", open_acl()).await, Err(-102));
    create(&mut bob, "/zookeeper/quota/team/vault", "", open_acl()).await.unwrap();
    assert_eq!(create(&mut eve, limits, "count=0,bytes=0", open_acl()).await, Err(-102));
    create(&mut bob, limits, "count=5,bytes=-1", open_acl()).await.unwrap();
    create(&mut bob, stats, "", open_acl()).await.unwrap();
    for refused in [set(limits, "count=0"), Request::Delete(PathVersion { path: limits.into(), version: -1 })] {
        assert_eq!(eve.call(refused).await, Err(-102));
    }
    assert_eq!(eve.get(stats, false).await.map(drop), Err(-102));
    assert_eq!(eve.children("/zookeeper/quota/team/vault", false).await.map(drop), Err(-102));
    assert_eq!(eve.call(Request::GetAcl(PathOnly { path: limits.into() })).await.map(drop), Err(-102));
    bob.get(stats, false).await.unwrap();
    bob.call(set(limits, "count=6,bytes=-1")).await.unwrap();
    for path in [limits, stats, "/zookeeper/quota/team/vault"] {
        bob.delete(path).await.unwrap();
    }
}

/// Curator's ensemble tracker connects to any address in `/zookeeper/config`, so clients must not
/// change this znode.
#[tokio::test]
async fn the_configuration_cannot_be_replaced_by_any_client() {
    let config = WireConfig { super_digest: "super:D/InIHSb7yEEbrWz8b9l71RjZJU=".into(), ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let at = "/zookeeper/config";
    for proof in ["eve:x", "super:test"] {
        let mut client = client_of(&node, proof).await;
        let before = client.get(at, false).await.unwrap();
        assert_eq!(client.set(at, "server.1=evil").await.map(drop), Err(-102));
        assert_eq!(client.delete(at).await.map(drop), Err(-8));
        assert_eq!(client.create(at, 0).await, Err(-102));
        assert_eq!(client.create("/zookeeper/config/x", 0).await, Err(-102));
        assert_eq!(client.create("/zookeeper/x", 0).await, Err(-102));
        let set_acl = SetAclRequest { path: at.into(), acl: open_acl(), version: -1 };
        assert_eq!(client.call(Request::SetAcl(set_acl)).await.map(drop), Err(-102));
        let ops = vec![
            MultiOp::Delete(PathVersion { path: at.into(), version: -1 }),
            MultiOp::Create(
                op::CREATE,
                CreateRequest { path: at.into(), data: Buffer(None), acl: open_acl(), flags: 0 },
            ),
        ];
        let results = client.call(Request::Multi(ops)).await.unwrap();
        let results = jute::read_multi_results(&mut jute::Input::new(&results)).unwrap();
        assert_eq!(results, [MultiResult::Error(-8), MultiResult::Error(-2)]);
        assert_eq!(client.get(at, false).await.unwrap(), before);
    }
    // A lock acquired over HTTP at that path cannot replace the configuration either.
    let lock = Acquire::new(ZPath::parse(at).unwrap(), LockMode::Exclusive);
    let mut request = Proposal { identities: super_user(), attempt: Attempt(1), ..Proposal::new(Op::Acquire(lock)) };
    request.credential = Some(session(&node).await);
    request.key = Some(RequestKey([1; 16]));
    let refused = node.replica.propose(request, Instant::now() + PATIENCE).await.unwrap().reply.unwrap_err();
    assert_eq!(refused.error, znode::Error::NoAuth);
}

/// The client's address is one of its identities, and proves nothing.
#[tokio::test]
async fn a_connection_proves_64_identities_and_one_again() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.prove_fifty_names("u").await;
    let prove = |number: usize| {
        let auth = format!("{number}v:password").as_bytes().into();
        Request::Auth(jute::AuthRequest { kind: 0, scheme: "digest".into(), auth })
    };
    for number in (0..14).chain([0]) {
        client.call(prove(number)).await.unwrap();
    }
    assert_eq!(client.call(prove(14)).await, Err(-115));
}
