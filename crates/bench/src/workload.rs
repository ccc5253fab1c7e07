//! Work of the clients in a round. Every client has one connection and one request under way (a
//! closed load), so a slow server gets fewer requests.

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use futures_util::stream::{self, FuturesUnordered};
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};

use crate::client::{Client, SESSION_TIMEOUT_S};
use crate::error::Error;
use crate::figures::{Round, Sample};
use crate::system::{Cluster, Kind, Named as _, own_cpu_time};

/// Data of every znode or value that is written.
pub(crate) const DATA: [u8; 100] = [b'x'; 100];
/// Length of the first part of a round, in which operations are not counted because the connections
/// are new.
const SETTLE: Duration = Duration::from_millis(300);
/// Number of clients of a round that connect at once.
const CONNECTING: usize = 32;
/// Time after which an operation counts as failed, because its answer must be lost.
const STUCK: Duration = Duration::from_secs(30);

/// Next number of a znode of [`Workload::Create`], so that no name is used twice.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// The workloads, in the order in which the report shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Every client creates znodes of 100 bytes, one after the other.
    Create,
    /// Every client sets 100 bytes on a znode of its own.
    Write,
    /// Reads of a znode of 100 bytes, from the server's own state.
    LocalGet,
    /// Reads of the current data of a znode of 100 bytes; over ZooKeeper's protocol `sync` and a
    /// read together.
    LinearizableGet,
    /// Every client takes and releases a lock of its own, by the system's recipe.
    LockCycle,
    /// All clients take and release one lock. The latency is the time from sending a release until
    /// the next holder knows that it holds.
    HandOff,
}

impl Workload {
    /// Tells whether the workload is run on a system. Redis has no queue for a lock: its clients
    /// poll.
    pub(crate) fn runs_on(self, kind: Kind) -> bool {
        self != Workload::HandOff || kind != Kind::Redis
    }
}

/// Parameters of the load in one round.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) workload: Workload,
    pub(crate) clients: usize,
    pub(crate) length: Duration,
    /// Index of the first client's node. Further clients go to the nodes in turn, and each round
    /// begins with another node.
    pub(crate) first_node: usize,
}

/// State that the clients of one round share.
#[derive(Default)]
struct Shared {
    /// Moment at which the present holder of the contended lock sent its release.
    released_at: Cell<Option<Instant>>,
    /// Moment at which the measured time ended.
    end: Cell<Option<Instant>>,
}

/// One client of one round.
struct Worker<'a> {
    client: Client,
    name: String,
    shared: &'a Shared,
    workload: Workload,
}

/// Runs one round: connects all clients, then lets them work at the same time.
pub(crate) async fn round(cluster: &Cluster, kind: Kind, load: Load) -> Result<Round, Error> {
    // The sleep is created inside the block, because its time begins at its creation, and the time
    // of connecting must not count.
    let meanwhile = async { tokio::time::sleep(load.length).await };
    round_while(cluster, kind, load, meanwhile).await.map(|(round, ())| round)
}

/// Runs one round that is measured for as long as `meanwhile` takes instead of the load's length.
/// `meanwhile` starts when the measurement starts.
pub(crate) async fn round_while<T>(
    cluster: &Cluster,
    kind: Kind,
    load: Load,
    meanwhile: impl Future<Output = T>,
) -> Result<(Round, T), Error> {
    let shared = Shared::default();
    let mut workers = connect(cluster, kind, load, &shared).await?;
    let begin = Instant::now() + SETTLE;
    let measured = async {
        tokio::time::sleep_until(begin.into()).await;
        let before = (cluster.cpu_time(), own_cpu_time());
        let done = meanwhile.await;
        let end = Instant::now();
        shared.end.set(Some(end));
        (before, (cluster.cpu_time(), own_cpu_time()), end, done)
    };
    let work = async {
        let mut clients: FuturesUnordered<_> = workers.iter_mut().map(|worker| worker.run(begin)).collect();
        let mut total = Round::default();
        while let Some(one) = clients.next().await {
            total.merge(one);
        }
        total
    };
    let ((before, after, end, done), mut round) = tokio::join!(measured, work);
    round.elapsed = end.saturating_duration_since(begin);
    round.server_cpu = after.0?.saturating_sub(before.0?);
    round.client_cpu = after.1?.saturating_sub(before.1?);
    let closing = workers.iter_mut().map(|worker| async {
        // Failures were counted above; a session that cannot be closed ends by itself.
        let _ = tokio::time::timeout(Duration::from_secs(2), worker.client.close_session()).await;
    });
    stream::iter(closing).buffer_unordered(CONNECTING).collect::<()>().await;
    Ok((round, done))
}

async fn connect<'a>(cluster: &Cluster, kind: Kind, load: Load, shared: &'a Shared) -> Result<Vec<Worker<'a>>, Error> {
    let addrs = cluster.addrs(kind.door());
    let addrs = &addrs;
    let one = |number: usize| async move {
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
        Ok(Worker { client, name, shared, workload: load.workload })
    };
    stream::iter(0..load.clients).map(one).buffered(CONNECTING).try_collect().await
}

impl Worker<'_> {
    /// Works until the measured time has ended; the first error ends the client's round.
    async fn run(&mut self, begin: Instant) -> Round {
        let mut round = Round::default();
        while self.shared.end.get().is_none() {
            let outcome = match tokio::time::timeout(STUCK, self.once()).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Error::Answer(format!("no answer within {} s", STUCK.as_secs()))),
            };
            let end = self.shared.end.get();
            match outcome {
                Ok(Some(sample)) => {
                    let ended = sample.began + sample.latency;
                    round.operations += usize::from(ended >= begin && end.is_none_or(|end| ended < end));
                    if sample.began >= begin && end.is_none_or(|end| sample.began < end) {
                        round.samples.push(sample);
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    round.errors += 1;
                    round.first_error.get_or_insert(error.to_string());
                    break;
                }
            }
        }
        round
    }

    /// Does one operation. The first hand-off has no latency: no client released the lock before.
    async fn once(&mut self) -> Result<Option<Sample>, Error> {
        let (client, name) = (&mut self.client, self.name.as_str());
        let began = Instant::now();
        match self.workload {
            Workload::Create => {
                let number = CREATED.fetch_add(1, Ordering::Relaxed);
                client.create(&format!("{name}-{number}"), &DATA).await?;
            }
            Workload::Write => client.set(name, &DATA).await?,
            Workload::LocalGet => client.get(name, false).await?,
            Workload::LinearizableGet => client.get(name, true).await?,
            Workload::LockCycle => {
                let ticket = client.lock(name).await?;
                client.unlock(name, &ticket).await?;
            }
            Workload::HandOff => {
                let ticket = client.lock(name).await?;
                let handed = self.shared.released_at.take().map(|began| Sample { began, latency: began.elapsed() });
                // Set before the release is sent, because the next holder may be answered before
                // this client.
                self.shared.released_at.set(Some(Instant::now()));
                client.unlock(name, &ticket).await?;
                return Ok(handed);
            }
        }
        Ok(Some(Sample { began, latency: began.elapsed() }))
    }
}
