//! TLS, and the identities that it proves. The tests' client has no TLS, and connects through a
//! tunnel that adds TLS, such as stunnel.

use std::net::SocketAddr;

use accept::{Acceptor, AcceptorConfig, Clients, Listeners, Networks};
use jute::{Acl, AclStat, AuthRequest, CreateRequest, PathOnly, Request, WhoAmIResponse, op};
use testkit::{Authority, Files, TlsClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use wire::WireConfig;

use crate::client::Client;
use crate::node::{Node, PATIENCE};

/// A second server for ZooKeeper clients on the same node, with TLS.
struct SecureDoor {
    addr: SocketAddr,
    authority: Authority,
    files: Files,
}

impl SecureDoor {
    async fn open(node: &Node, config: WireConfig) -> SecureDoor {
        let (authority, files) = (Authority::new("test authority"), Files::create());
        let (certificate, key) = files.put("server", &authority.server("localhost"));
        let ca = files.put_certificate("ca", &authority.pem());
        let clients = Some((ca, Clients::MayHaveCertificates));
        let config_of_tls = AcceptorConfig {
            certificate,
            key,
            clients,
            client_crl: None,
            handshakes_max: 8,
            exempt: Networks::default(),
            handshake_timeout_ms: 10_000,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let listeners =
            Listeners { secure: Some((listener, Acceptor::load(&config_of_tls).unwrap())), ..Listeners::default() };
        tokio::spawn(wire::serve(listeners, node.replica.clone(), config, std::future::pending()));
        SecureDoor { addr, authority, files }
    }

    /// Opens a client through a tunnel that uses a certificate for `name`, or none.
    async fn client(&self, name: Option<&str>) -> Client {
        let own = name.map(|name| self.files.put("client", &self.authority.client(name, 30)));
        let connector = TlsClient::new(&self.files.path("ca.pem"), own);
        let tunnel = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (entrance, exit) = (tunnel.local_addr().unwrap(), self.addr);
        tokio::spawn(async move {
            let (mut inner, _) = tunnel.accept().await.unwrap();
            let outer = TcpStream::connect(exit).await.unwrap();
            let mut outer = connector.connect("localhost", outer).await.unwrap();
            let _ = copy_bidirectional(&mut inner, &mut outer).await;
        });
        Client::open(entrance, 30_000).await
    }
}

fn for_subject(path: &str, subject: &str) -> Request {
    let acl = vec![Acl { perms: 31, scheme: "x509".into(), id: subject.into() }];
    Request::Create(op::CREATE, CreateRequest { path: path.into(), data: b"x".as_slice().into(), acl, flags: 0 })
}

fn auth(scheme: &str, proof: &str) -> Request {
    Request::Auth(AuthRequest { kind: 0, scheme: scheme.into(), auth: proof.as_bytes().into() })
}

async fn who(client: &mut Client) -> Vec<String> {
    let who: WhoAmIResponse = client.ask(Request::WhoAmI).await.unwrap();
    who.clients.into_iter().map(|one| format!("{}:{}", one.scheme, one.user)).collect()
}

#[tokio::test]
async fn a_certificates_subject_is_an_identity() {
    let node = Node::start().await;
    let door = SecureDoor::open(&node, WireConfig::default()).await;
    let mut bob = door.client(Some("bob")).await;
    assert_eq!(who(&mut bob).await, ["ip:127.0.0.1", "x509:CN=bob,O=zlock"]);
    bob.call(for_subject("/p", "CN=bob,O=zlock")).await.unwrap();
    bob.set("/p", "y").await.unwrap();
    bob.create("/p/child", 0).await.unwrap();
    assert_eq!(bob.call(for_subject("/q", "bob")).await, Err(-114));
    bob.call(auth("x509", "")).await.unwrap();

    let mut eve = door.client(Some("eve")).await;
    let mut nobody = door.client(None).await;
    let mut plain = node.client().await;
    for stranger in [&mut eve, &mut nobody, &mut plain] {
        assert_eq!(stranger.get("/p", false).await.map(|_| ()), Err(-102));
        assert_eq!(stranger.set("/p", "z").await.map(|_| ()), Err(-102));
        assert_eq!(stranger.create("/p/other", 0).await, Err(-102));
    }
    assert_eq!(who(&mut nobody).await, ["ip:127.0.0.1"]);
    assert_eq!(nobody.call(auth("x509", "")).await, Err(-115), "there is no certificate");

    // `auth` means the identities that the client has proven.
    let acl = vec![Acl { perms: 31, scheme: "auth".into(), id: String::new() }];
    let request = CreateRequest { path: "/mine".into(), data: b"".as_slice().into(), acl, flags: 0 };
    eve.call(Request::Create(op::CREATE, request)).await.unwrap();
    let acl: AclStat = eve.ask(Request::GetAcl(PathOnly { path: "/mine".into() })).await.unwrap();
    assert_eq!((acl.acl.len(), &*acl.acl[0].scheme, &*acl.acl[0].id), (1, "x509", "CN=eve,O=zlock"));
}

/// The client has the longest certificate subject and the longest digest that are possible.
#[tokio::test]
async fn an_acl_may_name_every_identity_that_a_client_can_have() {
    let node = Node::start().await;
    let door = SecureDoor::open(&node, WireConfig::default()).await;
    let rest = "CN=,O=zlock".len();
    let mut client = door.client(Some(&"n".repeat(znode::IDENTITY_BYTES_MAX - rest))).await;
    let rest = ":".len() + 28;
    client.call(auth("digest", &format!("{}:pw", "u".repeat(znode::IDENTITY_BYTES_MAX - rest)))).await.unwrap();
    let acl = vec![Acl { perms: 31, scheme: "auth".into(), id: String::new() }];
    let request = CreateRequest { path: "/mine".into(), data: b"".as_slice().into(), acl, flags: 0 };
    client.call(Request::Create(op::CREATE, request)).await.unwrap();
    let acl: AclStat = client.ask(Request::GetAcl(PathOnly { path: "/mine".into() })).await.unwrap();
    let told = acl.acl.iter().map(|entry| (&*entry.scheme, entry.id.len()));
    assert_eq!(told.collect::<Vec<_>>(), [("x509", znode::IDENTITY_BYTES_MAX), ("digest", znode::IDENTITY_BYTES_MAX)]);
    client.set("/mine", "y").await.unwrap();
}

#[tokio::test]
async fn long_answers_and_pipelined_requests_come_through() {
    let node = Node::start().await;
    let mut client = SecureDoor::open(&node, WireConfig::default()).await.client(None).await;
    client.create("/long", 0).await.unwrap();
    let long = "0123456789abcdef".repeat(50_000);
    client.set("/long", &long).await.unwrap();
    let xids = [(); 20].map(|()| Request::GetData(jute::PathWatch { path: "/long".into(), watch: false }));
    let mut sent = Vec::new();
    for request in &xids {
        sent.push(client.send(request).await);
    }
    for xid in sent {
        let answer = client.answer().await;
        assert_eq!((answer.xid, answer.error), (xid, 0));
        assert_eq!(answer.body[4..][..long.len()], *long.as_bytes());
    }
}

#[tokio::test]
async fn each_address_speaks_its_own_language() {
    let node = Node::start().await;
    let door = SecureDoor::open(&node, WireConfig { words: "*".into(), ..WireConfig::default() }).await;
    let hello = [0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0];
    for (addr, bytes) in [(door.addr, &b"ruok"[..]), (node.addr, &hello)] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("the server closes");
        assert!(!heard.starts_with(b"imok"));
    }
    node.client().await.create("/fine", 0).await.unwrap();
    door.client(None).await.create("/too", 0).await.unwrap();
}

/// The setting `super_digest` is the digest of `super:test` in ZooKeeper's documentation.
#[tokio::test]
async fn a_super_user_passes_every_acl() {
    let config = WireConfig { super_digest: "super:D/InIHSb7yEEbrWz8b9l71RjZJU=".into(), ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let mut client = node.client().await;
    client.call(for_subject("/p", "CN=nobody")).await.unwrap();
    assert_eq!(client.set("/p", "x").await.map(|_| ()), Err(-102));
    client.call(auth("digest", "super:wrong")).await.unwrap();
    assert_eq!(client.set("/p", "x").await.map(|_| ()), Err(-102));
    client.call(auth("digest", "super:test")).await.unwrap();
    assert!(who(&mut client).await.contains(&"super:".to_owned()));
    client.set("/p", "x").await.unwrap();
    assert!(client.get("/p", false).await.is_ok());
    client.create("/p/a", 0).await.unwrap();
    client.delete("/p/a").await.unwrap();
    // `super` is no scheme that an ACL may name.
    let acl = vec![Acl { perms: 31, scheme: "super".into(), id: String::new() }];
    let request = CreateRequest { path: "/s".into(), data: b"".as_slice().into(), acl, flags: 0 };
    assert_eq!(client.call(Request::Create(op::CREATE, request)).await, Err(-114));
}
