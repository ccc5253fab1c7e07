//! Claim to a lock: the life of one ticket, from the acquire to the release. The ticket is the
//! client's znode in the lock's queue. A simple lock has no queue: its own znode is the ticket.
//!
//! A claim is armed from the moment at which its acquire may have been sent. Dropping an armed
//! claim releases its ticket in the background, whether the ticket holds the lock or waits. The
//! release is repeated until it succeeds or the session, and with it the ticket, has ended. Every
//! request of a claim carries an idempotency key, so that a ticket is created and released only
//! once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{HeldPart, Millis, MultiTicket, ProblemType, Release, Ticket};
use hyper::Method;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::client::call::{Call, Target};
use crate::client::clock::Moment;
use crate::client::fate::Fate;
use crate::client::session::Session;
use crate::client::window::Slot;
use crate::{Error, Loss};

/// Route of simple locks (locks of one znode, without a queue).
pub(crate) const SIMPLE_LOCKS: &str = "/v1/simple-locks";
/// Pause between two attempts to release a ticket in the background.
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(250);
/// A long-poll for a grant waits at most for the session's timeout divided by this number.
const POLL_PART: u32 = 3;

/// Answer of the HTTP API with the state of a ticket or multi-lock.
pub(crate) trait ClaimAnswer: DeserializeOwned {
    /// Data of a grant: fencing tokens, and the owner's number of holds (unreleased acquires).
    type Grant;

    /// Route of the requests that read the ticket's state after the acquire.
    const ROUTE: &'static str;

    /// Returns the path of the ticket. If the lock is held, also returns the grant, and the
    /// milliseconds for which the session cannot expire.
    fn stands(self) -> (String, Option<(Self::Grant, u64)>);

    /// Returns the fencing token of a grant; `None` for a multi-lock, which has several tokens.
    fn token(grant: &Self::Grant) -> Option<u64>;
}

/// A requested or granted lock or multi-lock, with its ticket. Dropping the claim releases the
/// ticket in the background.
pub(crate) struct Claim {
    pub(crate) client: Client,
    pub(crate) session: Arc<Session>,
    /// The acquire with its idempotency key, so that a repetition returns the ticket of the first
    /// sending.
    enqueue: Call,
    /// Entry in the session's list of unfinished writes (`window.rs`), so that the cluster
    /// remembers the idempotency key of the acquire until the ticket is known, and of the release
    /// until its outcome is known. `None` while neither request is unfinished.
    slot: Option<Slot>,
    ticket: Option<ClaimTicket>,
    pub(crate) kind: Kind,
    release_key: uuid::Uuid,
    armed: bool,
    /// Record of whether and why the granted lock was lost.
    pub(crate) fate: Arc<Fate>,
}

/// Kind of lock that is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A lock with a queue, or a multi-lock with several queues.
    Queue,
    /// A simple lock, which has no queue.
    Simple,
}

/// Fencing token of a granted claim, and the owner's number of holds (unreleased acquires).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    pub(crate) holds: u32,
}

impl ClaimAnswer for Ticket {
    type Grant = Grant;

    const ROUTE: &'static str = "/v1/tickets";

    fn stands(self) -> (String, Option<(Grant, u64)>) {
        match self {
            Ticket::Held { ticket, fencing_token, holds, safe_for_ms, .. } => {
                (ticket, Some((Grant { token: fencing_token, holds }, safe_for_ms)))
            }
            Ticket::Waiting { ticket, .. } => (ticket, None),
        }
    }

    fn token(grant: &Grant) -> Option<u64> {
        Some(grant.token)
    }
}

impl ClaimAnswer for MultiTicket {
    type Grant = (Vec<HeldPart>, u32);

    const ROUTE: &'static str = "/v1/multilocks";

    fn stands(self) -> (String, Option<(Self::Grant, u64)>) {
        match self {
            MultiTicket::Held { ticket, locks, holds, safe_for_ms } => (ticket, Some(((locks, holds), safe_for_ms))),
            MultiTicket::Waiting { ticket, .. } => (ticket, None),
        }
    }

    fn token(_: &Self::Grant) -> Option<u64> {
        None
    }
}

impl Claim {
    /// Claims a lock if it is granted at once. Otherwise returns `None`, and no ticket is left in
    /// the queue. The request `acquire` must not ask the node to wait; `lock_delay` is the
    /// lock-delay in this request.
    ///
    /// # Errors
    /// As [`Claim::enter`].
    pub(crate) async fn take<A: ClaimAnswer>(
        client: &Client,
        acquire: Call,
        kind: Kind,
        lock_delay: Option<Duration>,
    ) -> Result<Option<(Claim, A::Grant)>, Error> {
        match Claim::enter::<A>(client, acquire, kind, lock_delay).await {
            Ok((claim, Some(grant))) => Ok(Some((claim, grant))),
            Ok((_, None)) => Err(Error::unknown("a try was queued")),
            Err(error) => match (error.code(), kind) {
                // An earlier sending of this try may have taken the simple lock, and the lock may
                // have been lost since.
                (Some(ProblemType::NotAcquired), _) | (Some(ProblemType::TicketGone), Kind::Simple) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Creates a ticket in a queue and waits for its grant: until the deadline, or without end if
    /// the deadline is `None`. Returns `None` when the deadline came first; the ticket is then
    /// released. The request `acquire` must ask the node to return at once and to keep the waiting
    /// ticket.
    ///
    /// # Errors
    /// As [`Claim::enter`] and [`Claim::granted`].
    pub(crate) async fn wait<A: ClaimAnswer>(
        client: &Client,
        acquire: Call,
        lock_delay: Option<Duration>,
        deadline: Option<Moment>,
    ) -> Result<Option<(Claim, A::Grant)>, Error> {
        let (claim, grant) = Claim::enter::<A>(client, acquire, Kind::Queue, lock_delay).await?;
        claim.grant_by::<A>(grant, deadline).await
    }

    /// Waits for the grant, unless `grant` already has it, and returns the claim with the grant.
    /// When the deadline comes first, releases the ticket and returns `None`.
    pub(crate) async fn grant_by<A: ClaimAnswer>(
        mut self,
        grant: Option<A::Grant>,
        deadline: Option<Moment>,
    ) -> Result<Option<(Claim, A::Grant)>, Error> {
        let grant = match grant {
            Some(grant) => Some(grant),
            None => self.granted::<A>(deadline).await?,
        };
        if grant.is_none() {
            // If this release fails, the drop of the claim repeats it in the background.
            let _ = self.give_back().await;
        }
        Ok(grant.map(|grant| (self, grant)))
    }

    /// Sends the acquire in the client's session. If that session has ended, sends it in a new
    /// session.
    ///
    /// # Errors
    /// When the cluster created no ticket, or when the outcome is unknown. After an unknown
    /// outcome, a ticket that may exist is released in the background.
    async fn enter<A: ClaimAnswer>(
        client: &Client,
        acquire: Call,
        kind: Kind,
        lock_delay: Option<Duration>,
    ) -> Result<(Claim, Option<A::Grant>), Error> {
        let enter = async || {
            let session = client.session().await?;
            // Noted before the request is sent, as its answer may be lost.
            session.note_delay(lock_delay);
            Claim::enter_in::<A>(client, session, acquire.clone(), kind).await
        };
        match enter().await {
            // The session had ended before this client noticed it, so the acquire is sent once
            // more, in a new session.
            Err(error) if error.code() == Some(ProblemType::SessionExpired) => enter().await,
            entered => entered,
        }
    }

    /// Sends the acquire once, in the given session.
    pub(crate) async fn enter_in<A: ClaimAnswer>(
        client: &Client,
        session: Arc<Session>,
        acquire: Call,
        kind: Kind,
    ) -> Result<(Claim, Option<A::Grant>), Error> {
        let deadline = client.deadline();
        let slot = session.slot(deadline).await?;
        let enqueue = acquire.session(&session.key).key(uuid::Uuid::new_v4());
        let mut claim = Claim {
            client: client.clone(),
            session,
            enqueue,
            slot: Some(slot),
            ticket: None,
            kind,
            release_key: uuid::Uuid::new_v4(),
            armed: true,
            fate: Arc::default(),
        };
        let answer = client.inner.transport.send(&claim.enqueue, deadline).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                claim.session.notice(&error);
                claim.armed = !error.did_nothing();
                return Err(error);
            }
        };
        claim.slot = None;
        let grant = claim.stands::<A>(answer.json()?, answer.sent);
        Ok((claim, grant))
    }

    /// Waits for the grant: until the deadline, or without end if the deadline is `None`. Returns
    /// `None` when the deadline came first.
    ///
    /// # Errors
    /// `Refused` with `TicketGone` when a client removed the ticket from the queue, with
    /// `SessionExpired` when the session was lost. While the session lives, the wait goes on even
    /// if no node answers.
    async fn granted<A: ClaimAnswer>(&mut self, deadline: Option<Moment>) -> Result<Option<A::Grant>, Error> {
        let ticket = self.ticket().to_owned();
        loop {
            let left = deadline.map_or(Duration::MAX, Moment::remaining);
            if left.is_zero() {
                return Ok(None);
            }
            // Bounded by the session's timeout: a grant that a hung node does not report is then
            // found at another node. So other contenders wait for this client no longer than for a
            // client that has crashed.
            let poll = self.client.inner.transport.timeouts.poll.min(self.session.timeout / POLL_PART);
            let wait = left.min(poll);
            // At least 1 ms, as the node counts whole milliseconds and a wait of 0 would make this
            // a busy loop.
            let wait_ms = Millis::from(wait).max(Millis(1));
            let target = Target::path(A::ROUTE, &ticket)?.with("wait", wait_ms);
            let call = Call::get(target.finish()).session(&self.session.key).waiting(wait);
            let poll_deadline = self.client.deadline().after(wait);
            let answer = tokio::select! {
                answer = self.client.inner.transport.send(&call, poll_deadline) => answer,
                _ = self.session.ended() => return Err(Error::session_lost("the session was lost while waiting")),
            };
            match answer {
                Ok(answer) => {
                    if let Some(grant) = self.stands::<A>(answer.json()?, answer.sent) {
                        return Ok(Some(grant));
                    }
                }
                Err(error @ Error::Refused { .. }) => {
                    self.session.notice(&error);
                    self.armed &= error.code() != Some(ProblemType::TicketGone);
                    return Err(error);
                }
                Err(Error::Unavailable { .. } | Error::Unknown { .. }) => {}
            }
        }
    }

    /// Checks that the session of the granted lock is not lost, as it may have been lost before the
    /// answer with the grant came.
    ///
    /// # Errors
    /// `Refused` with `SessionExpired`.
    pub(crate) fn check_held(&self) -> Result<(), Error> {
        match self.session.is_safe() {
            true => Ok(()),
            false => Err(Error::session_lost("the session was lost before the grant was known")),
        }
    }

    /// Path of the ticket: of the queued child of the lock's znode or, in a simple lock (one
    /// without a queue), of the lock's znode itself.
    pub(crate) fn ticket(&self) -> &str {
        &self.claim_ticket().ticket
    }

    fn claim_ticket(&self) -> &ClaimTicket {
        self.ticket.as_ref().expect("it is set before another task has the claim")
    }

    /// Time for which the granted lock cannot be lost by the session's expiry; zero once the lock
    /// is known to be lost.
    pub(crate) fn safe_for(&self) -> Duration {
        if self.fate.is_gone() { Duration::ZERO } else { self.session.safe_for() }
    }

    /// Releases the ticket, whether it holds the lock or waits. Returns the owner's number of holds
    /// that are still unreleased.
    ///
    /// # Errors
    /// `Refused` when the ticket no longer existed. After `Unavailable` or `Unknown`, the drop of
    /// the claim repeats the release in the background.
    pub(crate) async fn give_back(&mut self) -> Result<u32, Error> {
        let call = self.claim_ticket().release(self.kind, None)?.key(self.release_key).session(&self.session.key);
        let deadline = self.client.deadline();
        self.slot = Some(self.session.slot(deadline).await?);
        let answer = self.client.inner.transport.send(&call, deadline).await;
        if let Err(error) = &answer {
            self.session.notice(error);
        }
        self.armed &= matches!(answer, Err(Error::Unavailable { .. } | Error::Unknown { .. }));
        if !self.armed {
            self.slot = None;
        }
        Ok(answer?.json::<Release>()?.holds)
    }

    /// Releases the ticket after the work under the lock has ended. Returns false if the lock was
    /// lost before the end of the work, or if the session may have expired by this machine's clock.
    ///
    /// If the outcome of the release is unknown, the drop of the claim repeats it in the
    /// background.
    pub(crate) async fn was_held_to_the_end(&mut self) -> bool {
        if self.safe_for().is_zero() {
            return false;
        }
        let is_gone = matches!(self.give_back().await, Err(Error::Refused { .. }));
        if is_gone {
            self.fate.tell_gone();
        }
        !is_gone
    }

    /// Hands the lock over to the waiting ticket `to`. After `Refused` this claim still holds the
    /// lock, unless its ticket was gone before; after another error either this claim's ticket or
    /// `to` may hold the lock.
    pub(crate) async fn hand_over(&mut self, to: &str) -> Result<(), Error> {
        let call = self.claim_ticket().release(self.kind, Some(to))?.key(uuid::Uuid::new_v4());
        let handed = self.client.write_in(&self.session, call).await;
        handed.inspect_err(|error| self.note_refusal(error))?;
        self.armed = false;
        self.fate.tell(Loss::HandedOver);
        Ok(())
    }

    /// Notes the loss of the lock if a write was refused because the claim's ticket is gone.
    pub(crate) fn note_refusal(&self, error: &Error) {
        if error.is_gone(self.ticket()) {
            self.fate.tell_gone();
        }
    }

    /// Prevents the release when the claim is dropped: the ticket stays until its session ends.
    pub(crate) fn forget(&mut self) {
        self.armed = false;
    }

    /// Stores the ticket of an answer in the claim. Returns the grant if the ticket holds the lock.
    fn stands<A: ClaimAnswer>(&mut self, answer: A, sent: Moment) -> Option<A::Grant> {
        let (ticket, grant) = answer.stands();
        let fencing_token = grant.as_ref().and_then(|(grant, _)| A::token(grant));
        self.ticket = Some(ClaimTicket { ticket, fencing_token });
        grant.map(|(grant, safe_for_ms)| {
            self.session.heard(sent, safe_for_ms);
            grant
        })
    }
}

/// Writes the ticket and the session, but not the session's key.
impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ticket = self.ticket.as_ref().map(|claim| claim.ticket.as_str());
        f.debug_struct("Claim").field("ticket", &ticket).field("session", &self.session).finish_non_exhaustive()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.armed || self.session.state().is_final() {
            return;
        }
        let leaving = Claim {
            client: self.client.clone(),
            session: Arc::clone(&self.session),
            enqueue: self.enqueue.clone(),
            slot: self.slot.take(),
            ticket: self.ticket.take(),
            kind: self.kind,
            release_key: self.release_key,
            armed: false,
            fate: Arc::clone(&self.fate),
        };
        self.client.spawn(leaving.left());
    }
}

/// Unwraps the result of a wait without a deadline. Such a wait never returns `None`.
pub(crate) fn without_end<T>(waited: Option<T>) -> Result<T, Error> {
    waited.ok_or_else(|| Error::unknown("a wait without an end has ended"))
}

/// Ticket of a claim: the fields that the answers for all kinds of locks have.
#[derive(Clone, Debug, serde::Deserialize)]
struct ClaimTicket {
    ticket: String,
    /// The fencing token of a held ticket; `None` for a waiting ticket, and for a multi-lock, which
    /// has several tokens.
    #[serde(default)]
    fencing_token: Option<u64>,
}

impl ClaimTicket {
    /// Returns the call that releases the ticket, or that hands its lock over to the waiting ticket
    /// `to`.
    fn release(&self, kind: Kind, to: Option<&str>) -> Result<Call, Error> {
        let target = match (kind, to) {
            (Kind::Queue, Some(to)) => {
                let target = Target::path("/v1/hand-overs", &self.ticket)?.with("to", to);
                return Ok(Call::write(Method::POST, target.finish()));
            }
            (Kind::Queue, None) => Target::path(Ticket::ROUTE, &self.ticket)?,
            // The fencing token is sent, so that a lock that another owner has acquired since is
            // not released, and a retry gets the same answer.
            (Kind::Simple, _) => {
                Target::path(SIMPLE_LOCKS, &self.ticket)?.with_some("fencing_token", self.fencing_token)
            }
        };
        Ok(Call::write(Method::DELETE, target.finish()))
    }
}

impl Claim {
    /// Repeats the release of the ticket until it has succeeded or the session has ended.
    async fn left(mut self) {
        let session = Arc::clone(&self.session);
        tokio::select! {
            () = self.leave() => {}
            // The ticket ends with the session.
            _ = session.ended() => {}
        }
    }

    async fn leave(&mut self) {
        let is_lost_try = self.enqueue.is_forgotten && self.ticket.is_none();
        loop {
            match self.round().await {
                Err(Error::Unavailable { .. } | Error::Unknown { .. }) => tokio::time::sleep(GIVE_BACK_PAUSE).await,
                // A late copy of the try has withdrawn the ticket, and its key is forgotten.
                Err(error) if is_lost_try && self.ticket.is_some() && error.code() == Some(ProblemType::TicketGone) => {
                    (self.ticket, self.release_key) = (None, uuid::Uuid::new_v4());
                }
                // The ticket is released, or there was none. If the cluster has evicted the key of
                // the release, it has executed the release. If it has evicted the key of the
                // acquire, no answer will name the ticket, which ends with the session.
                Ok(()) | Err(Error::Refused { .. }) => return,
            }
        }
    }

    async fn round(&mut self) -> Result<(), Error> {
        let transport = &self.client.inner.transport;
        let ticket = match &self.ticket {
            Some(ticket) => ticket.clone(),
            None => {
                // The release then leaves the key of the acquire remembered, so that a copy that
                // arrives later makes no ticket.
                let enqueue = self.enqueue.clone().kept().telling_eviction();
                let ticket = transport.send(&enqueue, self.client.deadline()).await?.json::<ClaimTicket>()?;
                self.slot = None;
                self.ticket.insert(ticket).clone()
            }
        };
        if self.slot.is_none() {
            self.slot = Some(self.session.window.enter().await);
        }
        let call = ticket.release(self.kind, None)?.key(self.release_key).session(&self.session.key);
        let call = call.telling_eviction();
        transport.send(&call, self.client.deadline()).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
