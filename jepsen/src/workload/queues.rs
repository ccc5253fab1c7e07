//! Clients of the workloads `queue` and `semaphore`: they ask for a place in a queue, wait for the
//! grant at any node, and release the place.

use zlock_client::api::LockMode;

use super::Work;
use super::pool::Pool;
use super::waiter::{Asked, Tickets, Waiter};
use super::wishes::{LIMIT, PERMITS_MAX, lease, one, wish};
use crate::answer::Effect;
use crate::client::{Client, Session};

/// Kind of the places that clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Places in queues of exclusive locks.
    Plain,
    /// Places for some permits of a semaphore. Some requests name another limit than the semaphore
    /// has.
    Semaphore,
}

/// The workload `queue` or `semaphore`: queues in which many workers wait.
pub struct Queues {
    kind: QueueKind,
    pool: Pool,
}

impl Queues {
    /// Returns the workload for this number of workers, with so few queues that queues are long.
    pub fn new(kind: QueueKind, concurrency: usize) -> Queues {
        let pool = match kind {
            QueueKind::Plain => Pool::new("queue", concurrency / 6),
            QueueKind::Semaphore => Pool::new("semaphore", concurrency / 6),
        };
        Queues { kind, pool }
    }

    fn ask(&self, client: &mut Client) -> Asked {
        match self.kind {
            QueueKind::Plain => one(&wish(self.pool.take(client), LockMode::Exclusive)),
            QueueKind::Semaphore => one(&lease(self.pool.take(client), client.rng.u32(1..=PERMITS_MAX), LIMIT)),
        }
    }

    /// Asks for a permit with another limit than the semaphore has. The request must be refused
    /// while permits are held.
    async fn ask_with_other_limit(&self, worker: &mut Waiter, session: Session, lock: String, client: &mut Client) {
        let (_, mut value, call) = one(&lease(lock, 1, LIMIT + client.rng.u32(1..=2)));
        value["owner"] = session.id.into();
        let answer = client
            .operate("acquire", value.clone(), call.session(&session.key), |answer| {
                Tickets::One.read(answer, Effect::Write, &mut value)?;
                Some(value)
            })
            .await;
        worker.after(session, &answer, client);
    }
}

impl Work for Queues {
    type Worker = Waiter;

    async fn step(&self, worker: &mut Waiter, client: &mut Client) -> Result<(), String> {
        let Some(session) = worker.owner.session(client).await? else { return Ok(()) };
        let die = client.rng.u8(..20);
        let held = worker.place.as_ref().filter(|place| place.held && self.kind == QueueKind::Semaphore && die == 0);
        if let Some(lock) = held.map(|place| place.lock().to_owned()) {
            self.ask_with_other_limit(worker, session, lock, client).await;
        } else if let Some(session) = worker.step_or_look(die, session, client).await {
            let asked = self.ask(client);
            worker.enqueue(session, asked, client).await;
        }
        Ok(())
    }

    async fn settle(&self, worker: Waiter, client: &mut Client) -> Result<(), String> {
        worker.owner.settle(client).await
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        let target = |lock: &str| {
            let (_, value, call) = match self.kind {
                QueueKind::Semaphore => one(&lease(lock.to_owned(), LIMIT, LIMIT)),
                _ => one(&wish(lock.to_owned(), LockMode::Exclusive)),
            };
            (value, call)
        };
        self.pool.acquire_again(client, target).await
    }
}
