//! What becomes of writes when there is more of everything: znodes in the state, nodes in the cluster.

use std::path::Path;
use std::time::Duration;

use super::{Figure, million};
use crate::error::Error;
use crate::system::{Cluster, Kind};
use crate::workload::{self, Load, Workload};

const CLIENTS: usize = 64;
const LENGTH: Duration = Duration::from_secs(3);

/// How many znodes, and what the figures are called.
const SIZES: [(usize, &str, &str); 4] = [
    (1_000, "writes among 1,000 znodes, 64 clients", "their p99"),
    (10_000, "writes among 10,000 znodes, 64 clients", "their p99 (10,000)"),
    (100_000, "writes among 100,000 znodes, 64 clients", "their p99 (100,000)"),
    (1_000_000, "writes among 1,000,000 znodes, 64 clients", "their p99 (1,000,000)"),
];

const NODES: [(usize, &str, &str); 4] = [
    (1, "writes on 1 node, 64 clients", "their p99 (1 node)"),
    (3, "writes on 3 nodes, 64 clients", "their p99 (3 nodes)"),
    (5, "writes on 5 nodes, 64 clients", "their p99 (5 nodes)"),
    (7, "writes on 7 nodes, 64 clients", "their p99 (7 nodes)"),
];

/// Loads one cluster more and more, up to `znodes`, and starts clusters of several sizes.
pub(super) async fn run(kind: Kind, data: &Path, znodes: usize) -> Result<Vec<Figure>, Error> {
    let mut figures = Vec::new();
    let cluster = Cluster::start(kind.program(), 3, data).await?;
    let mut loaded = 0;
    for (size, rate, p99) in SIZES.into_iter().filter(|(size, ..)| *size <= znodes) {
        million::load_all(&cluster, kind, loaded..size).await?;
        loaded = size;
        figures.extend(writes(&cluster, kind, rate, p99).await?);
    }
    drop(cluster);
    for (nodes, rate, p99) in NODES {
        let cluster = Cluster::start(kind.program(), nodes, data).await?;
        figures.extend(writes(&cluster, kind, rate, p99).await?);
    }
    Ok(figures)
}

async fn writes(cluster: &Cluster, kind: Kind, rate: &'static str, p99: &'static str) -> Result<[Figure; 2], Error> {
    let load = Load { workload: Workload::Write, clients: CLIENTS, length: LENGTH, first_node: 0 };
    let round = workload::round(cluster, kind, load).await?;
    if let Some(error) = round.first_error {
        return Err(Error::Answer(error));
    }
    let figures = round.figures();
    Ok([Figure::new(rate, "1/s", figures.per_second), Figure::new(p99, "us", figures.p99_us)])
}
