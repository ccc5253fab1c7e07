//! `zlock dev`: a cluster on this machine, of node processes on loopback that start and stop
//! together.
//!
//! The nodes run `serve --until-stdin-ends` with a pipe from this process as stdin. This process
//! closes the pipe to stop them, and the kernel closes it if this process is killed. So no node
//! outlives this process. Each node has its own process group, so that a Ctrl-C in the terminal
//! signals only this process, which then stops the nodes cleanly.

mod child;
mod layout;
mod proof;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use child::Child;
use clap::{Arg, ArgMatches, Command};
use layout::{Layout, Node};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::cli::{file, flag, option};
use crate::{Exit, refuse, say};

/// Longest time until all nodes are ready with a common leader.
const LEADER_WAIT: Duration = Duration::from_secs(30);

/// Options of `zlock dev`.
struct Options {
    /// Number of nodes; `None` stands for the number in an existing data directory, or else 3.
    nodes: Option<u64>,
    /// Directory with the configuration and data of all nodes.
    data: PathBuf,
    /// HTTP port of node 1; `None` stands for the port in an existing data directory, or else 7001;
    /// 0 stands for free ports.
    base_port: Option<u16>,
    /// True if the nodes require TLS between each other.
    tls: bool,
    /// Additional flags for every node.
    serve_args: Vec<OsString>,
}

pub(crate) fn command() -> Command {
    let nodes = option("nodes", "COUNT", "Number of nodes [default: 3, or the number in the data directory]");
    let port = "HTTP port of node 1; the next nodes have the next ports, peer ports are 100 higher, ZooKeeper ports 200; 0 takes free ports [default: 7001, or the ports in the data directory]";
    Command::new("dev")
        .about("Runs a cluster of node processes on this machine until Ctrl-C; the data is kept for the next start")
        .arg(nodes.value_parser(clap::value_parser!(u64).range(1..=9)))
        .arg(file("data", "DIR", "Directory for the nodes' configuration and data").default_value("zlock-data"))
        .arg(option("base-port", "PORT", port).value_parser(clap::value_parser!(u16)))
        .arg(flag("tls", "Requires TLS between the nodes, with certificates that it makes in DIR/certs"))
        .arg(
            Arg::new("serve-args")
                .value_name("SERVE FLAG")
                .num_args(..)
                .last(true)
                .value_parser(clap::value_parser!(OsString))
                .help("Flags for every node's `zlock serve`, after `--`"),
        )
}

/// Runs the cluster until SIGINT or SIGTERM, or until all nodes have ended.
pub(crate) fn run(matches: &ArgMatches) -> Exit {
    let options = Options {
        nodes: matches.get_one("nodes").copied(),
        data: matches.get_one::<PathBuf>("data").expect("it has a default").clone(),
        base_port: matches.get_one("base-port").copied(),
        tls: matches.get_flag("tls"),
        serve_args: matches.get_many("serve-args").map(|args| args.cloned().collect()).unwrap_or_default(),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&format!("cannot start: {error}")),
    };
    runtime.block_on(dev(&options)).unwrap_or_else(|reason| refuse(&reason))
}

async fn dev(options: &Options) -> Result<Exit, String> {
    let signals = |kind| signal(kind).map_err(|error| format!("cannot listen for signals: {error}"));
    let mut interrupt = signals(SignalKind::interrupt())?;
    let mut terminate = signals(SignalKind::terminate())?;
    let layout = Layout::open_or_make(&options.data, options.nodes, options.base_port)?;
    layout.check_ports_are_free()?;
    let certificates = options.tls.then(|| layout.make_certificates()).transpose()?;
    let start = |node: &Node| {
        let tls = certificates.as_deref().map(|directory| node.tls_args(directory)).unwrap_or_default();
        Child::start(node, &[tls, options.serve_args.clone()].concat())
    };
    let mut children = layout.nodes.iter().map(start).collect::<Result<Vec<_>, _>>()?;

    let ended = tokio::select! {
        ended = run_until_ended(&layout, &mut children) => ended,
        _ = interrupt.recv() => Ok(Exit::Clean),
        _ = terminate.recv() => Ok(Exit::Clean),
    };
    say("stopping all nodes");
    let stopped = tokio::select! {
        stopped = stop(children) => stopped,
        // At a second signal the children are dropped, which kills them.
        _ = interrupt.recv() => Exit::Failed,
    };
    let exit = ended?;
    say("stopped");
    Ok(if exit == Exit::Clean { stopped } else { exit })
}

/// Waits for a leader, takes and releases a lock as a test, then waits until all nodes have ended,
/// and reports each end.
async fn run_until_ended(layout: &Layout, children: &mut [Child]) -> Result<Exit, String> {
    let client = proof::client(layout)?;
    let leader = tokio::select! {
        leader = proof::wait_for_leader(layout, &client, Instant::now() + LEADER_WAIT) => leader?,
        (id, status) = child::next_end(children) => {
            return Err(format!("node {id} ended with {status} instead of starting; its lines above say why"));
        }
    };
    for (node, child) in layout.nodes.iter().zip(&*children) {
        let leads = if node.id == leader { "  leader" } else { "" };
        let zookeeper = node.zookeeper_addr.as_ref().map(|addr| format!("  zookeeper {addr}")).unwrap_or_default();
        say(&format!("node {}  http://{}  pid {}{zookeeper}{leads}", node.id, node.http_addr, child.pid()));
    }
    say(&proof::take_a_lock(&client).await.map_err(|error| error.to_string())?);
    say(&proof::lines_to_paste(layout));
    for _ in 0..children.len() {
        let (id, status) = child::next_end(children).await;
        let config = layout.node(id).config.display();
        say(&format!("node {id} ended with {status}; `zlock serve --config {config}` starts it again"));
    }
    Err("no node is left".to_owned())
}

/// Stops all nodes at the same time and waits for their ends.
async fn stop(mut children: Vec<Child>) -> Exit {
    for child in &mut children {
        child.close_stdin();
    }
    let mut exit = Exit::Clean;
    for child in &mut children {
        if !child.ended_cleanly().await {
            exit = Exit::Failed;
        }
    }
    exit
}
