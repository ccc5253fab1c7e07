//! Cost of sessions that only send heartbeats.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream;

use super::{Figure, Scale};
use crate::client::{Client, SESSION_TIMEOUT_S};
use crate::error::Error;
use crate::system::{Cluster, Kind};

/// Interval of each session's heartbeats, as ZooKeeper's clients send them with a timeout of 30 s.
const BEAT: Duration = Duration::from_secs(10);
const OPENED_AT_ONCE: usize = 64;
/// Number of sessions at full scale.
const SESSIONS: usize = 10_000;

pub(super) async fn run(cluster: &Cluster, kind: Kind, scale: Scale, figures: &mut Vec<Figure>) -> Result<(), Error> {
    let sessions = scale.of(SESSIONS);
    let addrs = cluster.addrs(kind.door());
    let empty = cluster.memory_bytes()?;
    let started = Instant::now();
    let open = |number: usize| Client::with_session(kind.door(), &addrs[number % addrs.len()], SESSION_TIMEOUT_S);
    let mut opening = stream::iter((0..sessions).map(open)).buffer_unordered(OPENED_AT_ONCE);
    let mut clients = Vec::with_capacity(sessions);
    while let Some(client) = opening.next().await {
        clients.push(client?);
    }
    drop(opening);
    let opened = started.elapsed();
    // The first round of heartbeats is not measured.
    beat(&mut clients).await?;
    let before = cluster.cpu_time()?;
    let began = Instant::now();
    beat(&mut clients).await?;
    let cpu = cluster.cpu_time()?.saturating_sub(before);
    let share = cpu.as_secs_f64() / began.elapsed().as_secs_f64();
    let memory = cluster.memory_bytes()?;
    let each = memory.saturating_sub(empty) as f64 / sessions as f64;
    let rate = sessions as f64 / opened.as_secs_f64();
    figures.extend([
        Figure::new(format!("rate of opening {sessions} sessions, 64 at a time"), "1/s", rate),
        Figure::new("memory of all nodes for each session", "bytes", each),
        Figure::new("memory of all nodes", "MB", memory as f64 / 1e6),
        Figure::new("CPU of all nodes", "% of a core", share * 100.0),
    ]);
    Ok(())
}

/// Sends one heartbeat for each session, spread over [`BEAT`].
async fn beat(clients: &mut [Client]) -> Result<(), Error> {
    let began = Instant::now();
    let count = clients.len().max(1) as f64;
    let beats = clients.iter_mut().enumerate().map(|(number, client)| async move {
        tokio::time::sleep_until((began + BEAT.mul_f64(number as f64 / count)).into()).await;
        client.keep_alive().await
    });
    let mut beats: stream::FuturesUnordered<_> = beats.collect();
    while let Some(kept) = beats.next().await {
        kept?;
    }
    Ok(())
}
