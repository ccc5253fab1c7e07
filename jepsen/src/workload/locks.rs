//! Clients of the workloads `lock`, `reentrant-lock` and `rw-lock`: they acquire a lock, hold it
//! for a moment, and release it.

use std::time::Duration;

use serde_json::json;

use super::door::{Doors, Wish};
use super::owner::Owner;
use super::waiter::next_wait;
use super::{ROOT, Work, epoch};
use crate::answer::Answer;
use crate::client::{Client, Session};

/// Longest wait of an acquire in the queue.
const WAIT: Duration = Duration::from_millis(400);
/// Period after which clients change to new locks, so that each lock has a short history.
const EPOCH: Duration = Duration::from_secs(10);
/// Largest number of holds that an owner acquires of a reentrant lock.
const HOLDS_MAX: u64 = 3;

/// Kind of the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Exclusive lock that its owner cannot take again.
    Plain,
    /// Exclusive lock that its owner may take again.
    Reentrant,
    /// Shared by readers, exclusive for writers.
    ReadWrite,
}

/// The workload `lock`, `reentrant-lock` or `rw-lock`: locks that many workers compete for.
pub struct Locks {
    doors: Doors,
    kind: LockKind,
    /// Number of locks in use at a time.
    count: u64,
}

/// A lock that a worker holds.
struct Held {
    lock: String,
    mode: &'static str,
    ticket: String,
    holds: u64,
}

/// A worker with its session.
#[derive(Default)]
pub struct Holder {
    owner: Owner,
    held: Option<Held>,
}

impl Holder {
    fn after(&mut self, session: Session, answer: &Answer, client: &mut Client) {
        if !self.owner.after(session, answer, client) {
            self.held = None;
        }
    }
}

impl Locks {
    /// Returns the workload for this number of workers, with so few locks that workers compete.
    pub fn new(doors: Doors, kind: LockKind, concurrency: usize) -> Locks {
        Locks { doors, kind, count: (concurrency as u64 / 4).max(1) }
    }

    /// Tells whether the history records the number of holds, as for a reentrant lock.
    fn counts_holds(&self) -> bool {
        self.kind == LockKind::Reentrant
    }

    /// Returns a random lock and mode.
    fn any(&self, client: &mut Client) -> (String, &'static str) {
        let number = client.rng.u64(..self.count);
        let (name, mode) = match self.kind {
            LockKind::ReadWrite if client.rng.u8(..3) > 0 => ("rw-lock", "read"),
            LockKind::ReadWrite => ("rw-lock", "write"),
            LockKind::Plain => ("lock", "exclusive"),
            LockKind::Reentrant => ("reentrant-lock", "exclusive"),
        };
        (format!("{ROOT}/{name}/{}-{number}", epoch(client, EPOCH)), mode)
    }

    async fn acquire(&self, worker: &mut Holder, mut session: Session, client: &mut Client) {
        let (lock, mode) = match &worker.held {
            Some(held) => (held.lock.clone(), held.mode),
            None => self.any(client),
        };
        let wait = next_wait(WAIT, &mut client.rng);
        let mut value = json!({"lock": lock, "owner": session.id, "mode": mode});
        // Over HTTP the node must end the wait in time, which the checker judges by `wait_ms`.
        if session.zk.is_none() {
            value["wait_ms"] = (wait.as_millis() as u64).into();
        }
        client.invoke("acquire", value.clone());
        let wish = Wish { lock: &lock, mode, reentrant: self.counts_holds(), wait };
        let answer = match session.acquire(&wish, client).await {
            Ok((taken, answer)) => {
                value["token"] = taken.token.into();
                if self.counts_holds() {
                    value["holds"] = taken.holds.into();
                }
                worker.held = Some(Held { lock, mode, ticket: taken.ticket, holds: taken.holds });
                answer
            }
            Err(answer) => answer,
        };
        client.end_as(&answer, "acquire", value);
        worker.after(session, &answer, client);
    }

    async fn release(&self, worker: &mut Holder, mut session: Session, mut held: Held, client: &mut Client) {
        let mut value = json!({"lock": held.lock, "owner": session.id, "mode": held.mode});
        client.invoke("release", value.clone());
        held.holds = 0;
        let answer = match session.release(&held.ticket, client).await {
            Ok((holds, answer)) => {
                if self.counts_holds() {
                    held.holds = holds;
                    value["holds"] = holds.into();
                }
                answer
            }
            Err(answer) => answer,
        };
        client.end_as(&answer, "release", value);
        let gone = answer.is_problem("no-node") || answer.is_problem("ticket-gone");
        let given_back = answer.is_ok() && held.holds == 0;
        if !gone && !given_back {
            worker.held = Some(held);
        }
        worker.after(session, &answer, client);
    }
}

impl Work for Locks {
    type Worker = Holder;

    fn worker(&self, index: usize) -> Holder {
        Holder { owner: Owner::new(self.doors.of_worker(index)), held: None }
    }

    async fn step(&self, worker: &mut Holder, client: &mut Client) -> Result<(), String> {
        let Some(session) = worker.owner.session(client).await? else { return Ok(()) };
        let again = self.counts_holds() && client.rng.bool();
        match worker.held.take() {
            Some(held) if again && held.holds < HOLDS_MAX => {
                worker.held = Some(held);
                self.acquire(worker, session, client).await;
            }
            Some(held) => self.release(worker, session, held, client).await,
            None => self.acquire(worker, session, client).await,
        }
        Ok(())
    }
}
