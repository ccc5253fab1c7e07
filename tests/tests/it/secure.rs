//! A node with TLS, and the commands of a client that come by it: real processes and real files.

#[path = "../../../crates/tls/tests/authority/mod.rs"]
pub(crate) mod authority;

use std::process::{Command, Stdio};
use std::time::Duration;

use authority::{Authority, Files};
use zlock_client::Client;

use crate::cli::run;
use crate::harness::{Cluster, Options, PROGRAM, Ports, run_to_end};

/// Runs a command against the node that listens with TLS there.
async fn zlock(port: &str, args: &[&str], files: &[(&str, std::path::PathBuf)]) -> (i32, String, String) {
    let mut command = Command::new(PROGRAM);
    command.env("ZLOCK_ENDPOINTS", format!("https://localhost:{port}")).stdin(Stdio::null()).args(args);
    for (flag, file) in files {
        command.arg(flag).arg(file);
    }
    run(command).await
}

#[tokio::test]
async fn commands_reach_a_node_with_tls_by_their_certificates() {
    let (authority, files, ports) = (Authority::new("test authority"), Files::new(), Ports::claim());
    let (certificate, key) = files.put("server", &authority.server("localhost"));
    let ca = files.put_certificate("ca", &authority.pem());
    let worker = authority.client("worker", 30);
    let (own, own_key) = files.put("client", &worker);
    let (late, late_key) = files.put("late", &authority.client("worker", -1));
    let port = ports.addr(0).rsplit_once(':').unwrap().1.to_owned();

    let mut cluster = Cluster::prepare(Options { nodes: 1, ..Options::default() }).await;
    let config = cluster.config(1).to_owned();
    let text = std::fs::read_to_string(&config).unwrap();
    let file = |key: &str, path: &std::path::Path| format!("{key} = {:?}\n", path.display().to_string());
    let text = [
        &*format!("{text}\nhttp_tls_listen = \"127.0.0.1:{port}\"\ntls_clients = \"required\"\n"),
        &*file("tls_certificate", &certificate),
        &*file("tls_client_ca", &ca),
    ]
    .concat();
    // The certificate is no key.
    std::fs::write(&config, format!("{text}{}", file("tls_key", &certificate))).unwrap();
    let (code, stderr) = run_to_end(["serve"], Some(&config));
    let said = stderr.contains("tls-bad-key") && stderr.contains("server.pem");
    assert!(code == 1 && said, "{code}: {stderr}");

    std::fs::write(&config, format!("{text}{}", file("tls_key", &key))).unwrap();
    cluster.restart(1);
    cluster.all_ready().await;
    let known = [("--ca", ca.clone()), ("--certificate", own), ("--key", own_key)];
    let (code, _, stderr) = zlock(&port, &["create", "/a", "hello"], &known).await;
    assert_eq!(code, 0, "{stderr}");
    let (code, stdout, stderr) = zlock(&port, &["get", "/a"], &known).await;
    assert_eq!((code, stdout.trim()), (0, "hello"), "{stderr}");

    // Without authorities of its own choice it knows those of this system.
    let (code, _, stderr) = zlock(&port, &["get", "/a"], &known[1..]).await;
    assert!(code == 3 && stderr.contains("UnknownIssuer: name the authority"), "{stderr}");
    let expired = [("--ca", ca.clone()), ("--certificate", late), ("--key", late_key)];
    for (stranger, words) in [
        (&known[..1], "TLS: the node asks for a client's certificate, and none was given (alert CertificateRequired)"),
        (&expired, "TLS: the node does not take this client's certificate (alert CertificateExpired)"),
    ] {
        // It would be tried for a minute.
        for args in [&["get", "/a", "--timeout", "60s"][..], &["status", "--timeout", "60s"]] {
            let (code, stdout, stderr) = zlock(&port, args, stranger).await;
            assert!(code == 3 && stderr.contains(words), "{args:?}: {code}: {stdout}{stderr}");
        }
    }

    // As one of this system's authorities.
    let mut command = Command::new(PROGRAM);
    command.args(["get", "/a"]).arg(known[1].0).arg(&known[1].1).arg(known[2].0).arg(&known[2].1);
    command.env("ZLOCK_ENDPOINTS", format!("https://localhost:{port}")).env("SSL_CERT_FILE", &ca).stdin(Stdio::null());
    let (code, stdout, stderr) = run(command).await;
    assert_eq!((code, stdout.as_str()), (0, "hello"), "{stderr}");

    let addr = format!("https://localhost:{port}");
    let (own_pem, own_key_pem) = &worker;
    let builder = Client::builder([addr.as_str()]).ca_pem(authority.pem());
    let client = builder.clone().certificate_pem(own_pem.as_str(), own_key_pem.as_str()).build().unwrap();
    assert_eq!(&*client.get("/a").await.unwrap().data, b"hello", "with PEM in memory");
    let refused = builder.operation_timeout(Duration::from_secs(86_400)).build().unwrap().get("/a").await.unwrap_err();
    assert!(refused.to_string().contains("alert CertificateRequired"), "{refused}");
}
