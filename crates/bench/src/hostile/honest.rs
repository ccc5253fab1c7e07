//! Well-behaved clients: 16 of them, half over HTTP and half over ZooKeeper's protocol, half taking
//! and releasing their own lock and half writing.
//!
//! Each operation has a set time at which to begin, from which its latency counts. So a server that
//! hangs for a second makes all operations of that second late, and not just one for each client
//! that waited.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::client::{Client, Door, Link, Rest, SESSION_TIMEOUT_S, ZooKeeper};
use crate::error::Error;
use crate::figures::Ranks;
use crate::system::Cluster;
use crate::workload::DATA;

const CLIENTS: usize = 16;
const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Longest time without an answer, after which a client goes to the next node.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time after the end of a measurement in which late operations can still end. An operation that is
/// not done by then counts with the time that has passed.
const OVERTIME: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// Latencies and errors of honest clients.
pub(crate) struct Honest {
    ranks: Ranks,
    pub(crate) errors: usize,
}

impl Honest {
    /// Returns the results of clients with these latencies and this number of failed operations.
    pub(crate) fn of(latencies: impl Iterator<Item = Duration>, errors: usize) -> Honest {
        Honest { ranks: Ranks::of(latencies), errors }
    }

    pub(crate) fn p50_ms(&self) -> f64 {
        self.ranks.at_us(0.50) / 1e3
    }

    pub(crate) fn p99_ms(&self) -> f64 {
        self.ranks.at_us(0.99) / 1e3
    }

    pub(crate) fn longest_ms(&self) -> f64 {
        self.ranks.at_us(1.0) / 1e3
    }
}

/// Lets the clients work for `length`. Each begins an operation every `pace`.
pub(crate) async fn measure(cluster: &Cluster, length: Duration, pace: Duration) -> Result<Honest, Error> {
    let addrs = [Door::Rest, Door::ZooKeeper].map(|door| cluster.addrs(door));
    let begin = Instant::now() + Duration::from_millis(500);
    let worker = |number: usize| Worker {
        number,
        door: if number.is_multiple_of(2) { Door::Rest } else { Door::ZooKeeper },
        addrs: &addrs[number % 2],
        locks: number % 4 < 2,
        node: number / 4,
        client: None,
        names: 0,
        latencies: Vec::new(),
        errors: 0,
    };
    let end = begin + length;
    let worked = join_all((0..CLIENTS).map(|number| worker(number).work(begin, end, pace))).await;
    let errors = worked.iter().map(|worker| worker.errors).sum();
    let honest = Honest::of(worked.iter().flat_map(|worker| worker.latencies.iter().copied()), errors);
    if honest.ranks.count() == 0 {
        return Err(Error::Answer("no honest client did anything".into()));
    }
    Ok(honest)
}

struct Worker<'a> {
    number: usize,
    door: Door,
    addrs: &'a [String],
    locks: bool,
    node: usize,
    client: Option<Client>,
    /// Number of failures of this client so far. The lock's name contains it, because the session
    /// before a failure may still hold the lock of the earlier name.
    names: usize,
    latencies: Vec<Duration>,
    errors: usize,
}

impl Worker<'_> {
    async fn work(mut self, begin: Instant, end: Instant, pace: Duration) -> Self {
        // Connecting is not measured.
        let connected = self.connect().await;
        self.note(connected);
        let mut due = begin + pace * u32::try_from(self.number).unwrap_or(0) / CLIENTS as u32;
        while due < end {
            sleep_until(due).await;
            while Instant::now() < end + OVERTIME {
                let tried = timeout(PATIENCE, self.once()).await;
                if self.note(tried.unwrap_or_else(|_| Err(Error::Answer("no answer".into())))) {
                    break;
                }
                sleep(PAUSE).await;
            }
            self.latencies.push(due.elapsed());
            due += pace;
        }
        if let Some(client) = &mut self.client {
            let _ = timeout(Duration::from_secs(2), client.close_session()).await;
        }
        self
    }

    /// Tells whether an operation went well. If not, the client goes to the next node with a new
    /// session.
    fn note(&mut self, tried: Result<(), Error>) -> bool {
        if tried.is_err() {
            self.errors += 1;
            self.client = None;
            self.node += 1;
            self.names += 1;
        }
        tried.is_ok()
    }

    fn name(&self) -> String {
        format!("honest-{}-{}", self.number, if self.locks { self.names } else { 0 })
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let addr = &self.addrs[self.node % self.addrs.len()];
        let link = Link::open_from(SOURCE, addr).await?;
        let mut client = match self.door {
            Door::Rest => Client::Rest(Rest::over(link, addr)),
            _ => Client::ZooKeeper(ZooKeeper::over(link, i32::from(SESSION_TIMEOUT_S) * 1000).await?),
        };
        client.open_session(SESSION_TIMEOUT_S).await?;
        if !self.locks || self.door == Door::ZooKeeper {
            client.create(&self.name(), &DATA).await?;
        }
        self.client = Some(client);
        Ok(())
    }

    async fn once(&mut self) -> Result<(), Error> {
        if self.client.is_none() {
            self.connect().await?;
        }
        let (locks, name) = (self.locks, self.name());
        let Some(client) = &mut self.client else { return Err(Error::Gone) };
        if locks {
            let ticket = client.lock(&name).await?;
            return client.unlock(&name, &ticket).await;
        }
        client.set(&name, &DATA).await
    }
}
