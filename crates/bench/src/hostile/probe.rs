//! Probes (requests to `/livez`) of the nodes during hostile traffic. Each probe uses a new
//! connection from an address that has no other connections.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::client::{Door, Link, Rest};
use crate::error::Error;
use crate::system::Cluster;

const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
/// Pause between two probes.
const PACE: Duration = Duration::from_millis(200);
/// Time limit of one probe. A probe without an answer counts with this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Worst measurements of all nodes while hostile clients sent requests.
#[derive(Default)]
pub(super) struct Seen {
    /// Longest time until a probe was answered.
    pub(super) longest: Duration,
    /// Largest memory of one node, in bytes.
    pub(super) memory_bytes: u64,
    /// Longest time in seconds for which a node's server kept a thread busy without a pause, for
    /// example to handle one connection's input or to deliver events. From the metric
    /// `zlock_longest_step_seconds`.
    pub(super) step_s: f64,
}

/// Probes the nodes in turn until `until`. Returns the longest answer time, the largest memory and
/// the longest busy time of a thread.
pub(super) async fn look(cluster: &Cluster, until: Instant) -> Seen {
    let addrs = cluster.addrs(Door::Rest);
    let mut seen = Seen::default();
    for number in (0..addrs.len()).cycle() {
        if Instant::now() >= until {
            break;
        }
        let began = Instant::now();
        let took = match timeout(PATIENCE, probe(&addrs[number], "/livez")).await {
            Ok(Ok(_)) => began.elapsed(),
            _ => PATIENCE,
        };
        seen.longest = seen.longest.max(took);
        if let Ok(Ok(metrics)) = timeout(PATIENCE, probe(&addrs[number], "/metrics")).await {
            seen.step_s = seen.step_s.max(longest_step_s(&metrics).unwrap_or_default());
        }
        seen.memory_bytes = seen.memory_bytes.max(cluster.memory_of_the_largest_bytes().unwrap_or_default());
        sleep(PACE).await;
    }
    seen
}

async fn probe(addr: &str, path: &str) -> Result<String, Error> {
    let mut client = Rest::over(Link::open_from(SOURCE, addr).await?, addr);
    client.done("GET", path, b"").await?;
    Ok(String::from_utf8_lossy(client.body()).into_owned())
}

fn longest_step_s(metrics: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix("zlock_longest_step_seconds "))?.parse().ok()
}
