//! `multi-lock`: take several locks at once, or one of them, give them back.

use std::time::Duration;

use serde_json::{Value, json};
use zlock_client::api::{AcquireAll, LockMode, LockWish, Policy};

use super::again::{Used, again};
use super::owner::SESSION_TIMEOUT_MS;
use super::waiter::{Tickets, Waiter};
use super::{Work, epoch, make_root};
use crate::client::{Client, Session};
use crate::http::Call;

const EPOCH: Duration = Duration::from_secs(15);
/// How many locks a multi-lock has at most.
const PARTS_MAX: usize = 3;

/// Locks that many workers want, several at a time.
pub struct MultiLocks {
    count: u64,
    used: Used,
}

impl MultiLocks {
    /// Locks for so many workers: few enough that their sets meet.
    pub fn new(concurrency: usize) -> MultiLocks {
        MultiLocks { count: (concurrency as u64 / 2).max(PARTS_MAX as u64), used: Used::default() }
    }

    fn names(&self, epoch: u64) -> Vec<String> {
        (0..self.count).map(|i| format!("{}/multi-lock/{epoch}-{i}", super::ROOT)).collect()
    }

    /// One lock, or several with the policy.
    async fn enqueue(&self, worker: &mut Waiter, session: Session, client: &mut Client) {
        let epoch = epoch(client, EPOCH);
        self.used.note(&epoch.to_string());
        let mut names = self.names(epoch);
        client.rng.shuffle(&mut names);
        let read = |client: &mut Client| client.rng.u8(..3) == 0;
        if client.rng.u8(..3) == 0 {
            let (lock, mode) = (names.remove(0), if read(client) { LockMode::Read } else { LockMode::Write });
            let value = json!({"lock": lock, "mode": mode});
            let mode = value["mode"].as_str().unwrap_or_default();
            let call = Call::post(format!("/v1/locks{lock}?mode={mode}&keep=true"));
            return worker.enqueue(session, Tickets::One, value, call, client).await;
        }
        names.truncate(client.rng.usize(1..=PARTS_MAX));
        let wish = |path| {
            let mode = if read(client) { LockMode::Read } else { LockMode::Write };
            LockWish { path, mode, permits: None, limit: None }
        };
        let locks: Vec<LockWish> = names.into_iter().map(wish).collect();
        let policy = if client.rng.u8(..3) == 0 { Policy::Backfill } else { Policy::Strict };
        let value = json!({"locks": told(&locks), "policy": policy});
        let call = Call::post("/v1/multilocks?keep=true").json(&all(locks, policy));
        worker.enqueue(session, Tickets::Several, value, call, client).await;
    }
}

fn told(locks: &[LockWish]) -> Value {
    locks.iter().map(|wish| json!({"lock": wish.path, "mode": wish.mode})).collect()
}

fn all(locks: Vec<LockWish>, policy: Policy) -> AcquireAll {
    AcquireAll { locks, policy, ..AcquireAll::default() }
}

impl Work for MultiLocks {
    type Worker = Waiter;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "multi-lock").await.map(|_| ())
    }

    fn worker(&self, _index: usize) -> Waiter {
        Waiter::default()
    }

    async fn step(&self, worker: &mut Waiter, client: &mut Client) -> Result<(), String> {
        let Some(session) = worker.owner.session(client).await? else { return Ok(()) };
        let die = client.rng.u8(..20);
        if let Some(session) = worker.step_or_look(die, session, client).await {
            self.enqueue(worker, session, client).await;
        }
        Ok(())
    }

    async fn settle(&self, worker: Waiter, client: &mut Client) -> Result<(), String> {
        worker.owner.settle(client).await
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        let session = client.open_session(SESSION_TIMEOUT_MS).await?;
        let epochs: Vec<u64> = self.used.all().iter().filter_map(|epoch| epoch.parse().ok()).collect();
        for epoch in epochs {
            let wish = |path| LockWish { path, mode: LockMode::Exclusive, permits: None, limit: None };
            let locks: Vec<LockWish> = self.names(epoch).into_iter().map(wish).collect();
            let value = json!({"locks": told(&locks), "policy": Policy::Strict});
            let call = Call::post("/v1/multilocks").json(&all(locks, Policy::Strict));
            again(&session, Tickets::Several, value, &call, client).await;
        }
        Ok(())
    }
}
