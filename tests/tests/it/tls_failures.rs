//! Failed handshakes: the node's log says why, once in a while for each address.

use std::process::{Command, Stdio};

use testkit::{Authority, Files};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;

use crate::cli::run;
use crate::harness::{Cluster, Options, PROGRAM, Ports, until};

#[tokio::test]
async fn a_client_without_a_certificate_is_told_in_the_log_with_its_address_and_not_at_each_try() {
    let (authority, files, ports) = (Authority::new("test authority"), Files::create(), Ports::claim(16).unwrap());
    let (certificate, key) = files.put("server", &authority.server("localhost"));
    let ca = files.put_certificate("ca", &authority.pem());
    let addr = ports.addr(0);
    let mut cluster = Cluster::prepare(Options { nodes: 1, ..Options::default() }).await;
    let config = cluster.config(1).to_owned();
    let text = std::fs::read_to_string(&config).unwrap();
    let tls = format!("http.tls_listen = \"{addr}\"\ntls.client_certificates = \"required\"\ntls.client_ca = {ca:?}\n");
    let own = format!("tls.certificate = {certificate:?}\ntls.key = {key:?}\n");
    std::fs::write(&config, [text, tls, own].concat()).unwrap();
    cluster.restart(1);
    cluster.all_ready().await;
    let lines = |address: &str, reason: &str| {
        let log = cluster.log(1);
        let failed = log.lines().filter(|line| line.contains("a TLS handshake failed") && line.contains(reason));
        failed.filter(|line| line.contains(&format!("addr={address}:"))).count()
    };

    // The program tries more than once.
    let endpoint = addr.replace("127.0.0.1", "https://localhost");
    let tries = async || {
        let mut command = Command::new(PROGRAM);
        command.env("ZLOCK_ENDPOINTS", &endpoint).args(["get", "/a", "--timeout", "2s", "--ca"]).arg(&ca);
        command.stdin(Stdio::null());
        let (code, _, stderr) = run(command).await;
        assert_ne!(code, 0, "{stderr}");
    };
    let told = || lines("127.0.0.1", "peer sent no certificates");
    tries().await;
    until("the log tells of it", async || (told() > 0).then_some(())).await;
    tries().await;
    assert_eq!(told(), 1, "{}", cluster.log(1));

    // This client speaks no TLS, and comes from another address.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut stream = socket.connect(addr.parse().unwrap()).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    until("the log says what came", async || (lines("127.0.0.2", "InvalidContentType") == 1).then_some(())).await;
    // A connection that is opened and closed again, as a balancer's probe does, is not logged.
    drop(stream);
    drop(tokio::net::TcpStream::connect(&addr).await.unwrap());
    // A reset connection has no line either. The next line has the number of failures.
    let reset = TcpSocket::new_v4().unwrap();
    reset.set_zero_linger().unwrap();
    drop(reset.connect(addr.parse().unwrap()).await.unwrap());
    assert_eq!(cluster.log(1).matches("a TLS handshake failed").count(), 2, "{}", cluster.log(1));
    let mut site = 0;
    until("a line counts it", async || {
        site += 1;
        let from = format!("127.1.{site}.1");
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        let mut stream = socket.connect(addr.parse().unwrap()).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        until("it is told of", async || (lines(&from, "InvalidContentType") == 1).then_some(())).await;
        let log = cluster.log(1);
        let line = log.lines().find(|line| line.contains(&format!("addr={from}:")))?;
        line.ends_with("times=1 others=0 resets=1").then_some(())
    })
    .await;
    assert_eq!(lines("127.0.0.1", ""), 1, "the reset has no line of its own: {}", cluster.log(1));
}
