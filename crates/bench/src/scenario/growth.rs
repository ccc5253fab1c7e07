//! Writes while the number of znodes, or of nodes in the cluster, grows.

use std::time::Duration;

use super::{Figure, Scale, million};
use crate::error::Error;
use crate::system::{Cluster, Kind};
use crate::workload::{self, Load, Workload};

const CLIENTS: usize = 64;
const LENGTH: Duration = Duration::from_secs(3);
const NODES: [u16; 4] = [1, 3, 5, 7];

/// Measures writes while the cluster holds 1,000 znodes, then ten times as many and so on, up to a
/// million.
pub(super) async fn znodes(
    cluster: &Cluster,
    kind: Kind,
    scale: Scale,
    figures: &mut Vec<Figure>,
) -> Result<(), Error> {
    let mut loaded = 0;
    for size in scale.steps(1_000, 1_000_000) {
        million::load_all(cluster, kind, loaded..size).await?;
        loaded = size;
        writes(cluster, kind, size, figures).await?;
    }
    Ok(())
}

/// Measures writes on clusters of several sizes, each with empty data.
pub(super) async fn nodes(kind: Kind, figures: &mut Vec<Figure>) -> Result<(), Error> {
    for nodes in NODES {
        let cluster = Cluster::start(kind.program(), nodes, false).await?;
        writes(&cluster, kind, nodes.into(), figures).await?;
    }
    Ok(())
}

/// Measures the writes of 64 clients. `size` is the present number of what the scenario increases:
/// znodes, nodes, waiters or sessions.
pub(super) async fn writes(cluster: &Cluster, kind: Kind, size: usize, figures: &mut Vec<Figure>) -> Result<(), Error> {
    let load = Load { workload: Workload::Write, clients: CLIENTS, length: LENGTH, first_node: 0 };
    let round = workload::round(cluster, kind, load).await?;
    let memory = cluster.memory_bytes()? as f64 / cluster.size() as f64;
    if let Some(error) = round.first_error {
        return Err(Error::Answer(format!("writes at {size}: {error}")));
    }
    let measured = round.figures();
    figures.extend([
        Figure::at(size, "writes", "1/s", measured.per_second),
        Figure::at(size, "write p50", "us", measured.p50_us),
        Figure::at(size, "write p99", "us", measured.p99_us),
        Figure::at(size, "write max", "us", measured.max_us),
        Figure::at(size, "server CPU of a write", "us", measured.server_cpu_us),
        Figure::at(size, "memory of a node", "MB", memory / 1e6),
    ]);
    Ok(())
}
