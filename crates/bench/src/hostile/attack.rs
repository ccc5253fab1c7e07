//! Target of hostile traffic, its repetition, and counts of its requests.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::{Instant, sleep, timeout_at};

use crate::client::{Door, Link, Rest, ZooKeeper};
use crate::error::Error;
use crate::system::Cluster;

/// Number of files that this program may have open. Each connection needs one.
const FILES: u64 = 65_536;
/// Pause before a broken connection is opened again.
const PAUSE: Duration = Duration::from_millis(5);

/// Cluster that the traffic is aimed at.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) rest: Vec<String>,
    pub(crate) wire: Vec<String>,
    /// Addresses of the peer ports.
    pub(crate) peers: Vec<String>,
    /// Index of a node that does not lead.
    follower: usize,
    /// Third byte of the addresses of hostile clients. Each kind of traffic has its own, because
    /// the ports of an address stay in use for a minute after their connections were closed.
    pub(crate) network: u8,
    /// Number of addresses of hostile clients.
    addresses: u8,
}

impl Target {
    pub(crate) async fn of(cluster: &Cluster, network: u8, addresses: u8) -> Result<Target, Error> {
        Ok(Target {
            rest: cluster.addrs(Door::Rest),
            wire: cluster.addrs(Door::ZooKeeper),
            peers: cluster.peer_addrs(),
            follower: (cluster.leader().await? + 1) % cluster.size(),
            network,
            addresses,
        })
    }

    /// Returns the address from which the hostile client with this number connects.
    pub(crate) fn source(&self, number: usize) -> IpAddr {
        let number = u8::try_from(number % usize::from(self.addresses)).unwrap_or_default();
        IpAddr::V4(Ipv4Addr::new(127, 0, self.network, 1 + number))
    }

    /// Returns a target that consists of a follower's HTTP server.
    pub(crate) fn follower(&self) -> Target {
        Target { rest: vec![self.rest[self.follower].clone()], ..self.clone() }
    }

    /// Connects a client to a node's HTTP server. `number` chooses the node and the client's
    /// address.
    pub(crate) async fn rest(&self, number: usize) -> Result<Rest, Error> {
        let addr = &self.rest[number % self.rest.len()];
        Ok(Rest::over(Link::open_from(self.source(number), addr).await?, addr))
    }

    /// Connects a client to a node's server for ZooKeeper clients, and opens a session. `number`
    /// chooses the node and the client's address.
    pub(crate) async fn wire(&self, number: usize, timeout_ms: i32) -> Result<ZooKeeper, Error> {
        let addr = &self.wire[number % self.wire.len()];
        ZooKeeper::over(Link::open_from(self.source(number), addr).await?, timeout_ms).await
    }
}

/// Counts of hostile requests: sent, done, refused, and lost with a broken connection.
#[derive(Default)]
pub(crate) struct Tally {
    sent: AtomicU64,
    done: AtomicU64,
    refused: AtomicU64,
    broken: AtomicU64,
}

impl Tally {
    /// Counts requests that were sent. A connection that sends nothing counts as one.
    pub(crate) fn sent(&self, count: u64) {
        self.sent.fetch_add(count, Ordering::Relaxed);
    }

    /// Sends one request over HTTP, counts it, and returns the status.
    pub(crate) async fn ask(
        &self,
        client: &mut Rest,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &[u8],
    ) -> Result<u16, Error> {
        self.sent(1);
        let status = client.call(method, path, key, body).await?;
        self.answer((200..300).contains(&status));
        Ok(status)
    }

    /// Counts an answer of a server, as done or as refused.
    pub(crate) fn answer(&self, done: bool) {
        let count = if done { &self.done } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that failed or broke.
    pub(crate) fn broke(&self) {
        self.broken.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts of requests sent, done and refused, and of broken connections.
    pub(crate) fn counts(&self) -> [u64; 4] {
        [&self.sent, &self.done, &self.refused, &self.broken].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Calls `turn` again and again until `until`, also after errors. The last call is cancelled at
/// that time.
pub(crate) async fn again<F>(until: Instant, tally: &Tally, mut turn: impl FnMut() -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    while let Ok(done) = timeout_at(until, turn()).await {
        if done.is_err() {
            tally.broke();
            sleep(PAUSE).await;
        }
        if Instant::now() >= until {
            return;
        }
    }
}

/// Runs `count` clients that repeat `turn` at the same time.
pub(crate) async fn swarm<F>(count: usize, until: Instant, tally: &Tally, turn: impl Fn(usize) -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    let turn = &turn;
    join_all((0..count).map(|number| again(until, tally, move || turn(number)))).await;
}

/// Raises the limit of open files for this program and the servers that it starts, up to [`FILES`]
/// or the hard limit.
pub(crate) fn allow_many_files() -> Result<(), Error> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(FILES, |maximum| maximum.min(FILES));
    if current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).map_err(std::io::Error::from)?;
    }
    Ok(())
}
