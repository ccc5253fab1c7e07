//! One node process, and its lines.

use std::ffi::OsString;
use std::future::poll_fn;
use std::io::Write as _;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{ChildStdin, Command};

use super::layout::Node;

/// A node's own bound on a clean stop is shorter than this.
const STOP_WAIT: Duration = Duration::from_secs(15);

/// Variables that are about one node, and so are not passed on to all of them.
const OWN_VARIABLES: [&str; 8] = [
    "ZLOCK_CONFIG",
    "ZLOCK_NODE_ID",
    "ZLOCK_CLUSTER_ID",
    "ZLOCK_MEMBERS",
    "ZLOCK_HTTP_LISTEN",
    "ZLOCK_PEER_LISTEN",
    "ZLOCK_ZOOKEEPER_LISTEN",
    "ZLOCK_LOG_FILE",
];

/// A running node. Dropping it kills it.
pub(super) struct Child {
    id: u64,
    pid: u32,
    process: tokio::process::Child,
    stdin: Option<ChildStdin>,
    reported: bool,
}

impl Child {
    /// Starts this very program as a node.
    pub(super) fn start(node: &Node, serve_args: &[OsString]) -> Result<Child, String> {
        let failed = |error: std::io::Error| format!("cannot start node {}: {error}", node.id);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("serve").arg("--config").arg(&node.config);
        command.arg("--data-dir").arg(&node.data_dir).arg("--until-stdin-ends").args(serve_args);
        for variable in OWN_VARIABLES {
            command.env_remove(variable);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.process_group(0).kill_on_drop(true).spawn().map_err(failed)?;
        let stdin = process.stdin.take();
        tokio::spawn(copy_lines(node.id, process.stdout.take().expect("it is piped")));
        tokio::spawn(copy_lines(node.id, process.stderr.take().expect("it is piped")));
        let pid = process.id().expect("nobody has waited for it");
        Ok(Child { id: node.id, pid, process, stdin, reported: false })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Tells it to stop.
    pub(super) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end; one that does not end is killed.
    pub(super) async fn ended_cleanly(&mut self) -> bool {
        match tokio::time::timeout(STOP_WAIT, self.process.wait()).await {
            // One that ended before was reported then.
            Ok(status) => self.reported || status.is_ok_and(|status| status.success()),
            Err(_) => {
                let _ = self.process.kill().await;
                false
            }
        }
    }
}

/// The next node that ends and was not reported yet.
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

/// Copies a node's lines to stderr, with the node before each.
async fn copy_lines(id: u64, from: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let _ = writeln!(std::io::stderr(), "node {id} | {line}");
    }
}
