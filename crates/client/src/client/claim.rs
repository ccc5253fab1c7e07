//! Claim to a lock: a place in its queue or, for a simple lock, its znode, from the acquire to the
//! release.
//!
//! A claim is armed from the moment at which its acquire may have been sent. Dropping an armed
//! claim releases the place, waiting or held, in the background for as long as the session lives;
//! after that the place ends with the session. Every request of a claim carries an idempotency key,
//! so that a place is taken and released only once.

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

/// Route of simple locks.
pub(crate) const SIMPLE_LOCKS: &str = "/v1/simple-locks";
/// Pause between two attempts to release a place.
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(250);
/// Divisor of the session's timeout that gives the longest single long-poll for a grant.
const POLL_PART: u32 = 3;

/// Answer of the HTTP API with the state of a claim.
pub(crate) trait ClaimAnswer: DeserializeOwned {
    /// Content of a grant.
    type Grant;

    /// Route of requests for the state of a ticket.
    const ROUTE: &'static str;

    /// Returns the ticket. For a granted claim, also returns the grant, and the milliseconds for
    /// which the session cannot expire.
    fn stands(self) -> (String, Option<(Self::Grant, u64)>);

    /// Returns the fencing token of a grant; `None` for a multi-lock, which has several tokens.
    fn token(grant: &Self::Grant) -> Option<u64>;
}

/// A claim to a lock of any kind or to a multi-lock.
pub(crate) struct Claim {
    pub(crate) client: Client,
    pub(crate) session: Arc<Session>,
    /// The acquire with its idempotency key, so that a repetition returns the ticket of the first
    /// sending.
    enqueue: Call,
    /// Slot in the window of the session's writes, so that the state remembers the claim's
    /// idempotency key: the acquire's key until the ticket is known, then the release's key until
    /// its outcome is known.
    slot: Option<Slot>,
    ticket: Option<ClaimTicket>,
    pub(crate) kind: Kind,
    release_key: uuid::Uuid,
    armed: bool,
    /// Facts about the end of the granted claim.
    pub(crate) fate: Arc<Fate>,
}

/// Kind of object that a claim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A place in a queue, or in several queues.
    Queue,
    /// A simple lock, which has no queue.
    Simple,
}

/// Fencing token and number of holds of a granted claim.
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
    /// Takes a place if it is granted at once. Otherwise returns `None`, and no ticket is left in
    /// the queue. `acquire` must not wait; `lock_delay` is the delay that it asks for.
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

    /// Waits for a place in a queue until the deadline, or without end for `None`. Returns `None`
    /// when the deadline came first; the place is then given back. `acquire` must keep its place
    /// and not wait itself.
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

    /// Waits for the grant, unless `grant` has it already, and returns the claim with it. Returns
    /// `None` when the deadline comes first.
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
            // If this fails, the drop of the claim goes on with it in the background.
            let _ = self.give_back().await;
        }
        Ok(grant.map(|grant| (self, grant)))
    }

    /// Asks for a place.
    ///
    /// # Errors
    /// When the cluster gave no place, or when the outcome is unknown. After an unknown outcome,
    /// the place is given back in the background if it exists.
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
            // The session had ended before this client noticed it, so a new session asks once more.
            Err(error) if error.code() == Some(ProblemType::SessionExpired) => enter().await,
            entered => entered,
        }
    }

    /// Asks for a place in the given session.
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

    /// Waits until the claim is granted, until the deadline or without end for `None`. Returns
    /// `None` when the deadline came first.
    ///
    /// # Errors
    /// `Refused` with `TicketGone` when a client removed the claim from the queue, with
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

    /// Checks that the granted place is still held, as the session may have been lost before the
    /// answer came.
    ///
    /// # Errors
    /// `Refused` with `SessionExpired`.
    pub(crate) fn check_held(&self) -> Result<(), Error> {
        match self.session.is_safe() {
            true => Ok(()),
            false => Err(Error::session_lost("the session was lost before the grant was known")),
        }
    }

    /// The path of the lock node.
    pub(crate) fn ticket(&self) -> &str {
        &self.claim_ticket().ticket
    }

    fn claim_ticket(&self) -> &ClaimTicket {
        self.ticket.as_ref().expect("it is set before another task has the claim")
    }

    /// Time for which the granted place cannot be lost by expiry; zero once it is known to be lost.
    pub(crate) fn safe_for(&self) -> Duration {
        if self.fate.is_gone() { Duration::ZERO } else { self.session.safe_for() }
    }

    /// Gives the place back, held or waiting. Returns the number of holds that are left.
    ///
    /// # Errors
    /// `Refused` when there was no place any more. After another error the drop of the claim goes
    /// on with the release in the background.
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

    /// Gives the place back after work that needed it. Returns false if the place was lost before,
    /// or if the session may have expired by this machine's clock.
    ///
    /// After an error with an unknown outcome, the release goes on in the background.
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

    /// Gives the place to the waiter `to`. After `Refused` the place is still held; after another
    /// error it may be held or given away.
    pub(crate) async fn hand_over(&mut self, to: &str) -> Result<(), Error> {
        let call = self.claim_ticket().release(self.kind, Some(to))?.key(uuid::Uuid::new_v4());
        self.client.write_in(&self.session, call).await?;
        self.armed = false;
        self.fate.tell(Loss::HandedOver);
        Ok(())
    }

    /// Disarms the claim: the place stays until its session ends.
    pub(crate) fn forget(&mut self) {
        self.armed = false;
    }

    /// Notes the ticket in an answer, and returns its grant if there is one.
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

/// Shows the session without its key.
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

/// Unwraps the result of a wait without a deadline, which is never `None`.
pub(crate) fn without_end<T>(waited: Option<T>) -> Result<T, Error> {
    waited.ok_or_else(|| Error::unknown("a wait without an end has ended"))
}

/// Ticket of a claim: the fields that all kinds of answers about a claim have.
#[derive(Clone, Debug, serde::Deserialize)]
struct ClaimTicket {
    ticket: String,
    /// The fencing token of a held ticket; `None` for a waiting ticket, and for a multi-lock, which
    /// has several tokens.
    #[serde(default)]
    fencing_token: Option<u64>,
}

impl ClaimTicket {
    /// Returns the call that gives the place back, to the waiter `to` or to the next one.
    fn release(&self, kind: Kind, to: Option<&str>) -> Result<Call, Error> {
        let target = match (kind, to) {
            (Kind::Queue, Some(to)) => {
                let target = Target::path("/v1/hand-overs", &self.ticket)?.with("to", to);
                return Ok(Call::write(Method::POST, target.finish()));
            }
            (Kind::Queue, None) => Target::path(Ticket::ROUTE, &self.ticket)?,
            // The fencing token is sent, so that the lock of no other owner is released, and a
            // retry gets the same answer.
            (Kind::Simple, _) => {
                Target::path(SIMPLE_LOCKS, &self.ticket)?.with_some("fencing_token", self.fencing_token)
            }
        };
        Ok(Call::write(Method::DELETE, target.finish()))
    }
}

impl Claim {
    /// Repeats the release of the place until it has succeeded or the session has ended.
    async fn left(mut self) {
        let session = Arc::clone(&self.session);
        tokio::select! {
            () = self.leave() => {}
            // The place ends with the session.
            _ = session.ended() => {}
        }
    }

    async fn leave(&mut self) {
        loop {
            match self.round().await {
                Err(Error::Unavailable { .. } | Error::Unknown { .. }) => tokio::time::sleep(GIVE_BACK_PAUSE).await,
                // The place is given back, or there was none.
                Ok(()) | Err(Error::Refused { .. }) => return,
            }
        }
    }

    async fn round(&mut self) -> Result<(), Error> {
        let transport = &self.client.inner.transport;
        let ticket = match &self.ticket {
            Some(ticket) => ticket.clone(),
            None => {
                let ticket = transport.send(&self.enqueue, self.client.deadline()).await?.json::<ClaimTicket>()?;
                self.slot = None;
                self.ticket.insert(ticket).clone()
            }
        };
        if self.slot.is_none() {
            self.slot = Some(self.session.window.enter().await);
        }
        let call = ticket.release(self.kind, None)?.key(self.release_key).session(&self.session.key);
        transport.send(&call, self.client.deadline()).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
