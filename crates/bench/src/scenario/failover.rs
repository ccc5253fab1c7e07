//! Time without service when the leader ends or hangs, and sessions that are lost meanwhile.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::Figure;
use crate::client::{Client, Door};
use crate::error::Error;
use crate::system::{Cluster, Kind, Named as _};
use crate::workload::DATA;

/// Interval at which new clients connect, to the surviving nodes in turn. The first client whose
/// write is acknowledged ends the measurement.
const TRY_EVERY: Duration = Duration::from_millis(10);
/// Longest time that a new client waits for its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest number of new clients that wait at once. It is above the 200 clients that connect within
/// [`PATIENCE`], so a client that comes after the new leader's election can always connect.
const WAITING_MAX: usize = 256;
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const SESSIONS: usize = 30;
const SESSION_TIMEOUT_S: u16 = 10;
/// Interval of a session's heartbeats, and time without an answer after which its client goes to
/// another node.
const BEAT: Duration = Duration::from_secs(1);
/// Shortest time for which the leader hangs: longer than the sessions' timeout, so that sessions
/// without heartbeats are lost.
const HUNG: Duration = Duration::from_secs(14);

/// Measures the time from the leader's end by SIGKILL until a new client is served.
pub(super) async fn killed(cluster: &mut Cluster, kind: Kind, figures: &mut Vec<Figure>) -> Result<(), Error> {
    let (leader, survivors) = prepare(cluster, kind).await?;
    let started = Instant::now();
    cluster.kill(leader);
    let served = first_served(kind, &survivors, started).await?;
    figures.push(Figure::new("first client served after the leader's kill", "ms", served * 1e3));
    cluster.start_again(leader)?;
    cluster.wait_until_recovered().await
}

/// Measures the time from the leader's SIGSTOP until a new client is served. Also counts the
/// sessions that are lost until the leader, continued by SIGCONT, has recovered.
pub(super) async fn hung(cluster: &mut Cluster, kind: Kind, figures: &mut Vec<Figure>) -> Result<(), Error> {
    let (leader, survivors) = prepare(cluster, kind).await?;
    let addrs = cluster.addrs(kind.door());
    let mut keepers = Vec::with_capacity(SESSIONS);
    for number in 0..SESSIONS {
        let place = number % addrs.len();
        let client = Client::with_session(kind.door(), &addrs[place], SESSION_TIMEOUT_S).await?;
        keepers.push(Keeper { client, place, lost: false });
    }
    let over = Cell::new(false);
    let keep = async {
        let mut all: FuturesUnordered<_> = keepers.iter_mut().map(|keeper| keeper.keep(&addrs, &over)).collect();
        while all.next().await.is_some() {}
    };
    let disturb = async {
        tokio::time::sleep(BEAT).await;
        let started = Instant::now();
        cluster.pause(leader)?;
        let served = first_served(kind, &survivors, started).await;
        tokio::time::sleep_until((started + HUNG).into()).await;
        cluster.resume(leader)?;
        cluster.wait_until_recovered().await?;
        tokio::time::sleep(2 * BEAT).await;
        over.set(true);
        served
    };
    let (served, ()) = tokio::join!(disturb, keep);
    let lost = keepers.iter().filter(|keeper| keeper.lost).count();
    for keeper in keepers.iter_mut().filter(|keeper| !keeper.lost) {
        let _ = tokio::time::timeout(BEAT, keeper.client.close_session()).await;
    }
    figures.extend([
        Figure::new("first client served after the leader hung", "ms", served? * 1e3),
        Figure::new(
            format!("lost sessions of {SESSIONS} with a timeout of {SESSION_TIMEOUT_S} s"),
            "sessions",
            lost as f64,
        ),
    ]);
    Ok(())
}

/// Creates the znode that new clients write. Returns the leader's index, and the addresses of the
/// other nodes.
async fn prepare(cluster: &Cluster, kind: Kind) -> Result<(usize, Vec<String>), Error> {
    cluster.wait_until_recovered().await?;
    let leader = cluster.leader().await?;
    let mut survivors = cluster.addrs(kind.door());
    Client::open(kind.door(), &survivors[leader]).await?.create("failover", &DATA).await?;
    survivors.remove(leader);
    Ok((leader, survivors))
}

/// Connects a new client every [`TRY_EVERY`]. Returns the seconds from `started` until the first
/// write of a new client was acknowledged.
async fn first_served(kind: Kind, survivors: &[String], started: Instant) -> Result<f64, Error> {
    let mut attempts = FuturesUnordered::new();
    let mut ticks = tokio::time::interval(TRY_EVERY);
    for number in 0.. {
        tokio::select! {
            Some(served) = attempts.next() => {
                if let Some(at) = served {
                    return Ok(at);
                }
            }
            _ = ticks.tick() => {
                if attempts.len() < WAITING_MAX {
                    let addr = survivors[number % survivors.len()].as_str();
                    attempts.push(async move {
                        let attempt = tokio::time::timeout(PATIENCE, attempt(kind.door(), addr)).await;
                        matches!(attempt, Ok(Ok(()))).then(|| started.elapsed().as_secs_f64())
                    });
                }
            }
        }
        if started.elapsed() > SERVED_WITHIN {
            break;
        }
    }
    Err(Error::Answer(format!("{}: no node served within {} s", kind.name(), SERVED_WITHIN.as_secs())))
}

async fn attempt(door: Door, addr: &str) -> Result<(), Error> {
    Client::open(door, addr).await?.set("failover", &DATA).await
}

/// Client that keeps one session alive, at any node that answers.
struct Keeper {
    client: Client,
    place: usize,
    lost: bool,
}

impl Keeper {
    async fn keep(&mut self, addrs: &[String], over: &Cell<bool>) {
        while !over.get() && !self.lost {
            let next = Instant::now() + BEAT;
            if !matches!(tokio::time::timeout(BEAT, self.client.keep_alive()).await, Ok(Ok(()))) {
                self.move_on(addrs).await;
            }
            tokio::time::sleep_until(next.into()).await;
        }
    }

    /// Goes to the next node. If that node says that the session is gone, the session is lost.
    async fn move_on(&mut self, addrs: &[String]) {
        self.place = (self.place + 1) % addrs.len();
        let moved = async {
            let mut client = self.client.resume(&addrs[self.place]).await?;
            client.keep_alive().await?;
            Ok::<Client, Error>(client)
        };
        match tokio::time::timeout(BEAT, moved).await {
            Ok(Ok(client)) => self.client = client,
            Ok(Err(Error::Gone)) => self.lost = true,
            // No service there either: the next round tries the node behind it.
            Ok(Err(_)) | Err(_) => {}
        }
    }
}
