//! More and more sessions that are kept alive, and what they cost the writes of other clients.
//!
//! Over HTTP a session needs no connection: 64 connections open all sessions and keep them alive.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;

use super::{Figure, Scale, growth};
use crate::client::Rest;
use crate::error::Error;
use crate::system::{Cluster, Kind};

const CONNECTIONS: usize = 64;
/// The longest timeout that zlock accepts by default.
const SESSION_TIMEOUT_MS: u64 = 300_000;
/// Interval of each session's heartbeats: a third of the timeout, as in ZooKeeper's clients.
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
    /// Counter of heartbeats, which selects the next session. It starts at the keeper's index, so
    /// that the keepers send at different moments.
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

    /// Sends heartbeats for one session after the other, spread evenly over [`BEAT`], until
    /// `stopped` is true.
    async fn keep(&mut self, mut stopped: watch::Receiver<bool>) -> Result<(), Error> {
        if self.sessions.is_empty() {
            return Ok(());
        }
        let gap = BEAT / u32::try_from(self.sessions.len()).unwrap_or(u32::MAX);
        // Keepers begin at different moments, so that they do not send at once.
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
