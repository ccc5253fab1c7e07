//! What the clients do. Each function is one client's round; it ends when `end` has passed.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::ValueEnum;
use hyper::Method;
use protocol::Ticket;

use crate::http::{Connection, Error, read};
use crate::summary::Round;

/// The workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Every client sets 64 bytes on a znode of its own, one after the other.
    Write,
    /// Every client takes and releases a lock of its own: two writes each.
    LockCycle,
    /// All clients take and release one lock. The latency is the hand-off: from sending the release to the
    /// next holder's having its answer. Needs two clients.
    HandOff,
    /// Linearizable reads of a znode of 64 bytes.
    Read,
}

impl Workload {
    /// The name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Write => "write",
            Workload::LockCycle => "lock-cycle",
            Workload::HandOff => "hand-off",
            Workload::Read => "read",
        }
    }
}

/// What the clients of one round share: when the present holder sent its release.
#[derive(Default)]
pub(crate) struct Shared {
    released_at: Mutex<Option<Instant>>,
}

/// One client of one round.
pub(crate) struct Client<'a> {
    pub(crate) connection: Connection,
    pub(crate) number: usize,
    pub(crate) shared: &'a Shared,
    pub(crate) end: Instant,
}

impl Client<'_> {
    /// Works until the end; the first error ends the client's round.
    pub(crate) async fn run(mut self, workload: Workload) -> Round {
        let started = Instant::now();
        let mut round = Round::default();
        while Instant::now() < self.end {
            let outcome = match workload {
                Workload::Write => self.write().await,
                Workload::LockCycle => self.lock_cycle().await,
                Workload::HandOff => self.hand_off().await,
                Workload::Read => self.read().await,
            };
            match outcome {
                Ok(Some(latency)) => round.latencies.push(latency),
                Ok(None) => {}
                Err(error) => {
                    round.errors += 1;
                    round.first_error.get_or_insert(error.to_string());
                    break;
                }
            }
        }
        round.elapsed = started.elapsed();
        round
    }

    async fn write(&mut self) -> Result<Option<Duration>, Error> {
        let started = Instant::now();
        let path = format!("/v1/znodes/bench-{}", self.number);
        self.connection.send(Method::PUT, &path, Bytes::from_static(&[b'x'; 64])).await?;
        Ok(Some(started.elapsed()))
    }

    async fn read(&mut self) -> Result<Option<Duration>, Error> {
        let started = Instant::now();
        let path = format!("/v1/znodes/bench-{}", self.number);
        self.connection.send(Method::GET, &path, Bytes::new()).await?;
        Ok(Some(started.elapsed()))
    }

    async fn lock_cycle(&mut self) -> Result<Option<Duration>, Error> {
        let started = Instant::now();
        let ticket = self.acquire(&format!("/v1/locks/bench/own-{}?wait=30s", self.number)).await?;
        self.release(&ticket).await?;
        Ok(Some(started.elapsed()))
    }

    async fn hand_off(&mut self) -> Result<Option<Duration>, Error> {
        let ticket = self.acquire("/v1/locks/bench/shared?wait=60s").await?;
        let handed = self.shared.released_at.lock().expect("no client panics").take().map(|at| at.elapsed());
        // Written before it is sent: the next holder may have its answer before this client has its own.
        *self.shared.released_at.lock().expect("no client panics") = Some(Instant::now());
        self.release(&ticket).await?;
        Ok(handed)
    }

    async fn acquire(&mut self, path: &str) -> Result<String, Error> {
        let answer = self.connection.send(Method::POST, path, Bytes::new()).await?;
        let (Ticket::Held { ticket, .. } | Ticket::Waiting { ticket, .. }) = read(&answer)?;
        Ok(ticket)
    }

    async fn release(&mut self, ticket: &str) -> Result<(), Error> {
        let path = format!("/v1/tickets/{}", ticket.trim_start_matches('/'));
        self.connection.send(Method::DELETE, &path, Bytes::new()).await.map(drop)
    }
}
