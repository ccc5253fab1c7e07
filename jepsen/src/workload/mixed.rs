//! `mixed`: readers, writers, upgrades, downgrades, leases of a semaphore and multi-locks, all in
//! the same few locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use zlock_client::api::{AcquireAll, LockMode, LockWish, Policy};

use super::again::{Used, again};
use super::conversions::Convertible;
use super::owner::SESSION_TIMEOUT_MS;
use super::waiter::{Place, Tickets, look};
use super::{Work, epoch, make_root};
use crate::client::{Client, Session};
use crate::http::Call;

const EPOCH: Duration = Duration::from_secs(15);
/// How many permits each lock has for leases.
const LIMIT: u32 = 4;
/// How many one lease asks for at most.
const PERMITS_MAX: u32 = 3;
/// How many locks a multi-lock has at most.
const PARTS_MAX: usize = 3;

/// Locks that are wanted in every way.
pub struct Mixed {
    count: u64,
    next_upgrade: AtomicU64,
    used: Used,
}

/// A worker with its places.
#[derive(Default)]
pub struct Mixer {
    places: Convertible,
    /// Its reader is not upgraded, and its writer not downgraded, any more.
    done: bool,
}

impl Mixed {
    /// Locks for so many workers: few enough that all kinds meet.
    pub fn new(concurrency: usize) -> Mixed {
        let count = (concurrency as u64 / 3).max(PARTS_MAX as u64);
        Mixed { count, next_upgrade: AtomicU64::new(0), used: Used::default() }
    }

    fn names(&self, epoch: u64) -> Vec<String> {
        (0..self.count).map(|i| format!("{}/mixed/{epoch}-{i}", super::ROOT)).collect()
    }

    /// A place of any kind.
    async fn enqueue(&self, worker: &mut Mixer, session: Session, client: &mut Client) {
        worker.done = false;
        let epoch = epoch(client, EPOCH);
        self.used.note(&epoch.to_string());
        let mut names = self.names(epoch);
        client.rng.shuffle(&mut names);
        if client.rng.u8(..10) < 4 {
            names.truncate(client.rng.usize(1..=PARTS_MAX));
            let locks = names.into_iter().map(|name| wish(name, client)).collect();
            let policy = if client.rng.u8(..3) == 0 { Policy::Backfill } else { Policy::Strict };
            return several(worker, session, locks, policy, client).await;
        }
        let wish = wish(names.remove(0), client);
        let value = told(&wish);
        let mode = value["mode"].as_str().unwrap_or_default();
        let permits = match (wish.permits, wish.limit) {
            (Some(permits), Some(limit)) => format!("&permits={permits}&limit={limit}"),
            _ => "&owner=worker".to_owned(),
        };
        let call = Call::post(format!("/v1/locks{}?mode={mode}{permits}&keep=true", wish.path));
        worker.places.waiter.enqueue(session, Tickets::One, value, call, client).await;
    }

    /// A step of one whose reader became a writer, or the other way round.
    async fn use_writer(&self, worker: &mut Mixer, session: Session, writer: Place, client: &mut Client) {
        let reader = worker.places.waiter.place.take();
        if !writer.held && client.rng.u8(..20) > 0 {
            worker.places.waiter.wait(session, writer, client).await;
        } else {
            worker.places.waiter.release(session, writer, client).await;
        }
        if let Some(reader) = reader {
            worker.places.writer_was_used(reader);
        }
        worker.done = true;
    }

    /// A step of one that holds a single lock, and may hold it in another way.
    async fn use_place(&self, worker: &mut Mixer, session: Session, place: Place, client: &mut Client) {
        let changes = client.rng.bool() && !worker.done;
        match place.value["mode"].as_str() {
            Some("read") if changes => {
                let upgrade = self.next_upgrade.fetch_add(1, Ordering::Relaxed);
                let answer = worker.places.upgrade(session, place, upgrade, client).await;
                worker.done = answer.is_problem("upgrade-conflict");
            }
            Some("write") if changes => worker.places.downgrade(session, place, client).await,
            _ => worker.places.waiter.release(session, place, client).await,
        }
    }
}

async fn several(worker: &mut Mixer, session: Session, locks: Vec<LockWish>, policy: Policy, client: &mut Client) {
    let value = json!({"locks": locks.iter().map(told).collect::<Value>(), "policy": policy});
    let call = Call::post("/v1/multilocks?keep=true").json(&all(locks, policy, "worker"));
    worker.places.waiter.enqueue(session, Tickets::Several, value, call, client).await;
}

/// A lock to read, to write, or some of its permits.
fn wish(path: String, client: &mut Client) -> LockWish {
    let (mode, permits) = match client.rng.u8(..6) {
        0 | 1 => (LockMode::Read, None),
        2 | 3 => (LockMode::Write, None),
        _ => (LockMode::Semaphore, Some(client.rng.u32(1..=PERMITS_MAX))),
    };
    LockWish { path, mode, permits, limit: permits.and(Some(LIMIT)) }
}

/// What the history says of a lock that is asked for.
fn told(wish: &LockWish) -> Value {
    let mut value = json!({"lock": wish.path, "mode": wish.mode});
    if let (Some(permits), Some(limit)) = (wish.permits, wish.limit) {
        value["permits"] = permits.into();
        value["limit"] = limit.into();
    }
    value
}

fn all(locks: Vec<LockWish>, policy: Policy, owner: &str) -> AcquireAll {
    AcquireAll { locks, policy, owner: owner.to_owned(), ..AcquireAll::default() }
}

impl Work for Mixed {
    type Worker = Mixer;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "mixed").await.map(|_| ())
    }

    fn worker(&self, _index: usize) -> Mixer {
        Mixer::default()
    }

    async fn step(&self, worker: &mut Mixer, client: &mut Client) -> Result<(), String> {
        let Some(session) = worker.places.waiter.owner.session(client).await? else { return Ok(()) };
        if let Some(writer) = worker.places.writer.take() {
            self.use_writer(worker, session, writer, client).await;
            return Ok(());
        }
        let die = client.rng.u8(..20);
        match worker.places.waiter.place.take() {
            None => self.enqueue(worker, session, client).await,
            Some(place) if die < 3 => {
                look(place.lock(), client).await;
                worker.places.waiter.place = Some(place);
                worker.places.waiter.keep(session);
            }
            Some(place) if place.held => self.use_place(worker, session, place, client).await,
            Some(place) if die == 3 => worker.places.waiter.release(session, place, client).await,
            Some(place) => worker.places.waiter.wait(session, place, client).await,
        }
        Ok(())
    }

    async fn settle(&self, worker: Mixer, client: &mut Client) -> Result<(), String> {
        worker.places.waiter.owner.settle(client).await
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        let session = client.open_session(SESSION_TIMEOUT_MS).await?;
        let epochs: Vec<u64> = self.used.all().iter().filter_map(|epoch| epoch.parse().ok()).collect();
        for epoch in epochs {
            let alone = |path| LockWish { path, mode: LockMode::Exclusive, permits: None, limit: None };
            let locks: Vec<LockWish> = self.names(epoch).into_iter().map(alone).collect();
            let value = json!({"locks": locks.iter().map(told).collect::<Value>(), "policy": Policy::Strict});
            let call = Call::post("/v1/multilocks").json(&all(locks, Policy::Strict, ""));
            again(&session, Tickets::Several, value, &call, client).await;
        }
        Ok(())
    }
}
