//! [`Waiter`]: guards the ticket of an acquire, and withdraws the ticket from the lock's queue when
//! the client hangs up.

use std::sync::Arc;
use std::time::Duration;

use accept::WritePass;
use replica::Consistency;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::debug;
use znode::lock;
use znode::{Attempt, Credential, Op, Reply, Request, State, TxnOutcome, ZPath};

use crate::request::door::Door;

/// Guard of one attempt of an acquire (one request), and of its ticket, the znode that queues for
/// the lock.
///
/// Dropping an armed waiter withdraws the ticket in the background. hyper drops the handler, and so
/// the waiter, when the client hangs up. The waiter is disarmed when the answer was delivered, or
/// when the client wants to stay in the queue.
pub(crate) struct Waiter {
    door: Arc<Door>,
    credential: Credential,
    lock: ZPath,
    attempt: Attempt,
    stage: Stage,
    /// True if the client sent an idempotency key, by which it can find its ticket at any node.
    is_keyed: bool,
    armed: bool,
    /// Permit of a waiting request; a node has a bounded number of permits. The permit is kept
    /// until a needed withdrawal (removal of the ticket from the queue) is done, so that
    /// withdrawals are bounded, too.
    permit: Option<OwnedSemaphorePermit>,
}

enum Stage {
    /// The proposal of the acquire is in progress, in a task of its own. If the client hangs up,
    /// the waiter still needs the outcome, to take the ticket out of the queue.
    Proposed(JoinHandle<Result<TxnOutcome, replica::Error>>),
    /// The attempt has a ticket.
    Queued(ZPath),
    /// The outcome is unknown: the attempt may have a ticket, or get one later.
    Unknown,
    /// The attempt has no ticket.
    Nothing,
}

/// Timeout of one proposal to withdraw the ticket (to take it out of the queue) in the background.
/// It is longer than an election.
const TRY: Duration = Duration::from_secs(5);
/// Pause between two proposals to withdraw the ticket.
const RETRY: Duration = Duration::from_millis(250);

impl Waiter {
    /// Proposes the acquire to the Raft log, in a task of its own. The pass is kept until the
    /// proposal has ended.
    pub(crate) fn propose(
        door: &Arc<Door>,
        (request, pass, deadline): (Request, WritePass, Instant),
        credential: Credential,
        lock: ZPath,
        is_keyed: bool,
        permit: OwnedSemaphorePermit,
    ) -> Waiter {
        let attempt = request.attempt;
        let replica = door.replica.clone();
        let task = tokio::spawn(async move {
            let _pass = pass;
            replica.propose(request, deadline).await
        });
        Waiter {
            door: door.clone(),
            credential,
            lock,
            attempt,
            stage: Stage::Proposed(task),
            is_keyed,
            armed: true,
            permit: Some(permit),
        }
    }

    /// Waits for the outcome of the proposal.
    pub(crate) async fn applied(&mut self) -> Result<TxnOutcome, replica::Error> {
        let Stage::Proposed(task) = &mut self.stage else {
            return Err(replica::Error::Unknown { reason: "asked twice".into() });
        };
        let result = outcome(task).await;
        self.stage = Stage::after(&result);
        result
    }

    /// Withdraws the ticket through the Raft log. A ticket that holds the lock by then stays.
    pub(crate) async fn withdraw(&self, ticket: &ZPath) -> Result<TxnOutcome, replica::Error> {
        self.withdraw_by(ticket, true, self.door.propose_deadline()).await
    }

    /// Withdraws the ticket; with `if_waiting` only a ticket that waits. A connected client keeps a
    /// ticket that holds the lock, and a client that has hung up does not.
    async fn withdraw_by(
        &self,
        ticket: &ZPath,
        if_waiting: bool,
        deadline: Instant,
    ) -> Result<TxnOutcome, replica::Error> {
        let op = Op::Withdraw { ticket: ticket.clone(), attempt: self.attempt, if_waiting };
        let request = Request { credential: Some(self.credential), ..Request::new(op) };
        self.door.replica.propose(request, deadline).await
    }

    /// Tells whether the client sent an idempotency key, by which it can find its ticket.
    pub(crate) fn is_keyed(&self) -> bool {
        self.is_keyed
    }

    /// Disarms the waiter, so that the client's ticket stays in the queue. The request still counts
    /// as a waiting request.
    pub(crate) fn stay(&mut self) {
        self.armed = false;
    }

    /// Disarms the waiter, because the client has its answer. The request no longer counts as a
    /// waiting request.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
        self.permit = None;
    }
}

impl Stage {
    fn after(result: &Result<TxnOutcome, replica::Error>) -> Stage {
        use replica::Error;
        match result {
            Ok(TxnOutcome { reply: Ok(Reply::Acquired { ticket, .. }), .. }) => Stage::Queued(ticket.clone()),
            Ok(_) => Stage::Nothing,
            Err(Error::Refused(_) | Error::Unavailable { .. } | Error::Restoring { .. }) => Stage::Nothing,
            Err(Error::Unknown { .. }) => Stage::Unknown,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // Without a runtime the node is stopping. The ticket then ends with its session.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let leaving = Waiter {
            door: self.door.clone(),
            credential: self.credential,
            lock: self.lock.clone(),
            attempt: self.attempt,
            stage: std::mem::replace(&mut self.stage, Stage::Nothing),
            is_keyed: self.is_keyed,
            armed: false,
            permit: self.permit.take(),
        };
        runtime.spawn(leaving.leave());
    }
}

impl Waiter {
    /// Withdraws the attempt's ticket, if there is one, after the client has hung up.
    async fn leave(mut self) {
        let deadline = Instant::now() + Duration::from_millis(self.door.config.withdraw_timeout_ms);
        if let Stage::Proposed(task) = &mut self.stage {
            self.stage = Stage::after(&outcome(task).await);
        }
        let ticket = match &self.stage {
            Stage::Queued(ticket) => Some(ticket.clone()),
            Stage::Unknown => self.find(deadline).await,
            Stage::Proposed(_) | Stage::Nothing => None,
        };
        let Some(ticket) = ticket else { return };
        loop {
            let until = Instant::now() + TRY;
            match self.withdraw_by(&ticket, false, until).await {
                Ok(applied) => {
                    debug!(%ticket, zxid = applied.zxid.0, "withdrew for a client that had gone");
                    return;
                }
                Err(error) if Instant::now() >= deadline => {
                    debug!(%ticket, %error, "gave a withdrawal up: the ticket goes with its session");
                    return;
                }
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// Searches for the ticket of an attempt with an unknown outcome until `deadline`, because the
    /// attempt may still be applied. `None` if the session has ended or no ticket was found.
    async fn find(&self, deadline: Instant) -> Option<ZPath> {
        loop {
            let read = self.door.replica.read(Consistency::Linearizable, Instant::now() + TRY).await;
            match read.map(|state| self.look(&state)) {
                Ok(Look::Found(ticket)) => return Some(ticket),
                Ok(Look::SessionEnded) => return None,
                Ok(Look::NotYet) | Err(_) => {}
            }
            if Instant::now() >= deadline {
                return None;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn look(&self, state: &State) -> Look {
        let Some(session) = state.session(self.credential.session) else { return Look::SessionEnded };
        let tickets = session.ephemerals().filter(|path| path.is_under(&self.lock));
        // The attempts of a multi-lock are kept at its first ticket, which may belong to another
        // lock than the first one in the request.
        let mut counting = tickets.map(|path| lock::parts(state, path).map_or(path, |parts| &parts[0]));
        let mine = counting.find(|path| {
            let contender = state.node(path).and_then(|node| node.contender());
            contender.is_some_and(|contender| contender.holds.iter().any(|hold| hold.attempts.contains(&self.attempt)))
        });
        mine.map_or(Look::NotYet, |path| Look::Found(path.clone()))
    }
}

enum Look {
    Found(ZPath),
    SessionEnded,
    NotYet,
}

async fn outcome(task: &mut JoinHandle<Result<TxnOutcome, replica::Error>>) -> Result<TxnOutcome, replica::Error> {
    task.await.unwrap_or_else(|error| Err(replica::Error::Unknown { reason: error.to_string() }))
}
