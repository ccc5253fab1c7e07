//! A place in a lock's queue, from the request for it to its release: what must not be left behind.
//!
//! A claim is armed from the moment its request may have left. Dropping an armed claim gives the
//! place back in the background, waiting or held, for as long as the session lives; what is not
//! given back by then goes with the session. Every request of a claim carries a key, so nothing is
//! taken or given back twice.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{HeldPart, Millis, MultiTicket, ProblemType, Released, Ticket};
use hyper::Method;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::client::call::{Call, Target};
use crate::client::clock::Moment;
use crate::client::fate::Fate;
use crate::client::session::Session;
use crate::client::window::Slot;
use crate::{Error, Loss};

/// Where simple locks are.
pub(crate) const SIMPLE_LOCKS: &str = "/v1/simple-locks";
/// Between two rounds of giving back what could not be given back.
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(250);
/// One wait for a grant lasts at most this part of the session's timeout.
const POLL_PART: u32 = 3;

/// What says where a claim stands: an answer of the HTTP API.
pub(crate) trait Place: DeserializeOwned {
    /// What is known of a claim that was granted.
    type Grant;

    /// Where a ticket is asked about.
    const ROUTE: &'static str;

    /// The ticket; the grant, and how long it is safe, when it was granted.
    fn stands(self) -> (String, Option<(Self::Grant, u64)>);

    /// The one token of a grant, if it has one.
    fn token(grant: &Self::Grant) -> Option<u64>;
}

/// A claim to a lock, to several, or to whatever has a ticket.
pub(crate) struct Claim {
    client: Client,
    pub(crate) session: Arc<Session>,
    /// Sent again with its key, it says which ticket it got.
    enqueue: Call,
    /// Keeps that key, or that of the release, in the state's memory while it is not known what
    /// became of it: of the enqueue as long as there is no ticket.
    slot: Option<Slot>,
    ticket: Option<Ticketed>,
    kind: Kind,
    release_key: uuid::Uuid,
    armed: bool,
    /// What is known of its end, once it is granted.
    fate: Arc<Fate>,
}

/// What a claim is a claim to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A place in a queue, or several.
    Queue,
    /// A simple lock, which is held or not there.
    Simple,
}

/// A claim that was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    pub(crate) holds: u32,
}

impl Place for Ticket {
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

impl Place for MultiTicket {
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
    /// Takes a place if it is granted at once. `None` when it is not, and nothing queues then.
    /// `acquire` does not wait; `lock_delay` is the one that it asks for.
    ///
    /// # Errors
    /// As [`Claim::enter`].
    pub(crate) async fn take<P: Place>(
        client: &Client,
        acquire: Call,
        kind: Kind,
        lock_delay: Option<Duration>,
    ) -> Result<Option<(Claim, P::Grant)>, Error> {
        match Claim::enter::<P>(client, acquire, kind, lock_delay).await {
            Ok((claim, Some(grant))) => Ok(Some((claim, grant))),
            Ok((_, None)) => Err(Error::unknown("a try was queued")),
            Err(error) => match (error.code(), kind) {
                // A simple lock may have been taken by an earlier sending of this very try, and be
                // gone since.
                (Some(ProblemType::NotAcquired), _) | (Some(ProblemType::TicketGone), Kind::Simple) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Waits for a place in a queue; until the deadline, or for ever. `None` when the deadline came
    /// first: the place is given back then. `acquire` keeps its place and does not wait itself.
    ///
    /// # Errors
    /// As [`Claim::enter`] and [`Claim::granted`].
    pub(crate) async fn wait<P: Place>(
        client: &Client,
        acquire: Call,
        lock_delay: Option<Duration>,
        deadline: Option<Moment>,
    ) -> Result<Option<(Claim, P::Grant)>, Error> {
        let (claim, grant) = Claim::enter::<P>(client, acquire, Kind::Queue, lock_delay).await?;
        claim.grant_by::<P>(grant, deadline).await
    }

    /// The claim with its grant, which may be there already; `None` when the deadline comes first.
    pub(crate) async fn grant_by<P: Place>(
        mut self,
        grant: Option<P::Grant>,
        deadline: Option<Moment>,
    ) -> Result<Option<(Claim, P::Grant)>, Error> {
        let grant = match grant {
            Some(grant) => Some(grant),
            None => self.granted::<P>(deadline).await?,
        };
        if grant.is_none() {
            // Should this fail, it goes on in the background.
            let _ = self.give_back().await;
        }
        Ok(grant.map(|grant| (self, grant)))
    }

    /// Asks for a place.
    ///
    /// # Errors
    /// When there is certainly no place, or it is not known whether there is one: then it is given
    /// back in the background.
    async fn enter<P: Place>(
        client: &Client,
        acquire: Call,
        kind: Kind,
        lock_delay: Option<Duration>,
    ) -> Result<(Claim, Option<P::Grant>), Error> {
        let enter = async || {
            let session = client.session().await?;
            // Before it is sent: its answer may be lost.
            session.note_delay(lock_delay);
            Claim::enter_in::<P>(client, session, acquire.clone(), kind).await
        };
        match enter().await {
            // The session had ended without a sign.
            Err(error) if error.code() == Some(ProblemType::SessionExpired) => enter().await,
            entered => entered,
        }
    }

    /// The same in a given session.
    pub(crate) async fn enter_in<P: Place>(
        client: &Client,
        session: Arc<Session>,
        acquire: Call,
        kind: Kind,
    ) -> Result<(Claim, Option<P::Grant>), Error> {
        let deadline = client.deadline();
        let slot = session.slot(deadline).await?;
        let enqueue = acquire.session(session.key()).key(uuid::Uuid::new_v4());
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
        let grant = claim.stands::<P>(answer.json()?, answer.sent);
        Ok((claim, grant))
    }

    /// Waits until the claim is granted; until the deadline, or for ever. `None` when the deadline
    /// came first.
    ///
    /// # Errors
    /// `Refused` with `TicketGone` when a client removed the claim from the queue, with
    /// `SessionExpired` when the session was lost. That no node answers is no reason to give up
    /// while the session lives.
    async fn granted<P: Place>(&mut self, deadline: Option<Moment>) -> Result<Option<P::Grant>, Error> {
        let ticket = self.ticket().to_owned();
        loop {
            let left = deadline.map_or(Duration::MAX, Moment::remaining);
            if left.is_zero() {
                return Ok(None);
            }
            // A grant that a hung node does not tell of is heard at another one while the session
            // lives, and the others wait no longer than for a client that has died.
            let poll = self.client.inner.transport.timeouts.poll.min(self.session.timeout() / POLL_PART);
            let wait = left.min(poll);
            // The node counts whole milliseconds; a wait of none would make this a busy loop.
            let wait_ms = Millis::from(wait).max(Millis(1));
            let target = Target::path(P::ROUTE, &ticket)?.with("wait", wait_ms);
            let call = Call::get(target.finish()).session(self.session.key()).waiting(wait);
            let poll_deadline = self.client.deadline().after(wait);
            let answer = tokio::select! {
                answer = self.client.inner.transport.send(&call, poll_deadline) => answer,
                _ = self.session.ended() => return Err(Error::session_lost("the session was lost while waiting")),
            };
            match answer {
                Ok(answer) => {
                    if let Some(grant) = self.stands::<P>(answer.json()?, answer.sent) {
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

    /// Whether what was granted is held: not when the session was lost before the answer came.
    ///
    /// # Errors
    /// `Refused` with `SessionExpired`.
    pub(crate) fn check_held(&self) -> Result<(), Error> {
        match self.session.is_safe() {
            true => Ok(()),
            false => Err(Error::session_lost("the session was lost before the grant was known")),
        }
    }

    /// The lock node's path.
    pub(crate) fn ticket(&self) -> &str {
        &self.ticketed().ticket
    }

    fn ticketed(&self) -> &Ticketed {
        self.ticket.as_ref().expect("it is set before another task has the claim")
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn fate(&self) -> &Arc<Fate> {
        &self.fate
    }

    /// How much longer what was granted cannot be lost by expiry; nothing once it is known to be
    /// lost.
    pub(crate) fn safe_for(&self) -> Duration {
        if self.fate.is_gone() { Duration::ZERO } else { self.session.safe_for() }
    }

    /// Gives the place back, held or waiting. Answers how many holds are left.
    ///
    /// # Errors
    /// `Refused` when there was nothing to give back any more. After another error it goes on in
    /// the background when the claim is dropped.
    pub(crate) async fn give_back(&mut self) -> Result<u32, Error> {
        let call = self.ticketed().release(self.kind, None)?.key(self.release_key).session(self.session.key());
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
        Ok(answer?.json::<Released>()?.holds)
    }

    /// Gives the place back after work that needed it: false when it was gone before, or may have
    /// been by the clock.
    ///
    /// After an error that does not tell, giving it back goes on in the background.
    pub(crate) async fn was_held_to_the_end(&mut self) -> bool {
        if self.safe_for().is_zero() {
            return false;
        }
        let is_gone = matches!(self.give_back().await, Err(Error::Refused { .. }));
        if is_gone {
            self.fate().tell_gone();
        }
        !is_gone
    }

    /// Gives the place back to one who waits. After an error it is still held, or the error says
    /// that it is not known.
    pub(crate) async fn hand_over(&mut self, to: &str) -> Result<(), Error> {
        let call = self.ticketed().release(self.kind, Some(to))?.key(uuid::Uuid::new_v4());
        self.client.write_in(&self.session, call).await?;
        self.armed = false;
        self.fate.tell(Loss::HandedOver);
        Ok(())
    }

    /// Leaves the place to its session: no task gives it back.
    pub(crate) fn forget(&mut self) {
        self.armed = false;
    }

    /// Notes where the ticket stands.
    fn stands<P: Place>(&mut self, place: P, sent: Moment) -> Option<P::Grant> {
        let (ticket, grant) = place.stands();
        let fencing_token = grant.as_ref().and_then(|(grant, _)| P::token(grant));
        self.ticket = Some(Ticketed { ticket, fencing_token });
        grant.map(|(grant, safe_for_ms)| {
            self.session.heard(sent, safe_for_ms);
            grant
        })
    }
}

/// Without the session's key, which its calls have.
impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ticket = self.ticket.as_ref().map(|ticketed| ticketed.ticket.as_str());
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

/// What a wait without a deadline came to.
pub(crate) fn without_end<T>(waited: Option<T>) -> Result<T, Error> {
    waited.ok_or_else(|| Error::unknown("a wait without an end has ended"))
}

/// What every answer about a claim has.
#[derive(Clone, Debug, serde::Deserialize)]
struct Ticketed {
    ticket: String,
    /// When it is held, and has one.
    #[serde(default)]
    fencing_token: Option<u64>,
}

impl Ticketed {
    /// The call that gives the place back, to one who waits or to the next one.
    fn release(&self, kind: Kind, to: Option<&str>) -> Result<Call, Error> {
        let target = match kind {
            Kind::Queue => Target::path(Ticket::ROUTE, &self.ticket)?,
            // By its token: no other owner's is given back, and a retry is answered as the first
            // one.
            Kind::Simple => Target::path(SIMPLE_LOCKS, &self.ticket)?.with_some("fencing_token", self.fencing_token),
        };
        Ok(Call::write(Method::DELETE, target.with_some("to", to).finish()))
    }
}

impl Claim {
    /// Gives the place back while no caller waits for that.
    async fn left(mut self) {
        let session = Arc::clone(&self.session);
        tokio::select! {
            () = self.leave() => {}
            // The place goes with the session.
            _ = session.ended() => {}
        }
    }

    async fn leave(&mut self) {
        loop {
            match self.round().await {
                Err(Error::Unavailable { .. } | Error::Unknown { .. }) => tokio::time::sleep(GIVE_BACK_PAUSE).await,
                // Given back, or there was nothing to give back.
                Ok(()) | Err(Error::Refused { .. }) => return,
            }
        }
    }

    async fn round(&mut self) -> Result<(), Error> {
        let transport = &self.client.inner.transport;
        let ticket = match &self.ticket {
            Some(ticket) => ticket.clone(),
            None => {
                let ticket = transport.send(&self.enqueue, self.client.deadline()).await?.json::<Ticketed>()?;
                self.slot = None;
                self.ticket.insert(ticket).clone()
            }
        };
        if self.slot.is_none() {
            self.slot = Some(self.session.window.enter().await);
        }
        let call = ticket.release(self.kind, None)?.key(self.release_key).session(self.session.key());
        transport.send(&call, self.client.deadline()).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
