//! Sessions that do nothing but live.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream;

use super::Figure;
use crate::client::{Client, SESSION_TIMEOUT_S};
use crate::error::Error;
use crate::system::{Cluster, Kind};

/// Every session is kept alive once in this time, as ZooKeeper's clients do with a timeout of 30 s.
const BEAT: Duration = Duration::from_secs(10);
const OPENED_AT_ONCE: usize = 64;

pub(super) async fn run(cluster: &Cluster, kind: Kind, sessions: usize) -> Result<Vec<Figure>, Error> {
    let addrs = cluster.addrs(kind.door());
    let empty = cluster.usage()?;
    let started = Instant::now();
    let open = |number: usize| Client::with_session(kind.door(), &addrs[number % addrs.len()], SESSION_TIMEOUT_S);
    let mut opening = stream::iter((0..sessions).map(open)).buffer_unordered(OPENED_AT_ONCE);
    let mut clients = Vec::with_capacity(sessions);
    while let Some(client) = opening.next().await {
        clients.push(client?);
    }
    drop(opening);
    let opened = started.elapsed();
    // Once round unmeasured, then once round measured.
    beat(&mut clients).await?;
    let before = cluster.cpu()?;
    let began = Instant::now();
    beat(&mut clients).await?;
    let cpu = cluster.cpu()?.saturating_sub(before);
    let share = cpu.as_secs_f64() / began.elapsed().as_secs_f64();
    let usage = cluster.usage()?;
    let each = usage.pss_bytes.saturating_sub(empty.pss_bytes) as f64 / sessions as f64;
    Ok(vec![
        Figure::new("idle sessions: opened", "1/s", sessions as f64 / opened.as_secs_f64()),
        Figure::new("idle sessions: memory of all nodes for each", "bytes", each),
        Figure::new("idle sessions: memory of all nodes", "MB", usage.pss_bytes as f64 / 1e6),
        Figure::new("idle sessions: CPU of all nodes", "% of a core", share * 100.0),
    ])
}

/// Keeps every session alive once, spread over [`BEAT`].
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
