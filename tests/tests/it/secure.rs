//! A node with TLS, and commands of a client that use it: real processes and real files.

use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{Authority, Files};
use zlock_client::Client;

use crate::cli::run;
use crate::harness::{Cluster, Options, PROGRAM, Ports, run_to_end};

/// curl's options for a client certificate, as docs/cli.md has them.
const OWN_CERTIFICATE: &str = "--cert \"$ZLOCK_CERTIFICATE\" --key \"$ZLOCK_KEY\"";

/// Runs a command against the node that listens with TLS on this port. `files` are options with the
/// paths of certificates and keys.
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
    let (authority, files, ports) = (Authority::new("test authority"), Files::create(), Ports::claim(16).unwrap());
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
        &*format!("{text}\nhttp.tls_listen = \"127.0.0.1:{port}\"\ntls.client_certificates = \"required\"\n"),
        &*file("tls.certificate", &certificate),
        &*file("tls.client_ca", &ca),
    ]
    .concat();
    // The configured key file is the certificate, which holds no key.
    std::fs::write(&config, format!("{text}{}", file("tls.key", &certificate))).unwrap();
    let (code, stderr) = run_to_end(["serve"], Some(&config));
    let said = stderr.contains("tls-bad-key") && stderr.contains("server.pem");
    assert!(code == 1 && said, "{code}: {stderr}");

    std::fs::write(&config, format!("{text}{}", file("tls.key", &key))).unwrap();
    cluster.restart(1);
    cluster.all_ready().await;
    let known = [("--ca", ca.clone()), ("--certificate", own), ("--key", own_key)];
    let (code, _, stderr) = zlock(&port, &["create", "/a", "hello"], &known).await;
    assert_eq!(code, 0, "{stderr}");
    let (code, stdout, stderr) = zlock(&port, &["get", "/a"], &known).await;
    assert_eq!((code, stdout.trim()), (0, "hello"), "{stderr}");

    // Without `--ca`, the client knows the authorities of this system.
    let (code, _, stderr) = zlock(&port, &["get", "/a"], &known[1..]).await;
    assert!(code == 3 && stderr.contains("UnknownIssuer: name the authority"), "{stderr}");
    let expired = [("--ca", ca.clone()), ("--certificate", late), ("--key", late_key)];
    for (stranger, words) in [
        (&known[..1], "TLS: the node asks for a client's certificate, and none was given (alert CertificateRequired)"),
        (&expired, "TLS: the node does not take this client's certificate (alert CertificateExpired)"),
    ] {
        // If the program retried, it would go on for a minute.
        for args in [&["get", "/a", "--timeout", "60s"][..], &["status", "--timeout", "60s"]] {
            let (code, stdout, stderr) = zlock(&port, args, stranger).await;
            assert!(code == 3 && stderr.contains(words), "{args:?}: {code}: {stdout}{stderr}");
        }
    }

    // The authority is one of this system's.
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

/// The lines of docs/cli.md that use curl in `zlock session exec`, with curl's options for nodes
/// that ask for a certificate.
fn documented_script() -> String {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md")).unwrap();
    assert!(page.contains(OWN_CERTIFICATE));
    let mut blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.starts_with("zlock session exec")).unwrap().to_owned()
}

#[tokio::test]
async fn the_curl_of_a_script_reaches_a_node_with_tls_by_the_files_that_zlock_was_given() {
    let (authority, files, ports) = (Authority::new("test authority"), Files::create(), Ports::claim(16).unwrap());
    let (certificate, key) = files.put("server", &authority.server("localhost"));
    let ca = files.put_certificate("ca", &authority.pem());
    let (own, _) = files.put("client", &authority.client("worker", 30));
    let listen = ports.addr(0);
    let url = format!("https://localhost:{}", listen.rsplit_once(':').unwrap().1);

    let mut cluster = Cluster::prepare(Options { nodes: 1, ..Options::default() }).await;
    let text = std::fs::read_to_string(cluster.config(1)).unwrap();
    let tls = format!("tls.certificate = {certificate:?}\ntls.key = {key:?}\ntls.client_ca = {ca:?}\n");
    std::fs::write(cluster.config(1), format!("{text}\nhttp.tls_listen = {listen:?}\n{tls}")).unwrap();
    cluster.restart(1);
    cluster.all_ready().await;

    // This directory has all that the script needs: `zlock`, the work, and the configuration file
    // of the client.
    let dir = own.parent().unwrap();
    std::os::unix::fs::symlink(PROGRAM, dir.join("zlock")).unwrap();
    std::fs::write(dir.join("work.sh"), "echo worked\n").unwrap();
    let config = dir.join("client.toml");
    std::fs::write(&config, format!("endpoints = [{url:?}]\nca = \"ca.pem\"\n")).unwrap();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let script = async |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(dir).env("PATH", &path).env("ZLOCK_CLIENT_CONFIG", &config);
        shell.stdin(Stdio::null());
        run(shell).await
    };
    let (code, stdout, stderr) = script(&documented_script().replace("./work.sh", "sh ./work.sh")).await;
    assert!(code == 0 && stdout.contains("\"held\"") && stdout.ends_with("worked\n"), "{code}: {stdout}{stderr}");

    // The script works from another directory, and without the client's configuration file.
    let own = "zlock session exec --certificate client.pem --key client-key.pem -- sh -c '";
    let curl = format!("cd / && unset ZLOCK_CLIENT_CONFIG && curl -sf --cacert \"$ZLOCK_CA\" {OWN_CERTIFICATE}");
    let (code, stdout, stderr) = script(&format!("{own}{curl} $ZLOCK_ENDPOINT/v1/cluster && zlock ls'")).await;
    assert!(code == 0 && stdout.ends_with("orders\n"), "{code}: {stdout}{stderr}");
}
