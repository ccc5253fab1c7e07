//! `zlock dev`, the first command of a new user.

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, test_kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::harness::{Call, Client, PROGRAM, Ports, kill, until};

struct Dev {
    process: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    /// HTTP address and process id of every node.
    nodes: Vec<(String, u32)>,
    said: String,
}

impl Dev {
    fn command(data: &Path) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("dev").arg("--data").arg(data).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Starts `zlock dev`, and reads its output up to the line that says how to stop all nodes.
    async fn start(data: &Path, args: &[&str]) -> Dev {
        let log = std::fs::File::create(data.with_extension("log")).unwrap();
        let mut command = Dev::command(data);
        let mut process = command.args(args).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut dev = Dev { process, stdout, nodes: Vec::new(), said: String::new() };
        while !dev.said.contains("Ctrl-C stops all nodes.") {
            let Some(line) = dev.stdout.next_line().await.unwrap() else {
                let log = std::fs::read_to_string(data.with_extension("log")).unwrap();
                panic!("it ended:\n{}\n{log}", dev.said);
            };
            if let Some((_, rest)) = line.split_once("  http://") {
                let words: Vec<&str> = rest.split_whitespace().collect();
                dev.nodes.push((words[0].to_owned(), words[2].parse().unwrap()));
            }
            dev.said.push_str(&line);
            dev.said.push('\n');
        }
        dev
    }

    async fn end(&mut self, signal: Signal) -> ExitStatus {
        kill(self.process.id().unwrap(), signal);
        let status = self.process.wait().await.unwrap();
        for (_, pid) in &self.nodes {
            let pid = Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
            until("its node is gone", async || test_kill_process(pid).is_err().then_some(())).await;
        }
        status
    }
}

#[tokio::test]
async fn dev_shows_a_lock_stops_cleanly_and_finds_its_data_again() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let ports = Ports::claim(16).unwrap();
    // The three HTTP ports are the block's first; the peer ports are 100 higher, perhaps in another
    // block.
    let base_port = ports.port(0).to_string();
    let mut dev = Dev::start(&data, &["--base-port", "0"]).await;
    assert_eq!(dev.nodes.len(), 3);
    assert!(dev.said.contains("a lock was taken with fencing token"), "{}", dev.said);
    assert!(dev.said.contains(&format!("curl -sS -X POST {}/v1/sessions", dev.nodes[0].0)), "{}", dev.said);
    let created = Client::new(&dev.nodes[1].0).send(Call::post("/v1/znodes/kept").body("x")).await.unwrap();
    assert_eq!(created.status, 201);

    // A second start on the same data is refused with the reason, and so are other ports and
    // another number of nodes.
    for (args, part) in [
        (vec![], "Is another `zlock dev` running?"),
        (vec!["--base-port", &base_port], "leave out --base-port"),
        (vec!["--nodes", "5"], "holds a cluster of 3 nodes, not 5"),
    ] {
        let refused = Dev::command(&data).args(&args).output().await.unwrap();
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(part), "{stderr}");
    }
    assert_eq!(dev.end(Signal::INT).await.code(), Some(0));

    let mut again = Dev::start(&data, &[]).await;
    assert_eq!(
        again.nodes.iter().map(|node| &node.0).collect::<Vec<_>>(),
        dev.nodes.iter().map(|node| &node.0).collect::<Vec<_>>()
    );
    assert_eq!(Client::new(&again.nodes[2].0).send(Call::get("/v1/znodes/kept")).await.unwrap().status, 200);
    assert_eq!(again.end(Signal::TERM).await.code(), Some(0));
}

/// `zlock dev` takes a lock `/hello` as an example. A new user may hold a lock of this name, and
/// the user's session outlives a restart of `zlock dev`.
#[tokio::test]
async fn dev_starts_also_when_the_lock_that_it_would_take_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut dev = Dev::start(&data, &["--base-port", "0", "--nodes", "1"]).await;
    let mut client = Client::new(&dev.nodes[0].0);
    let session = client.open_session(120_000).await;
    assert_eq!(client.send(Call::post("/v1/locks/hello").session(&session)).await.unwrap().status, 200);
    assert_eq!(dev.end(Signal::INT).await.code(), Some(0));

    let mut again = Dev::start(&data, &[]).await;
    assert!(again.said.contains("the lock /hello is held by another session"), "{}", again.said);
    assert_eq!(again.end(Signal::INT).await.code(), Some(0));
}

#[tokio::test]
async fn no_node_outlives_a_killed_dev() {
    let dir = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(&dir.path().join("data"), &["--base-port", "0", "--nodes", "1"]).await;
    assert_eq!(dev.nodes.len(), 1);
    assert!(!dev.end(Signal::KILL).await.success());
}

#[tokio::test]
async fn dev_starts_again_with_tls_between_its_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut dev = Dev::start(&data, &["--base-port", "0"]).await;
    let mut client = Client::new(&dev.nodes[0].0);
    assert_eq!(client.send(Call::post("/v1/znodes/kept")).await.unwrap().status, 201);
    dev.end(Signal::TERM).await;
    let mut dev = Dev::start(&data, &["--tls"]).await;
    let mut client = Client::new(&dev.nodes[0].0);
    assert_eq!(client.send(Call::get("/v1/znodes/kept")).await.unwrap().status, 200);
    let status: zlock_client::Cluster = client.send(Call::get("/v1/cluster")).await.unwrap().json();
    let peers = status.peer_connections;
    assert!(peers.tls > 0 && peers.plain == 0, "{peers:?}");
    dev.end(Signal::TERM).await;
}
