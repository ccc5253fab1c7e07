//! Clusters of the measured systems. Each starts with empty data on loopback, on free ports, with
//! the system's own defaults except where stated.

mod etcd;
mod process;
mod redis;
mod zlock;
mod zookeeper;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use testkit::http::{Client, SOON};
use testkit::{Ports, Process, last_lines};

pub(crate) use self::process::own_cpu_time;
use crate::client::Door;
use crate::error::Error;

const START_WAIT: Duration = Duration::from_secs(60);
/// Longest time of a restart with a million znodes.
const RESTART_WAIT: Duration = Duration::from_secs(150);

/// Longest time to wait for a node to tell its term; the node may be busy with hostile clients.
const TERM_WAIT: Duration = Duration::from_secs(5);

/// Enum whose variants have names.
pub(crate) trait Named: ValueEnum {
    /// Name of the variant on the command line, in tables and in files.
    fn name(&self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl<T: ValueEnum> Named for T {}

/// A system, and the protocol by which its clients use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// zlock over HTTP.
    ZlockRest,
    /// zlock over ZooKeeper's protocol.
    ZlockZk,
    /// ZooKeeper, three nodes.
    Zookeeper,
    /// etcd, three nodes.
    Etcd,
    /// Redis, one node, every write synced.
    Redis,
}

impl Kind {
    /// The protocol that clients of the system speak.
    pub(crate) fn door(self) -> Door {
        match self {
            Kind::ZlockRest => Door::Rest,
            Kind::ZlockZk | Kind::Zookeeper => Door::ZooKeeper,
            Kind::Etcd => Door::Etcd,
            Kind::Redis => Door::Redis,
        }
    }

    /// The program whose cluster serves the system. One cluster of zlock serves both its protocols.
    pub(crate) fn program(self) -> Program {
        match self {
            Kind::ZlockRest | Kind::ZlockZk => Program::Zlock,
            Kind::Zookeeper => Program::ZooKeeper,
            Kind::Etcd => Program::Etcd,
            Kind::Redis => Program::Redis,
        }
    }
}

/// Server program of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Zlock,
    ZooKeeper,
    Etcd,
    Redis,
}

/// One server of a cluster.
struct Node {
    plan: Plan,
    log: PathBuf,
    process: Process,
}

impl Node {
    fn rest(&self) -> &str {
        self.plan.rest.as_deref().unwrap_or_default()
    }
}

/// A running cluster with its own data. Dropping it ends the nodes and removes the data.
pub(crate) struct Cluster {
    pub(crate) program: Program,
    nodes: Vec<Node>,
    // This field drops after the nodes, so that the processes end before their data is removed.
    data: TempDir,
    ports: Ports,
}

/// Command line and addresses of a node.
struct Plan {
    program: PathBuf,
    arguments: Vec<String>,
    /// Address of zlock's HTTP server; `None` for other systems, which have only `client`.
    rest: Option<String>,
    client: String,
}

impl Cluster {
    /// Starts `nodes` servers and waits until all of them serve. With `peer_tls` the nodes of zlock
    /// require TLS of each other.
    pub(crate) async fn start(program: Program, nodes: u16, peer_tls: bool) -> Result<Cluster, Error> {
        let data = tempfile::tempdir()?;
        // One more node may join the cluster later.
        let ports = Ports::claim(3 * (nodes + 1))?;
        let mut plans = match program {
            Program::Zlock => zlock::plans(data.path(), nodes, &ports)?,
            Program::ZooKeeper => zookeeper::plans(data.path(), nodes, &ports)?,
            Program::Etcd => etcd::plans(data.path(), nodes, &ports)?,
            Program::Redis => redis::plans(data.path(), &ports)?,
        };
        if peer_tls {
            zlock::require_peer_tls(&mut plans, data.path(), &ports)?;
        }
        let start = |(number, plan): (usize, Plan)| {
            let log = data.path().join(format!("log-{number}"));
            let process = process::start(&plan.program, &plan.arguments, &log)?;
            Ok(Node { plan, log, process })
        };
        let nodes = plans.into_iter().enumerate().map(start).collect::<io::Result<Vec<Node>>>()?;
        let cluster = Cluster { program, nodes, data, ports };
        cluster.wait_until_all_serve(START_WAIT).await?;
        Ok(cluster)
    }

    /// Waits until every node serves again, after one of them did not.
    pub(crate) async fn wait_until_recovered(&self) -> Result<(), Error> {
        self.wait_until_all_serve(START_WAIT).await
    }

    async fn wait_until_all_serve(&self, limit: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + limit;
        for node in &self.nodes {
            while !self.serves(node).await {
                if Instant::now() > deadline {
                    let tail = last_lines(&node.log, 5).join(" | ");
                    let (program, seconds) = (self.program, limit.as_secs());
                    return Err(Error::Absent(format!("{program:?} was not up within {seconds} s; its log: {tail}")));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    async fn serves(&self, node: &Node) -> bool {
        let asked = async {
            match self.program {
                Program::Zlock => Client::new(node.rest()).is_ready().await,
                Program::ZooKeeper => zookeeper::mode(&node.plan.client).await.is_ok_and(|mode| mode.is_some()),
                Program::Etcd => etcd::leads(&node.plan.client).await.is_ok_and(|leads| leads.is_some()),
                Program::Redis => crate::client::Redis::open(&node.plan.client).await.is_ok(),
            }
        };
        tokio::time::timeout(Duration::from_secs(2), asked).await.unwrap_or(false)
    }

    /// Returns the index of the node that leads.
    pub(crate) async fn leader(&self) -> Result<usize, Error> {
        let deadline = Instant::now() + START_WAIT;
        while Instant::now() < deadline {
            for (number, node) in self.nodes.iter().enumerate() {
                let asked = async {
                    match self.program {
                        Program::Zlock => zlock::status(node.rest(), SOON).await.map(|status| status.role == "leader"),
                        Program::ZooKeeper => {
                            Ok(zookeeper::mode(&node.plan.client).await?.is_some_and(|mode| mode == "leader"))
                        }
                        Program::Etcd => Ok(etcd::leads(&node.plan.client).await?.unwrap_or(false)),
                        Program::Redis => Ok(true),
                    }
                };
                // A node that SIGSTOP has stopped does not answer, and another node leads then.
                if matches!(tokio::time::timeout(Duration::from_secs(1), asked).await, Ok(Ok(true))) {
                    return Ok(number);
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(Error::Answer("no node leads".into()))
    }

    /// Returns the highest term that a node of zlock knows, which rises with every election; `None`
    /// when no node answers.
    pub(crate) async fn term(&self) -> Option<u64> {
        let asked =
            self.nodes.iter().filter_map(|node| node.plan.rest.as_deref()).map(|rest| zlock::status(rest, TERM_WAIT));
        let told = futures_util::future::join_all(asked).await;
        told.into_iter().filter_map(|status| Some(status.ok()?.term)).max()
    }

    /// Addresses at which the nodes serve a protocol, in the order of the nodes.
    pub(crate) fn addrs(&self, door: Door) -> Vec<String> {
        let addr = |plan: &Plan| if door == Door::Rest { plan.rest.clone() } else { Some(plan.client.clone()) };
        self.nodes.iter().filter_map(|node| addr(&node.plan)).collect()
    }

    /// Addresses at which nodes of zlock listen for peers, in the order of the nodes.
    pub(crate) fn peer_addrs(&self) -> Vec<String> {
        (0..).zip(&self.nodes).map(|(n, _)| zlock::peer_addr(n, &self.ports)).collect()
    }

    /// Number of nodes in the cluster.
    pub(crate) fn size(&self) -> usize {
        self.nodes.len()
    }

    /// Memory of the node that has most, in bytes.
    pub(crate) fn memory_of_the_largest_bytes(&self) -> io::Result<u64> {
        let each = self.nodes.iter().map(|node| process::memory_bytes(std::iter::once(node.process.id())));
        Ok(each.collect::<io::Result<Vec<u64>>>()?.into_iter().max().unwrap_or_default())
    }

    /// Memory of all nodes together, in bytes.
    pub(crate) fn memory_bytes(&self) -> io::Result<u64> {
        process::memory_bytes(self.nodes.iter().map(|node| node.process.id()))
    }

    /// Processor time that all nodes have used so far.
    pub(crate) fn cpu_time(&self) -> io::Result<Duration> {
        process::cpu_time(self.nodes.iter().map(|node| node.process.id()))
    }

    /// Starts one more node of zlock, which is no member yet, and waits until it answers. Returns
    /// its process, and the node as an argument of `zlock member add`.
    pub(crate) async fn start_joining(&self) -> Result<(Process, String), Error> {
        let (plan, named) = zlock::joining(self.data.path(), self.nodes.len() as u16, &self.ports)?;
        let process = process::start(&plan.program, &plan.arguments, &self.data.path().join("log-joining"))?;
        let (rest, deadline) = (plan.rest.unwrap_or_default(), Instant::now() + START_WAIT);
        while let Err(error) = zlock::status(&rest, SOON).await {
            if Instant::now() > deadline {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok((process, named))
    }

    /// Runs a command of the program `zlock` at the admin socket of the first node.
    pub(crate) async fn operate(&self, arguments: &[&str]) -> Result<(), Error> {
        let mut command = Command::new(&self.nodes[0].plan.program);
        command.args(arguments).env("ZLOCK_ADMIN_SOCKET", zlock::admin_socket(self.data.path(), 0));
        let done = tokio::task::spawn_blocking(move || command.output()).await.expect("nothing panics there")?;
        let stderr = String::from_utf8_lossy(&done.stderr);
        if done.status.success() { Ok(()) } else { Err(Error::Answer(format!("{arguments:?}: {stderr}"))) }
    }

    /// Directory of the nodes' data.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// Kills a node with SIGKILL.
    pub(crate) fn kill(&mut self, number: usize) {
        self.nodes[number].process.kill();
    }

    /// Stops a node with SIGSTOP. No thread of the node runs when this returns.
    pub(crate) fn pause(&self, number: usize) -> io::Result<()> {
        self.nodes[number].process.pause()
    }

    /// Continues a node that was stopped.
    pub(crate) fn resume(&self, number: usize) -> io::Result<()> {
        self.nodes[number].process.resume()
    }

    /// Starts a node that was killed, on its own data.
    pub(crate) fn start_again(&mut self, number: usize) -> io::Result<()> {
        let node = &mut self.nodes[number];
        node.process = process::start(&node.plan.program, &node.plan.arguments, &node.log)?;
        Ok(())
    }

    /// Ends all nodes cleanly and starts them again. Returns the time from the start until all
    /// serve.
    pub(crate) async fn restart(&mut self) -> Result<Duration, Error> {
        for node in &mut self.nodes {
            node.process.terminate()?;
        }
        let started = Instant::now();
        for number in 0..self.nodes.len() {
            self.start_again(number)?;
        }
        self.wait_until_all_serve(RESTART_WAIT).await?;
        Ok(started.elapsed())
    }
}

/// Finds a program on the path. The error names the package to install.
fn installed(program: &str, package: &str) -> Result<PathBuf, Error> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&paths).chain([PathBuf::from("/usr/bin"), PathBuf::from("/usr/sbin")]);
    let found = places.map(|place| place.join(program)).find(|path| path.exists());
    found.ok_or_else(|| Error::Absent(format!("{program} is not installed: apt-get install {package}")))
}

fn owned<const N: usize>(arguments: [&str; N]) -> Vec<String> {
    arguments.map(str::to_owned).to_vec()
}
