//! Process of one node, and forwarding of its output.

use std::ffi::OsString;
use std::future::poll_fn;
use std::io::Write as _;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{ChildStdin, Command};

use super::layout::Node;
use crate::{config, own_program};

/// Time that a node may take to end, in addition to its configured limit of a clean stop.
const STOP_WAIT_MORE: Duration = Duration::from_secs(5);
/// Configuration keys that limit the time of a clean stop.
const STOP_KEYS: [&str; 3] = ["node.stop_timeout", "node.drain_delay", "node.drain_time"];

/// Environment variables with values for a single node, which are not passed on to the nodes.
const OWN_VARIABLES: [&str; 12] = [
    "ZLOCK_ADMIN_SOCKET",
    "ZLOCK_CONFIG",
    "ZLOCK_NODE_ID",
    "ZLOCK_NODE_CLUSTER_ID",
    "ZLOCK_NODE_MEMBERS",
    "ZLOCK_HTTP_LISTEN",
    "ZLOCK_PEERS_LISTEN",
    "ZLOCK_ZOOKEEPER_LISTEN",
    "ZLOCK_HTTP_TLS_LISTEN",
    "ZLOCK_ZOOKEEPER_TLS_LISTEN",
    "ZLOCK_ZOOKEEPER_ADVERTISED_ADDR",
    "ZLOCK_LOG_FILE",
];

/// A running node. The drop kills its process.
pub(super) struct Child {
    id: u64,
    pid: u32,
    process: tokio::process::Child,
    stdin: Option<ChildStdin>,
    reported: bool,
    stop_wait: Duration,
}

impl Child {
    /// Starts this program as the node `node`, with additional flags.
    pub(super) fn start(node: &Node, serve_args: &[OsString]) -> Result<Child, String> {
        let failed = |error: std::io::Error| format!("cannot start node {}: {error}", node.id);
        let mut command = Command::from(own_program::command());
        command.arg("serve").arg("--config").arg(&node.config);
        command.arg("--node-data-dir").arg(&node.data_dir).arg("--until-stdin-ends").args(serve_args);
        for variable in OWN_VARIABLES {
            command.env_remove(variable);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.process_group(0).kill_on_drop(true).spawn().map_err(failed)?;
        let stdin = process.stdin.take();
        tokio::spawn(copy_lines(node.id, process.stdout.take().expect("it is piped")));
        tokio::spawn(copy_lines(node.id, process.stderr.take().expect("it is piped")));
        let pid = process.id().expect("nobody has waited for it");
        let stop_wait = stop_time_max(&node.config, serve_args) + STOP_WAIT_MORE;
        Ok(Child { id: node.id, pid, process, stdin, reported: false, stop_wait })
    }

    /// Process id of the node.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Tells the node to stop, by closing its stdin.
    pub(super) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for the node's end, and kills a node that does not end in time. Returns true if the
    /// node ended cleanly.
    pub(super) async fn ended_cleanly(&mut self) -> bool {
        match tokio::time::timeout(self.stop_wait, self.process.wait()).await {
            // An end that was reported before is no new failure.
            Ok(status) => self.reported || status.is_ok_and(|status| status.success()),
            Err(_) => {
                let _ = self.process.kill().await;
                false
            }
        }
    }
}

/// Returns the longest time of a clean stop with these settings. Returns the default when the
/// settings are refused, because the node does not start with them.
fn stop_time_max(config: &Path, serve_args: &[OsString]) -> Duration {
    let matches = crate::serve::command().no_binary_name(true).try_get_matches_from(serve_args);
    // Only these keys are taken from the environment, because the variables of a single node are
    // not passed on.
    let given = matches.map(|matches| config::given(&matches)).unwrap_or_default();
    let given = given.into_iter().filter(|given| STOP_KEYS.contains(&given.key.as_str()));
    config::load(Some(config), given).unwrap_or_default().stop_time_max()
}

/// Waits until a node ends whose end was not returned before. Returns the node's id and exit
/// status.
pub(super) async fn next_end(children: &mut [Child]) -> (u64, ExitStatus) {
    poll_fn(|context| {
        for child in children.iter_mut().filter(|child| !child.reported) {
            if let Poll::Ready(status) = pin!(child.process.wait()).poll(context) {
                child.reported = true;
                return Poll::Ready((child.id, status.unwrap_or_default()));
            }
        }
        Poll::Pending
    })
    .await
}

/// Copies a node's output to stderr, with the node's id before each line.
async fn copy_lines(id: u64, from: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let _ = writeln!(std::io::stderr(), "node {id} | {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_the_time_for_its_stop_that_its_settings_give_it() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("node1.toml");
        let check = |more: &str, args: &[&str], seconds: u64| {
            let own = "node.id = 1\nnode.members = \"1=127.0.0.1:7101/127.0.0.1:7001\"\n";
            std::fs::write(&config, [own, more].concat()).unwrap();
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            assert_eq!(stop_time_max(&config, &args), Duration::from_secs(seconds), "{more} {args:?}");
        };
        check("", &[], 10);
        check("node.drain_time = \"30s\"\n", &[], 40);
        check("node.drain_time = \"30s\"\nnode.stop_timeout = \"20s\"\n", &["--node-drain-time", "1m"], 80);
        check("", &["--node-stop-timeout=25s", "--log-level", "debug"], 25);
        // These flags are refused, so the node does not start.
        check("", &["--no-such-flag"], 10);
    }
}
