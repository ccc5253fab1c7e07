//! Time until many watchers are told of one change.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::{Figure, Scale};
use crate::client::Client;
use crate::error::Error;
use crate::figures::Spread;
use crate::system::{Cluster, Kind, Named as _};
use crate::workload::DATA;

/// Number of watchers at full scale.
const WATCHERS: usize = 1_000;
const CHANGES: usize = 5;
/// Time for long polls to reach their servers. The answer to a poll comes only with the event, so
/// no answer shows that a poll has arrived.
const ARRIVE: Duration = Duration::from_millis(500);

pub(super) async fn run(cluster: &Cluster, kind: Kind, scale: Scale, figures: &mut Vec<Figure>) -> Result<(), Error> {
    let count = scale.of(WATCHERS);
    let addrs = cluster.addrs(kind.door());
    let name = format!("{}-watched", kind.name());
    let mut writer = Client::open(kind.door(), &addrs[0]).await?;
    writer.create(&name, &DATA).await?;
    let mut watchers = Vec::with_capacity(count);
    for number in 0..count {
        watchers.push(Client::open(kind.door(), &addrs[number % addrs.len()]).await?);
    }
    let mut last = Vec::new();
    let mut middle = Vec::new();
    for _ in 0..CHANGES {
        for watcher in &mut watchers {
            watcher.watch(&name).await?;
        }
        tokio::time::sleep(ARRIVE).await;
        let started = Instant::now();
        let told = async {
            let mut waits: FuturesUnordered<_> = watchers.iter_mut().map(|watcher| watcher.told(&name)).collect();
            let mut times = Vec::with_capacity(count);
            while let Some(told) = waits.next().await {
                told?;
                times.push(started.elapsed().as_secs_f64() * 1e3);
            }
            Ok::<Vec<f64>, Error>(times)
        };
        let (written, times) = tokio::join!(writer.set(&name, &DATA), told);
        written?;
        let times = times?;
        middle.push(times[times.len() / 2]);
        last.push(times[times.len() - 1]);
    }
    for client in watchers.iter_mut().chain([&mut writer]) {
        if let Client::ZooKeeper(zookeeper) = client {
            zookeeper.close_session().await?;
        }
    }
    let median = |times: Vec<f64>| Spread::of(times.into_iter()).median;
    figures.extend([
        Figure::new(format!("half of {count} watchers have their event"), "ms", median(middle)),
        Figure::new(format!("last of {count} watchers has its event"), "ms", median(last)),
    ]);
    Ok(())
}
