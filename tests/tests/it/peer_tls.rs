//! TLS between members: three rolling restarts from connections without TLS to required TLS, and
//! strangers at the peer port.

use std::path::PathBuf;

use testkit::{Authority, Files};

use crate::cli::{run, zlock};
use crate::harness::{CLUSTER_ID, Call, Cluster, Options, run_to_end, until};

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
        self.authority.node(&uri(id), days)
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
    let own: Vec<String> = (1..=3).map(|id| certificates.settings(id)).collect();
    for step in
        ["peers.tls = \"permit\"\n", "peers.tls = \"permit\"\npeers.tls_dial = true\n", "peers.tls = \"require\"\n"]
    {
        for id in 1..=3 {
            configure(&cluster, id, &format!("{step}{}", own[id as usize - 1]));
            assert_eq!(cluster.stop(id).await, Some(0));
            cluster.restart(id);
            cluster.all_ready().await;
            cluster.client(id).create(&format!("/v1/znodes/{id}-{}", step.len()), "").await;
        }
        if step.contains("dial") {
            until("no connection between members is without TLS", async || {
                (connections(&cluster).await.1 == 0).then_some(())
            })
            .await;
        }
    }
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
    // So is a key that does not fit, and an authority that has not signed the certificate.
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
    // Node 3 as a stranger: without TLS, with an expired certificate, with that of another node,
    // and with that of another authority.
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
        cluster.kill(3);
    }
    let told = "the caller, node 3, has connected without TLS, which peers.tls requires here";
    assert!([1, 2].iter().any(|id| cluster.log(*id).contains(told)), "{}", cluster.log(1));
    configure(&cluster, 3, &require(third));
    cluster.restart(3);
    cluster.all_ready().await;
}
