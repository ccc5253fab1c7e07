//! Locks of a workload: a few are in use at a time, each for one period. At the end of a run, when
//! no fault is under way, every lock that was used must be granted again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use zlock_client::api::headers;

use super::owner::SESSION_TIMEOUT_MS;
use super::waiter::{Tickets, owned};
use super::{Made, ROOT, epoch, guarded};
use crate::answer::Effect;
use crate::client::{Client, Session};
use crate::history::Kind;
use crate::http::Call;

/// Period after which clients change to new locks.
const EPOCH: Duration = Duration::from_secs(15);
/// Time within which a lock must be granted at the end of a run, when all faults are mended and no
/// other client asks for it. The sessions' timeout is longer, so that a lost grant is not hidden by
/// the expiry of its holder.
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// Longest time that one request of [`again`] waits in the queue.
const WAIT: Duration = Duration::from_secs(2);

/// Locks that many workers compete for, some with a guarded znode beside them.
pub(super) struct Pool {
    name: &'static str,
    /// Number of locks in use at a time.
    count: u64,
    next: AtomicU64,
    used: Mutex<BTreeSet<(u64, u64)>>,
    /// Guarded znodes that exist.
    guarded: Made,
}

impl Pool {
    /// Returns a pool with `count` locks at a time, at least one.
    pub(super) fn new(name: &'static str, count: usize) -> Pool {
        let count = (count as u64).max(1);
        Pool { name, count, next: AtomicU64::new(0), used: Mutex::default(), guarded: Made::default() }
    }

    /// Returns the path of a lock, given its period and its number within the period.
    pub(super) fn lock(&self, (epoch, number): (u64, u64)) -> String {
        format!("{ROOT}/{}/{epoch}-{number}", self.name)
    }

    fn note(&self, place: (u64, u64)) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(place);
    }

    fn used(&self) -> BTreeSet<(u64, u64)> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the period and the number of a random lock in use.
    pub(super) fn place(&self, client: &mut Client) -> (u64, u64) {
        (epoch(client, EPOCH), client.rng.u64(..self.count))
    }

    /// Returns the path of a random lock in use.
    pub(super) fn any(&self, client: &mut Client) -> String {
        self.lock(self.place(client))
    }

    /// Returns the path of a random lock in use, and records that it was used.
    pub(super) fn take(&self, client: &mut Client) -> String {
        let place = self.place(client);
        self.note(place);
        self.lock(place)
    }

    /// Returns a lock as [`Pool::take`] does, after creating its guarded znode.
    pub(super) async fn take_guarded(&self, client: &mut Client) -> Result<String, String> {
        let place = self.place(client);
        let lock = self.lock(place);
        self.guard(client, &lock).await?;
        self.note(place);
        Ok(lock)
    }

    /// Creates the guarded znode of a lock unless it exists.
    pub(super) async fn guard(&self, client: &mut Client, lock: &str) -> Result<(), String> {
        self.guarded.ensure(client, &guarded::path(lock), "").await
    }

    /// Reads all guarded znodes at the end of a run.
    pub(super) async fn read_at_the_end(&self, client: &mut Client) -> Result<(), String> {
        for path in self.guarded.all().await {
            guarded::read_at_the_end(&path, client).await?;
        }
        Ok(())
    }

    /// Returns the paths of all locks in use, in random order, and records that they were used.
    pub(super) fn take_all(&self, client: &mut Client) -> Vec<String> {
        let (epoch, _) = self.place(client);
        self.note((epoch, 0));
        let mut all: Vec<String> = (0..self.count).map(|number| self.lock((epoch, number))).collect();
        client.rng.shuffle(&mut all);
        all
    }

    /// Returns a number that was not returned before.
    pub(super) fn fresh(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the path of every lock that was used in the run.
    pub(super) fn all_used(&self) -> Vec<String> {
        self.used().into_iter().map(|place| self.lock(place)).collect()
    }

    /// Returns the sets of locks that were in use at the same time.
    pub(super) fn all_sets(&self) -> Vec<Vec<String>> {
        let set = |(epoch, _)| (0..self.count).map(|number| self.lock((epoch, number))).collect();
        self.used().into_iter().map(set).collect()
    }

    /// Acquires each used lock once more. From the path of a lock, `target` makes the history value
    /// and the HTTP request.
    pub(super) async fn acquire_again(
        &self,
        client: &mut Client,
        target: impl Fn(&str) -> (Value, Call),
    ) -> Result<(), String> {
        let session = client.open_session(SESSION_TIMEOUT_MS).await?;
        for lock in self.all_used() {
            let (value, call) = target(&lock);
            again(&session, Tickets::One, value, &call, client).await;
        }
        Ok(())
    }

    /// Reads the guarded znodes at the end of a run, and then acquires each lock once more.
    pub(super) async fn read_and_acquire_again(&self, client: &mut Client, route: &str) -> Result<(), String> {
        self.read_at_the_end(client).await?;
        let call = |lock: &str| Call::post(format!("/v1/{route}{lock}"));
        self.acquire_again(client, |lock| (json!({"lock": lock}), call(lock))).await
    }
}

/// Makes the operation `again`, which acquires a lock once more. It fails if the lock is not
/// granted within [`AGAIN_MAX`].
pub(super) async fn again(session: &Session, tickets: Tickets, value: Value, call: &Call, client: &mut Client) {
    let mut value = owned(&value, session);
    client.invoke("again", value.clone());
    let deadline = Instant::now() + AGAIN_MAX;
    // All tries have the same idempotency key, so that a try continues an unanswered earlier one.
    let key = format!("{:032x}", client.rng.u128(..));
    let call = call.clone().query(&format!("wait={}s", WAIT.as_secs())).waiting(WAIT);
    let call = call.header(headers::IDEMPOTENCY_KEY, &key).session(&session.key);
    loop {
        let mut answer = client.send(call.clone()).await;
        if let Some((_, true)) = tickets.read(&mut answer, Effect::Write, &mut value) {
            return client.end(Kind::Ok, "again", value, None, Some(&answer));
        }
        if Instant::now() > deadline {
            // `Fail` even if the last try is in doubt: the lock was not granted in time.
            return client.end(Kind::Fail, "again", value, answer.error.clone(), Some(&answer));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
