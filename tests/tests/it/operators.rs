//! Commands of operators on the node's machine: the admin socket, a node that is drained (hands
//! over leadership, but still serves), and a stop after a delay.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Instant;

use rustix::process::{Signal, kill_process};
use zlock_client::Client;
use zlock_client::api::{ClusterHealth, Drain};

use crate::cli::{done, run, zlock};
use crate::harness::{Call, Cluster, Options, PROGRAM, run_to_end, until};

/// Path of a node's admin socket.
fn socket(cluster: &Cluster, id: u64) -> PathBuf {
    cluster.config(id).with_extension("sock")
}

/// Starts an ensemble whose nodes have admin sockets.
async fn cluster(nodes: u64, settings: &'static str) -> Cluster {
    let mut cluster = Cluster::prepare(Options { nodes, settings, ..Options::default() }).await;
    for id in cluster.ids() {
        let config = std::fs::read_to_string(cluster.config(id)).unwrap();
        std::fs::write(cluster.config(id), format!("{config}admin.socket = {:?}\n", socket(&cluster, id))).unwrap();
        cluster.restart(id);
    }
    cluster.all_ready().await;
    cluster
}

/// Body of a node's answer to `/readyz`; `None` when the node is ready.
async fn not_ready(cluster: &Cluster, id: u64) -> Option<String> {
    let answer = cluster.client(id).send(Call::get("/readyz?verbose")).await.unwrap();
    (answer.status == 503).then(|| String::from_utf8_lossy(&answer.body).into_owned())
}

#[tokio::test]
async fn a_leader_that_is_drained_by_its_socket_gives_leadership_away_and_serves_on() {
    let cluster = cluster(3, "").await;
    let leader = cluster.leader().await;
    let path = socket(&cluster, leader);
    let path = path.to_str().unwrap();
    let health =
        async |id| -> ClusterHealth { cluster.client(id).send(Call::get("/v1/cluster/health")).await.unwrap().json() };
    until("one more may fail", async || (health(leader).await.failure_tolerance == Some(1)).then_some(())).await;

    let drained: Drain =
        serde_json::from_str(&done(&cluster, &["drain", "--admin-socket", path, "--json"]).await).unwrap();
    assert_eq!((drained.node_id, drained.draining), (leader, true));
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    cluster.leader_among(&others).await;
    // The others may agree on the next leader before its first heartbeat comes to the drained node,
    // which until then says that it hears no leader.
    let hears = |told: &String| told.contains("[+]quorum ok\n");
    let told = until("it hears the next leader", async || not_ready(&cluster, leader).await.filter(hears)).await;
    assert!(told.contains("[-]drain failed: an operator has drained the node\n"), "{told}");
    cluster.client(leader).create("/v1/znodes/by-the-drained-one", "").await;
    until("the drained one does not lead", async || (cluster.leader().await != leader).then_some(())).await;

    assert_eq!(
        done(&cluster, &["drain", "--admin-socket", path, "--undo"]).await,
        format!("node {leader} is drained no more\n")
    );
    until("it is ready again", async || not_ready(&cluster, leader).await.is_none().then_some(())).await;
    // The socket serves all routes, and the Rust client can use it, too.
    let client = Client::builder([format!("unix:{path}")]).build().unwrap();
    client.create("/by-the-socket", "").await.unwrap();
    assert_eq!(client.status().await[0].1.as_ref().unwrap().node_id, leader);
    client.close().await.unwrap();

    // At the address for all clients, operators' commands are refused.
    let (code, _, stderr) = run(zlock(&cluster, &["drain", "--endpoints", cluster.endpoint(leader)])).await;
    assert!(
        code == 1 && stderr.contains("this is for operators") && stderr.contains("--admin-socket"),
        "{code}: {stderr}"
    );
    let (code, _, stderr) = run(zlock(&cluster, &["drain"])).await;
    assert!(code == 2 && stderr.contains("a drain is of one node"), "{code}: {stderr}");
    let both = ["ls", "--admin-socket", path, "--endpoints", cluster.endpoint(leader)];
    let (code, _, stderr) = run(zlock(&cluster, &both)).await;
    assert!(code == 2 && stderr.contains("give one of them"), "{code}: {stderr}");
    let mut by_variable = zlock(&cluster, &["status", "--json"]);
    by_variable.env("ZLOCK_ADMIN_SOCKET", path);
    let (code, stdout, stderr) = run(by_variable).await;
    assert!(code == 0 && stdout.matches("\"endpoint\":").count() == 1 && stdout.contains("unix:"), "{stdout}{stderr}");
}

#[tokio::test]
async fn a_command_in_a_session_connects_as_zlock_itself() {
    let cluster = cluster(1, "").await;
    let socket = socket(&cluster, 1);
    let exec = ["session", "exec", "--", "sh", "-c", "exec \"$ZLOCK\" status --json"];
    for (option, value, unused, endpoint) in [
        ("--endpoints", cluster.endpoint(1), &["ZLOCK_ADMIN_SOCKET"][..], cluster.endpoint(1)),
        ("--admin-socket", socket.to_str().unwrap(), &["ZLOCK_CA", "ZLOCK_KEY", "ZLOCK_CLIENT_CONFIG"], "unix:"),
    ] {
        let mut command = zlock(&cluster, &[option, value]);
        command.args(exec).env("ZLOCK", PROGRAM).envs(unused.iter().map(|variable| (variable, "/none")));
        let (code, stdout, stderr) = run(command).await;
        assert!(code == 0 && stdout.contains(endpoint), "{option}: {stdout}{stderr}");
    }
}

#[tokio::test]
async fn a_node_that_stops_after_a_delay_is_not_ready_meanwhile_and_its_socket_goes_with_it() {
    let mut cluster = cluster(1, "node.drain_delay = \"6s\"").await;
    let path = socket(&cluster, 1);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    // Another node cannot take the socket over.
    let (code, stderr) = run_to_end(["serve", "--http-listen", "127.0.0.1:0"], Some(cluster.config(1)));
    assert!(code == 1 && stderr.contains("admin.socket: ") && stderr.contains("a process listens there"), "{stderr}");
    // The socket file of a killed node is replaced.
    cluster.kill(1);
    assert!(path.exists());
    cluster.restart(1);
    cluster.all_ready().await;
    let path = path.to_str().unwrap().to_owned();
    done(&cluster, &["ls", "--admin-socket", &path]).await;

    kill_process(cluster.pid(1), Signal::TERM).unwrap();
    let told = until("it is not ready", async || not_ready(&cluster, 1).await).await;
    assert!(told.contains("[-]drain failed: the node stops soon\n"), "{told}");
    // Until the delay is over the node serves as before, even new clients.
    cluster.client(1).create("/v1/znodes/meanwhile", "").await;
    done(&cluster, &["ls", "--admin-socket", &path]).await;
    let status = until("it has ended", async || cluster.ended(1)).await;
    assert_eq!(status.code(), Some(0), "{}", cluster.log(1));
    assert!(!PathBuf::from(path).exists());
    let stopped = cluster.log(1).lines().rfind(|line| line.contains(": stopped ")).unwrap().to_owned();
    let took = stopped.split_once("took_ms=").unwrap().1.split(' ').next().unwrap().parse::<u64>().unwrap();
    assert!(took >= 6_000, "{stopped}");
}

/// Lines of a node's log with this message.
fn lines(cluster: &Cluster, id: u64, message: &str) -> Vec<String> {
    cluster.log(id).lines().filter(|line| line.contains(message)).map(str::to_owned).collect()
}

#[tokio::test]
async fn requests_for_operators_are_logged_with_their_callers() {
    let cluster = cluster(1, "admin.super_digest = \"super:D/InIHSb7yEEbrWz8b9l71RjZJU=\"").await;
    let path = socket(&cluster, 1);
    let path = path.to_str().unwrap();
    let as_super = [("--user", "super:test"), ("--endpoints", cluster.endpoint(1))];
    let as_super: Vec<&str> = as_super.into_iter().flat_map(|(name, value)| [name, value]).collect();
    let (status, zone) = (["upgrade", "status"], ["member", "update", "1", "--zone", "east"]);
    done(&cluster, &["member", "list", "--admin-socket", path]).await;
    done(&cluster, &[&status[..], &as_super].concat()).await;
    done(&cluster, &[&zone[..], &as_super].concat()).await;
    let logged = lines(&cluster, 1, "an operator's request");
    let expected = [
        ["operator=\"admin-socket\"", "method=GET", "path=\"/v1/admin/members\""],
        ["operator=\"super\"", "method=GET", "path=\"/v1/admin/upgrade\""],
        ["operator=\"super\"", "method=PUT", "path=\"/v1/admin/members/1?zone=east\""],
    ];
    assert_eq!(logged.len(), expected.len(), "{logged:?}");
    for (line, words) in logged.iter().zip(expected) {
        assert!(words.iter().all(|words| line.contains(words)) && line.contains("addr=127.0.0.1"), "{line}");
    }

    // Refused callers share lines, and cannot forge one.
    let began = Instant::now();
    for _ in 0..20 {
        let refused = Call::get("/v1/admin/members\"forged=1?zone=east").header("authorization", "Basic Ym9iOng=");
        assert_eq!(cluster.client(1).send(refused).await.unwrap().status, 401);
    }
    let logged = lines(&cluster, 1, "a caller who is no operator was refused");
    let expected = "addr=127.0.0.1 method=GET path=\"/v1/admin/members\\\"forged=1\" times=1";
    assert!(logged[0].contains(expected) && logged[0].contains("WARN"), "{logged:?}");
    let pauses = began.elapsed().as_secs() / 10;
    assert!(logged.len() as u64 <= 1 + pauses, "{logged:?}");
}
