//! Handshakes over loopback: the clients that are accepted, their identities, and the clients that
//! are refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use accept::{
    Acceptor, AcceptorConfig, CertificateFiles, Certificates, Clients, Error, Listeners, Networks, Proxies, Stream,
};
use ppp::v2::{Builder, Command, IPv4, Protocol, Version};
use testkit::{Authority, Files, Lines, TlsClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;
use tracing::Level;

/// Timeout of one step of a test.
const PATIENCE: Duration = Duration::from_secs(20);

struct Server {
    listeners: Listeners,
    files: Files,
    authority: Authority,
}

impl Server {
    async fn start(clients: Option<Clients>) -> Server {
        Server::start_with(clients, |_| {}).await
    }

    async fn start_with(clients: Option<Clients>, edit: impl Fn(&mut AcceptorConfig)) -> Server {
        let authority = Authority::new("test authority");
        let files = Files::create();
        let (certificate, key) = files.put("server", &authority.server("localhost"));
        let ca = files.put_certificate("ca", &authority.pem());
        let mut config = AcceptorConfig {
            certificate,
            key,
            clients: clients.map(|clients| (ca, clients)),
            client_crl: None,
            handshakes_max: 8,
            exempt: Networks::default(),
            handshake_timeout_ms: 10_000,
        };
        edit(&mut config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listeners =
            Listeners { secure: Some((listener, Acceptor::load(&config).unwrap())), ..Listeners::default() };
        Server { listeners, files, authority }
    }

    /// Returns a client; `own` has the PEM texts of its certificate and key.
    fn connector(&self, own: Option<(String, String)>) -> TlsClient {
        let own = own.map(|own| self.files.put("client", &own));
        TlsClient::new(&self.files.path("ca.pem"), own)
    }

    async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.listeners.addrs()[1].unwrap()).await.unwrap()
    }

    /// Connects from the address 127.0.0.`last` of this machine.
    async fn dial_from(&self, last: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, last], 0).into()).unwrap();
        socket.connect(self.listeners.addrs()[1].unwrap()).await.unwrap()
    }

    async fn accepted(&self) -> std::io::Result<Stream> {
        let (incoming, _) = tokio::time::timeout(PATIENCE, self.listeners.accept()).await.unwrap().unwrap();
        incoming.open().await
    }

    /// Connects a client and returns the results of the server and the client. The client also
    /// reads, because in TLS 1.3 only the first read reports a refusal.
    async fn meet(&self, connector: &TlsClient, host: &str) -> (std::io::Result<Stream>, std::io::Result<Vec<u8>>) {
        let served = async {
            let mut stream = self.accepted().await?;
            stream.write_all(b"hello").await?;
            stream.shutdown().await?;
            Ok(stream)
        };
        let asked = async {
            let mut stream = connector.connect(host, self.dial().await).await?;
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).await?;
            Ok(heard)
        };
        tokio::time::timeout(PATIENCE, async { tokio::join!(served, asked) }).await.unwrap()
    }
}

#[tokio::test]
async fn a_client_knows_the_server_by_its_authority_and_name() {
    let server = Server::start(None).await;
    let (served, heard) = server.meet(&server.connector(None), "localhost").await;
    assert_eq!((served.unwrap().subject(), heard.unwrap()), (None, b"hello".to_vec()));
    let (_, heard) = server.meet(&server.connector(None), "other.example").await;
    assert!(heard.unwrap_err().to_string().contains("not valid for name"));
    let other = server.files.put_certificate("other", &Authority::new("another authority").pem());
    let stranger = TlsClient::new(&other, None);
    let (served, heard) = server.meet(&stranger, "localhost").await;
    assert!(heard.unwrap_err().to_string().contains("UnknownIssuer"));
    assert!(served.is_err());
}

#[tokio::test]
async fn a_certificate_says_who_a_client_is() {
    for clients in [Clients::MayHaveCertificates, Clients::MustHaveCertificates] {
        let server = Server::start(Some(clients)).await;
        let own = server.authority.client("worker, one", 30);
        let (served, heard) = server.meet(&server.connector(Some(own)), "localhost").await;
        assert_eq!(heard.unwrap(), b"hello");
        let served = served.unwrap();
        assert_eq!((served.subject(), served.is_secure()), (Some(r"CN=worker\, one,O=zlock"), true));
    }
}

/// New files come into use for new connections, and open connections stay. Files that cannot be
/// used change nothing.
#[tokio::test]
async fn changed_files_come_into_use_when_they_are_good() {
    let server = Server::start(Some(Clients::MustHaveCertificates)).await;
    let (_, acceptor) = server.listeners.secure.as_ref().unwrap();
    let certificates: Certificates = [("http", CertificateFiles::Clients(acceptor.clone()))].into_iter().collect();
    let certificate = certificates.iter().next().unwrap();
    let counts = || (certificate.reloads(), certificate.failures());
    let client = server.connector(Some(server.authority.client("worker", 30)));
    let (open, heard) = server.meet(&client, "localhost").await;
    assert_eq!(heard.unwrap(), b"hello");
    certificates.reload();
    assert_eq!(counts(), (0, 0));
    // A key without its certificate, an expired certificate, and no certificate at all.
    let old = std::fs::read_to_string(server.files.path("server.pem")).unwrap();
    let old_key = std::fs::read_to_string(server.files.path("server-key.pem")).unwrap();
    let renewed = server.authority.server("renewed");
    let expired = server.authority.client("localhost", -1);
    for (bad, failures) in [((old.clone(), renewed.1.clone()), 1), (expired, 2), ((String::new(), old_key), 3)] {
        server.files.put("server", &bad);
        certificates.reload();
        assert_eq!(counts(), (0, failures));
        server.meet(&client, "localhost").await.1.unwrap();
    }
    server.files.put("server", &renewed);
    certificates.reload();
    assert_eq!((counts(), certificates.expired()), ((1, 3), None));
    server.meet(&client, "renewed").await.1.unwrap();
    assert!(server.meet(&client, "localhost").await.1.unwrap_err().to_string().contains("not valid for name"));
    drop(open);
    // Another authority for clients.
    let other = Authority::new("another authority");
    server.files.put_certificate("ca", &other.pem());
    certificates.reload();
    let (served, _) = server.meet(&client, "renewed").await;
    assert!(served.is_err());
}

/// The certificate of the key may stand before or behind the authorities of its chain, as different
/// tools write it.
#[tokio::test]
async fn a_chain_is_used_in_either_order() {
    let server = Server::start(None).await;
    let (_, acceptor) = server.listeners.secure.as_ref().unwrap();
    let first = server.authority.intermediate("first");
    let second = first.intermediate("second");
    for is_last in [false, true] {
        let (own, key) = second.server("localhost");
        let mut chain = [own, second.pem(), first.pem()];
        if is_last {
            chain.reverse();
        }
        server.files.put("server", &(chain.concat(), key));
        assert!(acceptor.reload().unwrap());
        assert_eq!(server.meet(&server.connector(None), "localhost").await.1.unwrap(), b"hello");
    }
}

/// Private keys as `openssl ecparam` and `openssl genrsa -traditional` write them. rcgen writes
/// PKCS#8, which all other tests use.
#[tokio::test]
async fn keys_of_older_tools_are_read() {
    let server = Server::start(None).await;
    let (_, acceptor) = server.listeners.secure.as_ref().unwrap();
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pem");
    for name in ["sec1", "pkcs1"] {
        let read = |file: String| std::fs::read_to_string(directory.join(file)).unwrap();
        let (certificate, key) = (read(format!("{name}.pem")), read(format!("{name}-key.pem")));
        let ca = server.files.put_certificate("own-ca", &certificate);
        server.files.put("server", &(certificate, key));
        assert!(acceptor.reload().unwrap());
        let client = TlsClient::new(&ca, None);
        assert_eq!(server.meet(&client, "localhost").await.1.unwrap(), b"hello", "{name}");
    }
}

/// A server refuses the client whose certificate is revoked, and accepts other clients.
#[tokio::test]
async fn a_revoked_certificate_is_refused() {
    let files = Files::create();
    let path = files.path("crl.pem");
    files.put_certificate("crl", &Authority::new("other").crl(&[]));
    let server =
        Server::start_with(Some(Clients::MustHaveCertificates), |config| config.client_crl = Some(path.clone())).await;
    let (_, acceptor) = server.listeners.secure.as_ref().unwrap();
    let (one, two) = (server.authority.client("one", 30), server.authority.client("two", 30));
    let (first, second) = (server.connector(Some(one)), server.connector(Some(two)));
    for client in [&first, &second] {
        server.meet(client, "localhost").await.1.unwrap();
    }
    // The server's certificate has number 1, and the first client's number 2.
    files.put_certificate("crl", &server.authority.crl(&[2]));
    assert!(acceptor.reload().unwrap());
    let (served, _) = server.meet(&first, "localhost").await;
    let refused = served.unwrap_err().to_string();
    assert!(refused.contains("Revoked"), "{refused}");
    server.meet(&second, "localhost").await.1.unwrap();
}

/// Clients whose certificate has no usable subject are accepted without an identity. A log line
/// says so, but not for each connection: a load balancer may check the port every second.
#[tokio::test]
async fn a_client_that_is_nobody_by_its_certificate_has_a_line_now_and_then() {
    let lines = Lines::of("accept", Level::INFO);
    let _gathered = lines.gather_here();
    let server = Server::start(Some(Clients::MustHaveCertificates)).await;
    let connector = server.connector(Some(server.authority.client(&"n".repeat(1_014), 30)));
    for _ in 0..3 {
        let (served, heard) = server.meet(&connector, "localhost").await;
        assert_eq!((served.unwrap().subject(), heard.unwrap()), (None, b"hello".to_vec()));
    }
    let lines = lines.with("no usable subject");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("its subject has 1025 bytes, and may have 1024"), "{lines:?}");
}

#[tokio::test]
async fn a_client_without_a_good_certificate_is_refused_where_one_is_asked_for() {
    let must = Server::start(Some(Clients::MustHaveCertificates)).await;
    let (served, heard) = must.meet(&must.connector(None), "localhost").await;
    assert!(served.unwrap_err().to_string().contains("peer sent no certificates"));
    assert!(heard.is_err());
    let may = Server::start(Some(Clients::MayHaveCertificates)).await;
    let (served, _) = may.meet(&may.connector(None), "localhost").await;
    assert_eq!(served.unwrap().subject(), None);

    // A certificate that is expired or of another authority is refused, even where clients need no
    // certificate.
    let expired = may.authority.client("worker", -1);
    let foreign = Authority::new("another authority").client("worker", 30);
    for (own, why) in [(expired, "expired"), (foreign, "UnknownIssuer")] {
        let (served, heard) = may.meet(&may.connector(Some(own)), "localhost").await;
        let error = served.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(heard.is_err());
    }
}

#[tokio::test]
async fn who_does_not_speak_tls_is_sent_away() {
    let server = Server::start(None).await;
    let strangers: [&[u8]; 4] = [b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"\0\0\0\x2d\0\0\0\0", b"ruok", &[0xff; 4096]];
    for bytes in strangers {
        let client = async {
            let mut stream = server.dial().await;
            let _ = stream.write_all(bytes).await;
            // Ends the stream, as the server would wait for the rest of an incomplete TLS record.
            let _ = stream.shutdown().await;
            let mut heard = Vec::new();
            let _ = stream.read_to_end(&mut heard).await;
        };
        let (served, ()) = tokio::join!(server.accepted(), client);
        assert!(served.is_err(), "{bytes:?}");
    }
}

#[tokio::test]
async fn a_handshake_behind_a_balancer_is_that_of_its_client() {
    let lines = Lines::of("accept", Level::INFO);
    let _gathered = lines.gather_here();
    let mut server = Server::start(None).await;
    server.listeners.proxies = Proxies::at("127.0.0.1".parse().unwrap());
    let addresses = IPv4::new([192, 0, 2, 7], [192, 0, 2, 1], 40_000, 443);
    let header = Builder::with_addresses(Version::Two | Command::Proxy, Protocol::Stream, addresses).build().unwrap();
    let mut client = server.dial().await;
    client.write_all(&header).await.unwrap();
    client.write_all(b"no TLS").await.unwrap();
    client.shutdown().await.unwrap();
    assert!(server.accepted().await.is_err());
    let lines = lines.with("a TLS handshake failed");
    assert!(lines.len() == 1 && lines[0].contains("192.0.2.7"), "{lines:?}");
}

#[tokio::test]
async fn a_handshake_ends_in_time_and_only_so_many_go_on_at_once() {
    let short = |config: &mut AcceptorConfig| (config.handshakes_max, config.handshake_timeout_ms) = (1, 300);
    let server = Server::start_with(None, short).await;
    // Only one handshake is permitted. The first client sends one byte and begins it, so the second
    // client cannot begin a handshake.
    let (mut first, second) = (server.dial().await, server.dial().await);
    first.write_all(&[22]).await.unwrap();
    let connector = server.connector(None);
    let client = connector.connect("localhost", second);
    // With a paused clock, the timeouts of both begin and end at the same moment. With a real
    // clock, the second client sometimes completed its handshake between the ends of the two
    // timeouts.
    tokio::time::pause();
    let began = Instant::now();
    let (one, two, _) = tokio::join!(server.accepted(), server.accepted(), client);
    let kinds = [one.unwrap_err().kind(), two.unwrap_err().kind()];
    assert_eq!(kinds, [std::io::ErrorKind::TimedOut; 2]);
    assert!(began.elapsed() >= Duration::from_millis(300));
    tokio::time::resume();
    let (served, heard) = server.meet(&connector, "localhost").await;
    assert!(served.is_ok() && heard.is_ok());
}

#[tokio::test]
async fn a_stranger_who_says_nothing_takes_no_place() {
    let server = Server::start_with(None, |config| config.handshakes_max = 1).await;
    let _silent = server.dial().await;
    let connector = server.connector(None);
    tokio::select! {
        biased;
        // The silent client is accepted first, and waits in its handshake.
        silent = server.accepted() => panic!("it has said nothing, and is {silent:?}"),
        (served, heard) = server.meet(&connector, "localhost") => assert!(served.is_ok() && heard.is_ok()),
    }
}

/// Regression: 75 incomplete handshakes a second made all other clients with TLS wait for ten
/// seconds.
#[tokio::test]
async fn half_handshakes_of_one_address_do_not_delay_others() {
    // The timeout is so long that no incomplete handshake ends during the test.
    let server = Server::start_with(None, |config| config.handshake_timeout_ms = 600_000).await;
    let mut half = Vec::new();
    for _ in 0..50 {
        let mut stream = server.dial_from(2).await;
        stream.write_all(&[22, 3, 1]).await.unwrap();
        half.push(stream);
    }
    let connector = server.connector(None);
    let strangers = async {
        let mut accepted: Vec<_> = Vec::new();
        for _ in 0..50 {
            let (incoming, _) = server.listeners.accept().await.unwrap();
            accepted.push(tokio::spawn(incoming.open()));
        }
        accepted
    };
    let accepted = tokio::time::timeout(PATIENCE, strangers).await.unwrap();
    // Lets all handshakes proceed until each waits for its client or for a place.
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    let (served, heard) = server.meet(&connector, "localhost").await;
    assert!(served.is_ok() && heard.is_ok());
    assert!(accepted.iter().all(|one| !one.is_finished()), "nor were they sent away");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_with_a_code() {
    let (authority, files) = (Authority::new("test authority"), Files::create());
    let (certificate, key) = files.put("server", &authority.server("localhost"));
    let (_, other_key) = files.put("other", &authority.server("localhost"));
    let empty = files.put_certificate("empty", "no PEM at all");
    let damaged = files.put_certificate("damaged", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let missing = files.path("missing.pem");
    let exempt = Networks::default();
    let good = AcceptorConfig {
        certificate,
        key,
        clients: None,
        client_crl: None,
        handshakes_max: 1,
        exempt,
        handshake_timeout_ms: 1,
    };
    assert!(Acceptor::load(&good).is_ok());
    let check = |config: AcceptorConfig, code: &str, file: &str| {
        let error: Error = Acceptor::load(&config).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(&format!("{code}: ")) && message.contains(file), "{message}");
    };
    let clients = |file: &std::path::Path| Some((file.to_owned(), Clients::MayHaveCertificates));
    check(AcceptorConfig { certificate: missing.clone(), ..good.clone() }, "tls-file-unreadable", "missing.pem");
    check(AcceptorConfig { certificate: empty.clone(), ..good.clone() }, "tls-bad-certificate", "empty.pem");
    check(AcceptorConfig { key: good.certificate.clone(), ..good.clone() }, "tls-bad-key", "server.pem");
    check(AcceptorConfig { key: other_key, ..good.clone() }, "tls-key-mismatch", "other-key.pem");
    check(AcceptorConfig { clients: clients(&missing), ..good.clone() }, "tls-file-unreadable", "missing.pem");
    check(AcceptorConfig { clients: clients(&empty), ..good.clone() }, "tls-bad-certificate", "empty.pem");
    check(AcceptorConfig { clients: clients(&damaged), ..good.clone() }, "tls-bad-certificate", "damaged.pem");
}
