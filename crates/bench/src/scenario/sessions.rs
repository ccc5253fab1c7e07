//! More and more sessions that are kept alive, and what they cost the writes of others.
//!
//! Over HTTP a session has no connection of its own: 64 connections open all of them and keep them
//! alive.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;

use super::{Figure, Scale, growth};
use crate::client::Rest;
use crate::error::Error;
use crate::system::{Cluster, Kind};

const CONNECTIONS: usize = 64;
/// The longest that zlock agrees to by default.
const SESSION_TIMEOUT_MS: u64 = 300_000;
/// Every session is kept alive once in this time: a third of the timeout, as ZooKeeper's clients
/// do.
const BEAT: Duration = Duration::from_secs(100);

pub(super) async fn run(cluster: &Cluster, kind: Kind, scale: Scale, figures: &mut Vec<Figure>) -> Result<(), Error> {
    let addrs = cluster.addrs(kind.door());
    let mut keepers = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let client = Rest::open(&addrs[number % addrs.len()]).await?;
        keepers.push(Keeper { client, sessions: Vec::new(), beats: number });
    }
    let mut opened = 0;
    for sessions in scale.steps(10, 100_000) {
        let more = sessions - opened;
        let began = Instant::now();
        let share = |number| more / CONNECTIONS + usize::from(number < more % CONNECTIONS);
        let opening = keepers.iter_mut().enumerate().map(|(number, keeper)| keeper.open(share(number)));
        opening.collect::<FuturesUnordered<_>>().try_collect::<()>().await?;
        opened = sessions;
        let rate = more as f64 / began.elapsed().as_secs_f64();
        figures.push(Figure::at(sessions, "sessions opened, 64 at a time", "1/s", rate));
        let (stop, stopped) = watch::channel(false);
        let written = async {
            let written = growth::writes(cluster, kind, sessions, figures).await;
            stop.send_replace(true);
            written
        };
        let keeping: FuturesUnordered<_> = keepers.iter_mut().map(|keeper| keeper.keep(stopped.clone())).collect();
        tokio::try_join!(written, keeping.try_collect::<()>())?;
    }
    Ok(())
}

/// A connection and the sessions that it keeps alive.
struct Keeper {
    client: Rest,
    sessions: Vec<String>,
    /// Counts the beats: whose turn it is.
    beats: usize,
}

impl Keeper {
    async fn open(&mut self, more: usize) -> Result<(), Error> {
        for _ in 0..more {
            self.client.open_session(SESSION_TIMEOUT_MS).await?;
            self.sessions.extend(self.client.take_session());
        }
        Ok(())
    }

    /// Keeps one session alive after the other, spread evenly over [`BEAT`], until `stopped` tells,
    /// between two of them.
    async fn keep(&mut self, mut stopped: watch::Receiver<bool>) -> Result<(), Error> {
        if self.sessions.is_empty() {
            return Ok(());
        }
        let gap = BEAT / u32::try_from(self.sessions.len()).unwrap_or(u32::MAX);
        // Keepers do not beat at the same moment: each begins at its own place in the first gap.
        let mut next = Instant::now() + gap.mul_f64((self.beats as f64 * 0.618).fract());
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next.into()) => {}
                _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
            }
            let turn = self.beats % self.sessions.len();
            self.client.keep_session_alive(&self.sessions[turn]).await?;
            self.beats += 1;
            next += gap;
        }
    }
}
