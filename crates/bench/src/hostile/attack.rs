//! Frame in which hostile traffic runs, and its counters.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::kind::Kind;
use crate::client::{Door, Link, Rest, ZooKeeper};
use crate::error::Error;
use crate::system::Cluster;

/// Files that this program may have open: a connection each.
const FILES: u64 = 65_536;
/// Nice value of the thread that hostile clients run on.
const NICE: i32 = 10;
/// A connection that broke is tried again after this time.
const PAUSE: Duration = Duration::from_millis(5);

/// Sizes of the traffic.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) subtree: usize,
    pub(crate) ephemerals: usize,
    pub(crate) connections: usize,
    pub(crate) addresses: u8,
}

/// Cluster that the traffic is aimed at.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) rest: Vec<String>,
    pub(crate) wire: Vec<String>,
    /// Number of a node that does not lead.
    pub(crate) follower: usize,
    /// Third part of the addresses that hostile clients come from. Each kind has its own: ports of
    /// an address are used up by connections that were closed in the last minute.
    pub(crate) network: u8,
    pub(crate) sizes: Sizes,
}

impl Target {
    pub(crate) async fn of(cluster: &Cluster, kind: Kind, sizes: Sizes) -> Result<Target, Error> {
        Ok(Target {
            rest: cluster.addrs(Door::Rest),
            wire: cluster.addrs(Door::ZooKeeper),
            follower: (cluster.leader().await? + 1) % cluster.size(),
            network: 1 + kind as u8,
            sizes,
        })
    }

    /// Address that the hostile client of a number comes from.
    pub(crate) fn source(&self, number: usize) -> IpAddr {
        let number = u8::try_from(number % usize::from(self.sizes.addresses)).unwrap_or_default();
        IpAddr::V4(Ipv4Addr::new(127, 0, self.network, 1 + number))
    }

    /// A client of the HTTP door of a node, by any number.
    pub(crate) async fn rest(&self, number: usize) -> Result<Rest, Error> {
        self.rest_at(number % self.rest.len(), number).await
    }

    /// A client of the HTTP door of a certain node.
    pub(crate) async fn rest_at(&self, node: usize, number: usize) -> Result<Rest, Error> {
        let addr = &self.rest[node];
        Ok(Rest::over(Link::open_from(self.source(number), addr).await?, addr))
    }

    /// A client of the ZooKeeper door with a session.
    pub(crate) async fn wire(&self, number: usize, timeout_ms: i32) -> Result<ZooKeeper, Error> {
        let addr = &self.wire[number % self.wire.len()];
        ZooKeeper::over(Link::open_from(self.source(number), addr).await?, timeout_ms).await
    }
}

/// Counts of hostile requests by their end.
#[derive(Default)]
pub(crate) struct Tally {
    sent: AtomicU64,
    done: AtomicU64,
    refused: AtomicU64,
    broken: AtomicU64,
}

impl Tally {
    /// Counts requests that have left. A connection that says nothing is one, too.
    pub(crate) fn sent(&self, count: u64) {
        self.sent.fetch_add(count, Ordering::Relaxed);
    }

    /// Sends one request over HTTP, counts it, and answers its status.
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

    /// Counts an answer of a server.
    pub(crate) fn answer(&self, done: bool) {
        let count = if done { &self.done } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection could not be had, or ended.
    pub(crate) fn broke(&self) {
        self.broken.fetch_add(1, Ordering::Relaxed);
    }

    /// Sent, done, refused, broken.
    pub(crate) fn counts(&self) -> [u64; 4] {
        [&self.sent, &self.done, &self.refused, &self.broken].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Repeats a turn until `until`, whatever comes of it. Each turn is cut short at the end.
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

/// Runs so many clients that do the same at once.
pub(crate) async fn swarm<F>(count: usize, until: Instant, tally: &Tally, turn: impl Fn(usize) -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    let turn = &turn;
    join_all((0..count).map(|number| again(until, tally, move || turn(number)))).await;
}

/// Traffic under way.
pub(crate) struct Attacking(JoinHandle<Result<(), Error>>);

impl Attacking {
    /// Waits for the end of the traffic, which comes by itself.
    pub(crate) fn end(self) -> Result<(), Error> {
        self.0.join().map_err(|_| Error::Answer("the hostile thread failed".into()))?
    }
}

/// Begins, on a thread of its own, once what the traffic needs first is there. Hostile clients have
/// machines of their own: where they share this one's processors, their work stands back behind
/// that of the servers and of the honest clients.
pub(crate) async fn begin(kind: Kind, target: Target, length: Duration, tally: Arc<Tally>) -> Result<Attacking, Error> {
    let (ready, begun) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        setpriority_process(None, NICE).map_err(std::io::Error::from)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let prepared = kind.prepare(&target).await;
            let _ = ready.send(());
            kind.attack(&target, prepared?, Instant::now() + length, &tally).await;
            Ok(())
        })
    });
    // One that failed says why at its end.
    let _ = begun.await;
    Ok(Attacking(thread))
}

/// Raises the number of files that this program and the servers that it starts may have open, as
/// far as it may.
pub(crate) fn allow_many_files() -> Result<(), Error> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(FILES, |maximum| maximum.min(FILES));
    if current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).map_err(std::io::Error::from)?;
    }
    Ok(())
}
