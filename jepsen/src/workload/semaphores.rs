//! `semaphore`: take some of the permits, give them back; now and then ask with another limit.

use std::time::Duration;

use serde_json::json;

use super::again::{Used, again};
use super::owner::SESSION_TIMEOUT_MS;
use super::waiter::{Tickets, Waiter};
use super::{Work, epoch, make_root};
use crate::answer::Effect;
use crate::client::{Client, Session};
use crate::http::Call;

const EPOCH: Duration = Duration::from_secs(15);
/// How many permits a semaphore has.
const LIMIT: u64 = 4;
/// How many one acquire asks for at most.
const PERMITS_MAX: u64 = 3;

/// Semaphores that many workers want.
pub struct Semaphores {
    count: u64,
    used: Used,
}

impl Semaphores {
    /// Semaphores for so many workers: few enough that permits are short.
    pub fn new(concurrency: usize) -> Semaphores {
        Semaphores { count: (concurrency as u64 / 6).max(1), used: Used::default() }
    }

    async fn enqueue(&self, worker: &mut Waiter, session: Session, client: &mut Client) {
        let lock = format!("{}/semaphore/{}-{}", super::ROOT, epoch(client, EPOCH), client.rng.u64(..self.count));
        self.used.note(&lock);
        let permits = client.rng.u64(1..=PERMITS_MAX);
        let call = Call::post(format!("{}&keep=true", target(&lock, permits, LIMIT)));
        let value = json!({"lock": lock, "permits": permits, "limit": LIMIT});
        worker.enqueue(session, Tickets::One, value, call, client).await;
    }

    /// There are permits out, so the limit is set; another one must be refused.
    async fn ask_with_other_limit(&self, worker: &mut Waiter, session: Session, lock: &str, client: &mut Client) {
        let (permits, limit) = (1, LIMIT + client.rng.u64(1..=2));
        let mut value = json!({"lock": lock, "permits": permits, "limit": limit, "owner": session.id});
        let call = Call::post(target(lock, permits, limit)).session(&session.key);
        let (answer, _) = client
            .operate("acquire", value.clone(), call, |answer| {
                Tickets::One.read(answer, Effect::Write, &mut value)?;
                Some(value)
            })
            .await;
        worker.after(session, &answer, client);
    }
}

fn target(lock: &str, permits: u64, limit: u64) -> String {
    format!("/v1/locks{lock}?mode=semaphore&permits={permits}&limit={limit}")
}

impl Work for Semaphores {
    type Worker = Waiter;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "semaphore").await.map(|_| ())
    }

    fn worker(&self, _index: usize) -> Waiter {
        Waiter::default()
    }

    async fn step(&self, worker: &mut Waiter, client: &mut Client) -> Result<(), String> {
        let Some(session) = worker.owner.session(client).await? else { return Ok(()) };
        let die = client.rng.u8(..20);
        if die == 0
            && let Some(place) = worker.place.as_ref().filter(|place| place.held)
        {
            let lock = place.lock().to_owned();
            self.ask_with_other_limit(worker, session, &lock, client).await;
        } else if let Some(session) = worker.step_or_look(die, session, client).await {
            self.enqueue(worker, session, client).await;
        }
        Ok(())
    }

    async fn settle(&self, worker: Waiter, client: &mut Client) -> Result<(), String> {
        worker.owner.settle(client).await
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        let session = client.open_session(SESSION_TIMEOUT_MS).await?;
        for lock in self.used.all() {
            let value = json!({"lock": lock, "permits": LIMIT, "limit": LIMIT});
            again(&session, Tickets::One, value, &Call::post(target(&lock, LIMIT, LIMIT)), client).await;
        }
        Ok(())
    }
}
