//! TLS between members, and certificates that are renewed: three rolling restarts from connections
//! without TLS to required TLS, and strangers at the peer port.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jute::{Acl, CreateRequest, Request, op};
use rustix::process::{Signal, kill_process};
use testkit::http::SOON;
use testkit::zookeeper::Zk;
use testkit::{Authority, Files};
use tokio::task::JoinHandle;
use zlock_client::Client;

use crate::cli::{run, zlock};
use crate::harness::{CLUSTER_ID, Call, Cluster, Options, Ports, run_to_end, until};

/// Authority and certificates of the members of one cluster.
struct Certificates {
    authority: Authority,
    files: Files,
    ca: PathBuf,
}

impl Certificates {
    fn new(authority: &str) -> Certificates {
        let (authority, files) = (Authority::new(authority), Files::create());
        let ca = files.put_certificate("ca", &authority.pem());
        Certificates { authority, files, ca }
    }

    /// Returns a new certificate and key for node `id`, as PEM, valid for `days` days from now.
    fn node(&self, id: u64, days: i32) -> (String, String) {
        self.authority.node(&[&uri(id)], days)
    }

    /// Writes the certificate of a node, and returns the node's keys of the configuration.
    fn settings(&self, id: u64) -> String {
        let own = self.node(id, 30);
        self.settings_with(&format!("node{id}"), &own)
    }

    fn settings_with(&self, name: &str, own: &(String, String)) -> String {
        let (certificate, key) = self.files.put(name, own);
        format!("peers.tls_certificate = {certificate:?}\npeers.tls_key = {key:?}\npeers.tls_ca = {:?}\n", self.ca)
    }
}

fn uri(id: u64) -> String {
    format!("zlock://{CLUSTER_ID}/{id}")
}

/// Appends lines to the configuration of a node, in place of those that an earlier call appended.
fn configure(cluster: &Cluster, id: u64, lines: &str) {
    const MARK: &str = "# TLS with peers\n";
    let text = std::fs::read_to_string(cluster.config(id)).unwrap();
    let before = text.split(MARK).next().unwrap();
    std::fs::write(cluster.config(id), format!("{before}\n{MARK}{lines}")).unwrap();
}

/// Returns the numbers of connections between members with and without TLS, over all nodes.
async fn connections(cluster: &Cluster) -> (u64, u64) {
    let (mut tls, mut plain) = (0, 0);
    for id in cluster.ids() {
        let status: zlock_client::Cluster = cluster.client(id).send(Call::get("/v1/cluster")).await.unwrap().json();
        tls += status.peer_connections.tls;
        plain += status.peer_connections.plain;
    }
    (tls, plain)
}

#[tokio::test]
async fn three_rolling_restarts_lead_to_required_tls() {
    let certificates = Certificates::new("peers");
    let mut cluster = Cluster::start().await;
    cluster.client(1).create("/v1/znodes/kept", "1").await;
    assert_eq!(connections(&cluster).await.0, 0);
    let client = Client::builder(cluster.endpoints()).build().unwrap();
    let (written, load) = write(move || client.clone());
    let own: Vec<String> = (1..=3).map(|id| certificates.settings(id)).collect();
    for step in
        ["peers.tls = \"permit\"\n", "peers.tls = \"permit\"\npeers.tls_dial = true\n", "peers.tls = \"require\"\n"]
    {
        for id in 1..=3 {
            configure(&cluster, id, &format!("{step}{}", own[id as usize - 1]));
            assert_eq!(cluster.stop(id).await, Some(0));
            cluster.restart(id);
            cluster.all_ready().await;
        }
        if step.contains("dial") {
            until("no connection between members is without TLS", async || {
                (connections(&cluster).await.1 == 0).then_some(())
            })
            .await;
        }
    }
    assert!(!load.is_finished(), "a write failed");
    assert!(written.load(Ordering::Relaxed) > 100, "{written:?} writes");
    load.abort();
    let (tls, plain) = connections(&cluster).await;
    assert!(tls > 0 && plain == 0, "{tls} with TLS, {plain} without");
    let (code, stdout, stderr) = run(zlock(&cluster, &["status"])).await;
    assert!(code == 0 && stdout.contains("with TLS, 0 without"), "{stdout}{stderr}");
    cluster.kill(1);
    cluster.client(2).create("/v1/znodes/after", "").await;
}

#[tokio::test]
async fn only_the_certificate_of_a_member_opens_the_peer_port() {
    let certificates = Certificates::new("peers");
    let mut cluster = Cluster::prepare(Options::default()).await;
    let require = |own: String| format!("peers.tls = \"require\"\n{own}");
    for id in 1..=3 {
        configure(&cluster, id, &require(certificates.settings(id)));
    }
    // The certificate of another node is refused at start.
    let third = certificates.settings(3);
    configure(&cluster, 3, &require(certificates.settings(2)));
    let (code, stderr) = run_to_end(["serve"], Some(cluster.config(3)));
    assert!(code == 1 && stderr.contains("tls-bad-certificate") && stderr.contains(&uri(3)), "{code}: {stderr}");
    // A file of authorities that have not signed the node's certificate is refused, too.
    let other = Certificates::new("others");
    let foreign = third.replace(&format!("{:?}", certificates.ca), &format!("{:?}", other.ca));
    configure(&cluster, 3, &require(foreign));
    let (code, stderr) = run_to_end(["serve"], Some(cluster.config(3)));
    assert!(code == 1 && stderr.contains("does not vouch for it"), "{code}: {stderr}");

    configure(&cluster, 3, &require(third.clone()));
    for id in 1..=3 {
        cluster.restart(id);
    }
    cluster.all_ready().await;
    cluster.kill(3);
    // Node 3 is a stranger: without TLS, with an expired certificate, with the certificate of
    // another node, and with a certificate of another authority.
    let expired = certificates.settings_with("expired", &certificates.node(3, -1));
    let named_2 = certificates.settings_with("named-2", &certificates.node(2, 30));
    for (own, heard) in [
        ("peers.tls = \"off\"\n".to_owned(), "the peer takes connections with TLS only"),
        (require(expired), "CertificateExpired"),
        (format!("peers.tls_names = \"any\"\n{}", require(named_2)), "this is not a hello of a member"),
        (require(other.settings(3)), "UnknownIssuer"),
    ] {
        configure(&cluster, 3, &own);
        cluster.restart(3);
        until(&format!("node 3 hears `{heard}`"), async || cluster.log(3).contains(heard).then_some(())).await;
        let ready = cluster.client(3).send(Call::get("/readyz?verbose")).await.unwrap();
        let ready = String::from_utf8_lossy(&ready.body).into_owned();
        let has_expired = heard == "CertificateExpired";
        assert_eq!(
            ready.contains("[-]certificates failed: the certificate of the port `peers`"),
            has_expired,
            "{ready}"
        );
        cluster.kill(3);
    }
    let told = "the caller, node 3, has connected without TLS, which peers.tls requires here";
    assert!([1, 2].iter().any(|id| cluster.log(*id).contains(told)), "{}", cluster.log(1));
    configure(&cluster, 3, &require(third));
    cluster.restart(3);
    cluster.all_ready().await;
}

/// Returns the number of unsuccessful answers of all nodes, from their metrics.
async fn failures(cluster: &Cluster) -> u64 {
    let mut failures = 0;
    for id in cluster.ids() {
        let metrics = cluster.client(id).send(Call::get("/metrics")).await.unwrap();
        let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
        let failed = metrics.lines().filter(|line| line.starts_with("zlock_requests_total{door=\"http\""));
        let failed = failed.filter(|line| !line.contains("outcome=\"done\""));
        failures += failed.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>();
    }
    failures
}

/// Starts a task that creates znodes, each over a new connection with TLS to the next endpoint,
/// until a request fails. Returns the number of created znodes, and the task.
fn write_over_new_connections(endpoints: Vec<String>, ca: String) -> (Arc<AtomicU64>, JoinHandle<()>) {
    let mut endpoints = endpoints.into_iter().cycle();
    write(move || Client::builder([endpoints.next().unwrap()]).ca_pem(ca.clone()).build().unwrap())
}

/// Starts a task that creates znodes, each with the client that `next` returns, until a request
/// fails. Returns the number of created znodes, and the task.
fn write(mut next: impl FnMut() -> Client + Send + 'static) -> (Arc<AtomicU64>, JoinHandle<()>) {
    let written = Arc::<AtomicU64>::default();
    let writes = Arc::clone(&written);
    let load = tokio::spawn(async move {
        for number in 0.. {
            next().create(format!("/{number}"), "x").await.unwrap();
            writes.fetch_add(1, Ordering::Relaxed);
        }
    });
    (written, load)
}

/// Starts a task that creates znodes in one session of a ZooKeeper client, until a request fails.
/// Returns the number of created znodes, and the task.
async fn write_over_zookeeper(endpoints: &[String]) -> (Arc<AtomicU64>, JoinHandle<()>) {
    let zk = Zk::open(endpoints, 0, SOON).await.unwrap();
    let written = Arc::<AtomicU64>::default();
    let writes = Arc::clone(&written);
    let load = tokio::spawn(async move {
        for number in 0.. {
            let acl = vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }];
            let create = CreateRequest { path: format!("/zk-{number}"), data: b"x".as_slice().into(), acl, flags: 0 };
            zk.ask(Request::Create(op::CREATE, create)).await.unwrap();
            writes.fetch_add(1, Ordering::Relaxed);
        }
    });
    (written, load)
}

/// Returns the keys of a node's configuration for TLS at all ports, with files of `directory`.
fn tls_at_all_ports(directory: &Path, ca: &Path, http: &str, zookeeper: &str) -> String {
    let file = |name: &str| directory.join(name);
    let keys = [
        ("peers.tls", "require".into()),
        ("peers.tls_certificate", file("node.pem")),
        ("peers.tls_key", file("node-key.pem")),
        ("peers.tls_ca", ca.to_owned()),
        ("tls.certificate", file("server.pem")),
        ("tls.key", file("server-key.pem")),
        ("http.tls_listen", http.into()),
        ("zookeeper.tls_listen", zookeeper.into()),
    ];
    keys.into_iter().map(|(key, value)| format!("{key} = {value:?}\n")).collect()
}

/// The certificates of all ports are renewed while clients write: first the files of each node,
/// then a directory of files at once through a symbolic link, as Kubernetes does.
#[tokio::test]
async fn certificates_are_renewed_while_clients_write() {
    let certificates = Certificates::new("own");
    let mut cluster = Cluster::prepare(Options { zookeeper: true, ..Options::default() }).await;
    let ports = Ports::claim(6).unwrap();
    let directory = |id: u64| certificates.files.path(&format!("current-{id}"));
    let mut versions = 0;
    let mut renew = |id: u64| {
        versions += 1;
        let version = format!("v{versions}");
        std::fs::create_dir(certificates.files.path(&version)).unwrap();
        certificates.files.put(&format!("{version}/node"), &certificates.node(id, 90));
        certificates.files.put(&format!("{version}/server"), &certificates.authority.server("localhost"));
        let next = certificates.files.path("next");
        std::os::unix::fs::symlink(certificates.files.path(&version), &next).unwrap();
        std::fs::rename(next, directory(id)).unwrap();
    };
    let addr = |id: u64, port: u16| ports.addr(2 * (u16::try_from(id).unwrap() - 1) + port);
    for id in 1..=3 {
        renew(id);
        let keys = tls_at_all_ports(&directory(id), &certificates.ca, &addr(id, 0), &addr(id, 1));
        configure(&cluster, id, &keys);
        cluster.restart(id);
    }
    cluster.all_ready().await;
    let endpoints: Vec<String> =
        (1..=3).map(|id| format!("https://localhost:{}", addr(id, 0).rsplit_once(':').unwrap().1)).collect();
    // Nodes refuse requests until they are ready.
    let refused_before = failures(&cluster).await;
    let (written, load) = write_over_new_connections(endpoints, certificates.authority.pem());
    let zookeeper: Vec<String> = (1..=3).map(|id| cluster.zookeeper_endpoint(id).to_owned()).collect();
    let (written_zk, load_zk) = write_over_zookeeper(&zookeeper).await;
    for round in 1..=3 {
        for id in 1..=3 {
            renew(id);
            kill_process(cluster.pid(id), Signal::HUP).unwrap();
            until(&format!("node {id} has reloaded the files of three ports"), async || {
                let metrics = cluster.client(id).send(Call::get("/metrics")).await.ok()?;
                let metrics = String::from_utf8_lossy(&metrics.body);
                let done = |port: &str| {
                    metrics.contains(&format!("zlock_tls_reloads_total{{port=\"{port}\",result=\"done\"}} {round}\n"))
                };
                ["http", "zookeeper", "peers"].iter().all(|port| done(port)).then_some(())
            })
            .await;
            let counts = || [&written, &written_zk].map(|written| written.load(Ordering::Relaxed));
            let before = counts();
            until("each node has taken a write with the new certificates", async || {
                assert!(!load.is_finished() && !load_zk.is_finished(), "a write has failed");
                let now = counts();
                (now[0] >= before[0] + 4 && now[1] >= before[1] + 4).then_some(())
            })
            .await;
        }
    }
    assert_eq!(failures(&cluster).await, refused_before, "of {} writes", written.load(Ordering::Relaxed));
    load.abort();
    load_zk.abort();
    for id in 1..=3 {
        let log = cluster.log(id);
        assert!(!log.contains("handshake failed") && !log.contains("not reloaded"), "{log}");
    }
    // A restarted member uses the new certificates.
    assert_eq!(cluster.stop(3).await, Some(0));
    cluster.restart(3);
    cluster.all_ready().await;
}

#[tokio::test]
async fn members_with_tls_meet_over_ipv6() {
    let certificates = Certificates::new("peers");
    let mut cluster = Cluster::prepare(Options::default()).await;
    for id in 1..=3 {
        configure(&cluster, id, &format!("peers.tls = \"require\"\n{}", certificates.settings(id)));
        let mut text = std::fs::read_to_string(cluster.config(id)).unwrap();
        for key in ["peers.listen = \"", "peer_addr = \""] {
            text = text.replace(&format!("{key}127.0.0.1:"), &format!("{key}[::1]:"));
        }
        std::fs::write(cluster.config(id), text).unwrap();
        cluster.restart(id);
    }
    cluster.all_ready().await;
    cluster.client(1).create("/v1/znodes/kept", "1").await;
    let (tls, plain) = connections(&cluster).await;
    assert!(tls > 0 && plain == 0, "{tls} with TLS, {plain} without");
}

/// A follower's certificate is revoked while clients write to the other two nodes. The open
/// connections of the follower are closed, and both ends say why they open no new ones. With a new
/// certificate the follower comes back.
#[tokio::test]
async fn a_revoked_member_is_shut_out_and_comes_back() {
    let certificates = Certificates::new("peers");
    let mut cluster = Cluster::prepare(Options::default()).await;
    let crl = certificates.files.put_certificate("crl", &certificates.authority.crl(&[]));
    for id in 1..=3 {
        let own = certificates.settings(id);
        configure(&cluster, id, &format!("peers.tls = \"require\"\npeers.tls_crl = {crl:?}\n{own}"));
        cluster.restart(id);
    }
    cluster.all_ready().await;
    let leader = cluster.leader().await;
    let revoked = if leader == 3 { 2 } else { 3 };
    let others: Vec<u64> = (1..=3).filter(|id| *id != revoked).collect();
    let client = Client::builder(others.iter().map(|id| cluster.endpoint(*id).to_owned())).build().unwrap();
    let (written, load) = write(move || client.clone());
    // The authority has signed the certificates in the order of the nodes.
    certificates.files.put_certificate("crl", &certificates.authority.crl(&[revoked]));
    for id in &others {
        kill_process(cluster.pid(*id), Signal::HUP).unwrap();
    }
    until("both ends say that the certificate is revoked", async || {
        let refused = |line: &str| line.contains("refused at the peer port") && line.contains("Revoked");
        let counted = |id: &u64| cluster.log(*id).lines().any(|line| refused(line) && line.contains("times="));
        (cluster.log(revoked).contains("CertificateRevoked") && others.iter().any(counted)).then_some(())
    })
    .await;
    until("the revoked node has no connection", async || {
        (cluster.status(revoked).await?.peer_connections.tls == 0).then_some(())
    })
    .await;
    let before = written.load(Ordering::Relaxed);
    until("clients write without the revoked node", async || {
        (written.load(Ordering::Relaxed) > before + 10).then_some(())
    })
    .await;
    certificates.settings(revoked);
    kill_process(cluster.pid(revoked), Signal::HUP).unwrap();
    cluster.all_ready().await;
    assert!(!load.is_finished(), "a write has failed");
    load.abort();
    cluster.leader().await;
}
