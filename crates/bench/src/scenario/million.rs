//! A large state: the speed of loading, the memory, and the time of a restart.

use std::ops::Range;
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream;

use super::{Figure, Scale, snapshot};
use crate::client::Client;
use crate::error::Error;
use crate::system::{Cluster, Kind};
use crate::workload::DATA;

const CLIENTS: usize = 16;
/// Number of creates in one transaction; etcd and zlock accept up to 128 operations.
const BATCH: usize = 100;
/// Number of znodes below one directory.
const SIBLINGS: usize = 1_000;

/// Number of znodes at full scale.
pub(super) const ZNODES: usize = 1_000_000;

pub(super) async fn run(
    cluster: &mut Cluster,
    kind: Kind,
    scale: Scale,
    figures: &mut Vec<Figure>,
) -> Result<(), Error> {
    let znodes = scale.of(ZNODES);
    let memory_of_a_node =
        |cluster: &Cluster| cluster.memory_bytes().map(|all| all as f64 / 1e6 / cluster.size() as f64);
    let started = Instant::now();
    load_all(cluster, kind, 0..znodes).await?;
    let rate = znodes as f64 / started.elapsed().as_secs_f64();
    figures.push(Figure::new(
        format!("rate of loading {znodes} znodes, {BATCH} in a transaction, by {CLIENTS} clients"),
        "1/s",
        rate,
    ));
    figures.push(Figure::new("memory of a node", "MB", memory_of_a_node(cluster)?));
    let back = cluster.restart().await?;
    let mut again = Client::open(kind.door(), &cluster.addrs(kind.door())[0]).await?;
    again.get(&name(znodes - 1), true).await?;
    figures.push(Figure::new("time of a restart until all nodes serve", "s", back.as_secs_f64()));
    figures.push(Figure::new("memory of a node after the restart", "MB", memory_of_a_node(cluster)?));
    snapshot::run(cluster, kind, figures).await
}

/// Creates the znodes with these numbers, and their directories.
pub(super) async fn load_all(cluster: &Cluster, kind: Kind, numbers: Range<usize>) -> Result<(), Error> {
    let addrs = cluster.addrs(kind.door());
    let mut first = Client::open(kind.door(), &addrs[0]).await?;
    if matches!(first, Client::ZooKeeper(_)) {
        first.create("m", b"").await?;
        for directory in numbers.start / SIBLINGS..numbers.end.div_ceil(SIBLINGS) {
            first.create(&format!("m/{directory}"), b"").await?;
        }
    }
    let loaders = (0..CLIENTS).map(|number| load(kind, &addrs[number % addrs.len()], number, numbers.clone()));
    let mut loaders: stream::FuturesUnordered<_> = loaders.collect();
    while let Some(loaded) = loaders.next().await {
        loaded?;
    }
    Ok(())
}

async fn load(kind: Kind, addr: &str, number: usize, numbers: Range<usize>) -> Result<(), Error> {
    let mut client = Client::open(kind.door(), addr).await?;
    for batch in (numbers.start + number * BATCH..numbers.end).step_by(CLIENTS * BATCH) {
        client.create_all((batch..(batch + BATCH).min(numbers.end)).map(name), &DATA).await?;
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("m/{}/n{number}", number / SIBLINGS)
}
