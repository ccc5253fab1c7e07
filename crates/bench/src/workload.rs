//! What the clients do in a round. Every client has one connection and one request under way: the load is closed, so a slow
//! server is asked less often.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use crate::client::{Client, SESSION_TIMEOUT_S};
use crate::error::Error;
use crate::figures::Round;
use crate::system::{Cluster, Kind, Usage};

/// What writes write.
pub(crate) const DATA: [u8; 100] = [b'x'; 100];
/// Work before this much of a round has passed is not counted: connections settle.
const SETTLE: Duration = Duration::from_millis(300);
/// No operation takes this long; a client that waits longer has lost its answer.
const STUCK: Duration = Duration::from_secs(30);

/// Numbers what [`Workload::Create`] makes: nothing is made twice.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// The workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Every client creates znodes of 100 bytes, one after the other.
    Create,
    /// Every client sets 100 bytes on a znode of its own.
    Write,
    /// Reads of a znode of 100 bytes, from what the server has.
    LocalGet,
    /// The same, current; over ZooKeeper's protocol `sync` and a read together.
    LinearizableGet,
    /// Every client takes and releases a lock of its own, by the system's recipe.
    LockCycle,
    /// All clients take and release one lock. The latency is from sending the release to the next holder's knowing it.
    HandOff,
}

impl Workload {
    /// The name in tables and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Create => "create",
            Workload::Write => "write",
            Workload::LocalGet => "local-get",
            Workload::LinearizableGet => "linearizable-get",
            Workload::LockCycle => "lock-cycle",
            Workload::HandOff => "hand-off",
        }
    }

    /// Whether a system has it. Redis has no queue for a lock: its clients poll.
    pub(crate) fn runs_on(self, kind: Kind) -> bool {
        self != Workload::HandOff || kind != Kind::Redis
    }
}

/// A line of the table.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) workload: Workload,
    pub(crate) clients: usize,
    pub(crate) length: Duration,
    /// Clients go to the nodes in turn, beginning with this one: each round begins with another.
    pub(crate) first_node: usize,
}

/// When the present holder of the contended lock sent its release.
#[derive(Default)]
struct Shared {
    released_at: Cell<Option<Instant>>,
}

/// One client of one round.
struct Worker<'a> {
    client: Client,
    name: String,
    shared: &'a Shared,
    workload: Workload,
}

/// One round: connects all clients, then lets them work at the same time.
pub(crate) async fn round(cluster: &Cluster, kind: Kind, load: Load) -> Result<Round, Error> {
    let shared = Shared::default();
    let mut workers = connect(cluster, kind, load, &shared).await?;
    let begin = Instant::now() + SETTLE;
    let end = begin + load.length;
    let measured = async {
        tokio::time::sleep_until(begin.into()).await;
        let before = (cluster.cpu(), Usage::own_cpu());
        tokio::time::sleep_until(end.into()).await;
        (before, (cluster.cpu(), Usage::own_cpu()))
    };
    let work = async {
        let mut clients: FuturesUnordered<_> = workers.iter_mut().map(|worker| worker.run(begin, end)).collect();
        let mut total = Round::default();
        while let Some(one) = clients.next().await {
            total.merge(one);
        }
        total
    };
    let ((before, after), mut round) = tokio::join!(measured, work);
    round.elapsed = load.length;
    round.server_cpu = after.0?.saturating_sub(before.0?);
    round.client_cpu = after.1?.saturating_sub(before.1?);
    for worker in &mut workers {
        // Failures were counted above; a session that cannot be closed ends by itself.
        let _ = tokio::time::timeout(Duration::from_secs(2), worker.client.close_session()).await;
    }
    Ok(round)
}

async fn connect<'a>(cluster: &Cluster, kind: Kind, load: Load, shared: &'a Shared) -> Result<Vec<Worker<'a>>, Error> {
    let addrs = cluster.addrs(kind.door());
    let mut workers = Vec::with_capacity(load.clients);
    for number in 0..load.clients {
        let mut client = Client::open(kind.door(), &addrs[(load.first_node + number) % addrs.len()]).await?;
        let name = match load.workload {
            Workload::Create | Workload::Write | Workload::LocalGet | Workload::LinearizableGet => {
                format!("{}-{number}", kind.name())
            }
            Workload::LockCycle => format!("{}-own-{number}", kind.name()),
            Workload::HandOff => format!("{}-shared", kind.name()),
        };
        match load.workload {
            Workload::LockCycle | Workload::HandOff => {
                client.open_session(SESSION_TIMEOUT_S).await?;
                // The directory of a lock; HTTP, etcd and Redis need none.
                if let Client::ZooKeeper(zookeeper) = &mut client {
                    zookeeper.create(&format!("/{name}"), b"").await?;
                }
            }
            _ => client.create(&name, &DATA).await?,
        }
        workers.push(Worker { client, name, shared, workload: load.workload });
    }
    Ok(workers)
}

impl Worker<'_> {
    /// Works until the end; the first error ends the client's round.
    async fn run(&mut self, begin: Instant, end: Instant) -> Round {
        let mut round = Round::default();
        while Instant::now() < end {
            let outcome = match tokio::time::timeout(STUCK, self.once()).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Error::Answer(format!("no answer within {} s", STUCK.as_secs()))),
            };
            match outcome {
                Ok(Some(latency)) if (begin..end).contains(&Instant::now()) => round.latencies.push(latency),
                Ok(_) => {}
                Err(error) => {
                    round.errors += 1;
                    round.first_error.get_or_insert(error.to_string());
                    break;
                }
            }
        }
        round
    }

    /// One operation and its latency.
    async fn once(&mut self) -> Result<Option<Duration>, Error> {
        let (client, name) = (&mut self.client, self.name.as_str());
        let started = Instant::now();
        match self.workload {
            Workload::Create => {
                let number = CREATED.fetch_add(1, Ordering::Relaxed);
                client.create(&format!("{name}-{number}"), &DATA).await?;
            }
            Workload::Write => client.set(name, &DATA).await?,
            Workload::LocalGet => client.get_local(name).await?,
            Workload::LinearizableGet => client.get_linearizable(name).await?,
            Workload::LockCycle => {
                let ticket = client.lock(name).await?;
                client.unlock(name, &ticket).await?;
            }
            Workload::HandOff => {
                let ticket = client.lock(name).await?;
                let handed = self.shared.released_at.take().map(|at| at.elapsed());
                // Written before it is sent: the next holder may have its answer before this client has its own.
                self.shared.released_at.set(Some(Instant::now()));
                client.unlock(name, &ticket).await?;
                return Ok(handed);
            }
        }
        Ok(Some(started.elapsed()))
    }
}
