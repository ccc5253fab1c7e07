//! Writes before and during snapshots of a large state.

use std::time::{Duration, Instant};

use super::Figure;
use crate::client::{Door, Rest};
use crate::error::Error;
use crate::figures::{Ranks, Round};
use crate::system::{Cluster, Kind, Program};
use crate::workload::{self, Load, Workload};

const CLIENTS: usize = 64;
/// Duration of the writes to systems other than zlock. Those systems do not report their snapshots,
/// but take some in this time.
const LENGTH: Duration = Duration::from_secs(20);
/// Longest time until every node of zlock has taken a snapshot. A node begins one after 200,000
/// entries (`disk.snapshot_log_entries`), which the clients write meanwhile.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(150);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Shortest duration of the writes before the first snapshot, with which the writes during the
/// snapshots are compared.
const BEFORE: Duration = Duration::from_secs(1);

/// Time from the begin of the first node's snapshot to the end of the last node's snapshot.
struct Span {
    began: Instant,
    ended: Instant,
    /// Time that the snapshot of the slowest node took.
    longest: Duration,
}

pub(super) async fn run(cluster: &Cluster, kind: Kind, figures: &mut Vec<Figure>) -> Result<(), Error> {
    let load = Load { workload: Workload::Write, clients: CLIENTS, length: LENGTH, first_node: 0 };
    let began = Instant::now();
    let (round, span) = workload::round_while(cluster, kind, load, async {
        match cluster.program {
            Program::Zlock => snapshots(cluster).await.map(Some),
            _ => {
                tokio::time::sleep(LENGTH).await;
                Ok(None)
            }
        }
    })
    .await?;
    if let Some(error) = &round.first_error {
        return Err(Error::Answer(error.clone()));
    }
    let whole = round.figures();
    figures.extend([
        Figure::new("writes of 64 clients, snapshots included", "1/s", whole.per_second),
        Figure::new("p99 of these writes of 64 clients", "us", whole.p99_us),
        Figure::new("max of these writes of 64 clients", "us", whole.max_us),
    ]);
    let Some(Span { began: snapshot, ended, longest }) = span? else { return Ok(()) };
    if snapshot < began + BEFORE {
        return Err(Error::Answer("the snapshot came before there was anything to compare it with".into()));
    }
    let before = ranks(&round, |began, _| began < snapshot);
    // Writes that were under way at any time of the snapshot.
    let during = ranks(&round, |began, until| until >= snapshot && began < ended);
    figures.extend([
        Figure::new("duration of the slowest node's snapshot", "s", longest.as_secs_f64()),
        Figure::new("p99 of writes before the snapshot", "us", before.at_us(0.99)),
        Figure::new("p99 of writes during the snapshot", "us", during.at_us(0.99)),
        Figure::new("max of writes before the snapshot", "us", before.at_us(1.0)),
        Figure::new("max of writes during the snapshot", "us", during.at_us(1.0)),
    ]);
    Ok(())
}

pub(super) fn ranks(round: &Round, counts: impl Fn(Instant, Instant) -> bool) -> Ranks {
    let chosen = round.samples.iter().filter(|sample| counts(sample.began, sample.began + sample.latency));
    Ranks::of(chosen.map(|sample| sample.latency))
}

/// Progress of one node's snapshot, read from its metrics.
struct Watched {
    client: Rest,
    /// Zxid of the last entry in the node's newest snapshot.
    zxid: u64,
    /// Bytes applied since the last snapshot began. The number falls when a new snapshot begins.
    since_snapshot: u64,
    began: Option<Instant>,
    ended: Option<Instant>,
}

/// Waits until every node has begun a snapshot and finished it.
async fn snapshots(cluster: &Cluster) -> Result<Span, Error> {
    let mut nodes = Vec::new();
    for addr in cluster.addrs(Door::Rest) {
        let mut client = Rest::open(&addr).await?;
        let (zxid, since_snapshot) = look(&mut client).await?;
        nodes.push(Watched { client, zxid, since_snapshot, began: None, ended: None });
    }
    let deadline = Instant::now() + SNAPSHOT_WITHIN;
    while Instant::now() < deadline {
        tokio::time::sleep(LOOK_EVERY).await;
        for node in nodes.iter_mut().filter(|node| node.ended.is_none()) {
            let (zxid, since_snapshot) = look(&mut node.client).await?;
            if node.began.is_some() {
                node.ended = (zxid != node.zxid).then(Instant::now);
            } else if since_snapshot < node.since_snapshot {
                node.began = Some(Instant::now());
            }
            (node.zxid, node.since_snapshot) = (zxid, since_snapshot);
        }
        let spans: Vec<(Instant, Instant)> = nodes.iter().filter_map(|node| Some((node.began?, node.ended?))).collect();
        if spans.len() == nodes.len() {
            let began = spans.iter().map(|span| span.0).min().expect("a cluster has nodes");
            let ended = spans.iter().map(|span| span.1).max().expect("a cluster has nodes");
            let longest = spans.iter().map(|span| span.1 - span.0).max().expect("a cluster has nodes");
            return Ok(Span { began, ended, longest });
        }
    }
    Err(Error::Answer(format!("not every node took a snapshot within {} s", SNAPSHOT_WITHIN.as_secs())))
}

/// Returns the zxid of the newest snapshot, and the bytes applied since the last snapshot began.
async fn look(client: &mut Rest) -> Result<(u64, u64), Error> {
    client.done("GET", "/metrics", b"").await?;
    let text = String::from_utf8_lossy(client.body());
    let gauge = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.ok_or_else(|| Error::Answer(format!("no {name} in the metrics")))
    };
    Ok((gauge("zlock_snapshot_zxid ")?, gauge("zlock_log_since_snapshot_bytes ")?))
}
