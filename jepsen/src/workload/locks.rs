//! `lock`, `reentrant-lock`, `rw-lock`: take a lock, use it for a moment, give it back.

use std::time::Duration;

use serde_json::{Value, json};
use zlock_client::api::{Released, Ticket};

use super::owner::Owner;
use super::{Work, epoch, make_root, waits};
use crate::answer::{Answer, Effect};
use crate::client::{Client, Session};
use crate::http::Call;

/// How long an acquire waits in the queue.
const WAIT: Duration = Duration::from_millis(400);
/// How long a lock is in use.
const EPOCH: Duration = Duration::from_secs(10);
/// How often an owner takes a reentrant lock at most.
const HOLDS_MAX: u64 = 3;

/// Which of the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Exclusive, once.
    Plain,
    /// Exclusive, several times by its owner.
    Reentrant,
    /// Shared by readers, exclusive for writers.
    ReadWrite,
}

/// Locks that many workers want.
pub struct Locks {
    kind: LockKind,
    /// Locks in use at the same time.
    count: u64,
}

impl Locks {
    /// Locks for so many workers: few enough that they meet.
    pub fn new(kind: LockKind, concurrency: usize) -> Locks {
        Locks { kind, count: (concurrency as u64 / 4).max(1) }
    }

    fn name(&self) -> &'static str {
        match self.kind {
            LockKind::Plain => "lock",
            LockKind::Reentrant => "reentrant-lock",
            LockKind::ReadWrite => "rw-lock",
        }
    }

    async fn acquire(&self, worker: &mut Holder, session: Session, client: &mut Client) {
        let (lock, mode) = match &worker.held {
            Some(held) => (held.lock.clone(), held.mode),
            None => {
                let lock = format!(
                    "{}/{}/{}-{}",
                    super::ROOT,
                    self.name(),
                    epoch(client, EPOCH),
                    client.rng.u64(..self.count)
                );
                let mode = match self.kind {
                    LockKind::ReadWrite if client.rng.u8(..3) > 0 => "read",
                    LockKind::ReadWrite => "write",
                    LockKind::Plain | LockKind::Reentrant => "exclusive",
                };
                (lock, mode)
            }
        };
        let wait = waits::next(WAIT, &mut client.rng);
        let mut value = json!({"lock": lock, "owner": session.id, "mode": mode, "wait_ms": wait.as_millis() as u64});
        let owner = if self.kind == LockKind::Reentrant { "&owner=worker" } else { "" };
        let target = format!("/v1/locks{lock}?wait={}ms&mode={mode}{owner}", wait.as_millis());
        let call = Call::post(target).session(&session.key).waiting(wait);
        let count_holds = self.kind == LockKind::Reentrant;
        let mut ticket = None;
        let (answer, _) = client
            .operate("acquire", value.clone(), call, |answer| {
                let (path, token, holds) = held(answer)?;
                value["token"] = token.into();
                if count_holds {
                    value["holds"] = holds.into();
                }
                ticket = Some((path, holds));
                Some(value)
            })
            .await;
        if let Some((ticket, holds)) = ticket {
            worker.held = Some(Held { lock, mode, ticket, holds, counted: count_holds });
        }
        worker.after(session, &answer, client);
    }
}

/// The ticket, token and holds of an answer that says that the lock is held.
pub(crate) fn held(answer: &mut Answer) -> Option<(String, u64, u64)> {
    match answer.read(Effect::Write)? {
        Ticket::Held { ticket, fencing_token, holds, .. } => Some((ticket, fencing_token, u64::from(holds))),
        Ticket::Waiting { .. } => None,
    }
}

/// A lock that a worker holds.
struct Held {
    lock: String,
    mode: &'static str,
    ticket: String,
    holds: u64,
    /// Answers say how often it is held.
    counted: bool,
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

    async fn release(&mut self, session: Session, mut held: Held, client: &mut Client) {
        let mut value = json!({"lock": held.lock, "owner": session.id, "mode": held.mode});
        let call = Call::delete(format!("/v1/tickets{}", held.ticket)).session(&session.key);
        let (answer, value) = client
            .operate("release", value.clone(), call, |answer| {
                let released: Released = answer.read(Effect::Write)?;
                if held.counted {
                    value["holds"] = released.holds.into();
                }
                Some(value)
            })
            .await;
        let gone = answer.is_problem("no-node") || answer.is_problem("ticket-gone");
        held.holds = value.get("holds").and_then(Value::as_u64).unwrap_or(0);
        let given_back = answer.is_ok() && held.holds == 0;
        if !gone && !given_back {
            self.held = Some(held);
        }
        self.after(session, &answer, client);
    }
}

impl Work for Locks {
    type Worker = Holder;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, self.name()).await.map(|_| ())
    }

    fn worker(&self, _index: usize) -> Holder {
        Holder::default()
    }

    async fn step(&self, worker: &mut Holder, client: &mut Client) -> Result<(), String> {
        let Some(session) = worker.owner.session(client).await? else { return Ok(()) };
        let again = self.kind == LockKind::Reentrant && client.rng.bool();
        match worker.held.take() {
            Some(held) if again && held.holds < HOLDS_MAX => {
                worker.held = Some(held);
                self.acquire(worker, session, client).await;
            }
            Some(held) => worker.release(session, held, client).await,
            None => self.acquire(worker, session, client).await,
        }
        Ok(())
    }
}
