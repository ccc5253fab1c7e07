//! A worker that takes a place in the queue of a lock, waits for the grant at any node, and
//! releases the place. Most workloads with locks use it.

use std::time::Duration;

use serde_json::{Value, json};
use zlock_client::api::{LockQueue, MultiTicket, Ticket};

use super::owner::Owner;
use crate::answer::{Answer, Effect};
use crate::client::{Client, Session};
use crate::http::Call;

/// Usual time that one request waits for the grant of a ticket.
const WAIT: Duration = Duration::from_millis(500);
/// Length of a long wait. It is longer than the grant of a free lock may take, because the checker
/// finds a lost grant only by a wait that goes on after that time.
const LONG: Duration = Duration::from_secs(6);
/// Share of long waits: one in this many. With more of them, too many clients would wait at a node
/// that is cut off.
const LONG_ONE_IN: u8 = 10;

/// Returns the length of the next wait for a lock: mostly `short`, sometimes [`LONG`].
pub(super) fn next_wait(short: Duration, rng: &mut fastrand::Rng) -> Duration {
    if rng.u8(..LONG_ONE_IN) == 0 { LONG } else { short }
}

/// Kind of a ticket. A ticket is the lock node (or the multi-lock) that stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tickets {
    /// A ticket of one lock. History values have its token in the field `token`.
    One,
    /// A ticket of several locks at once. History values have the field `locks`, with a `token` for
    /// each lock.
    Several,
}

/// A request for a ticket: its kind, the value for the history, and the HTTP call.
pub(super) type Asked = (Tickets, Value, Call);

/// A place of a worker in the queue of a lock or of a multi-lock, with the ticket that stands for
/// it. The worker waits or holds.
pub(super) struct Place {
    /// Value for the history, without the owner. It has the tokens once the lock is granted.
    pub(super) value: Value,
    pub(super) ticket: String,
    pub(super) held: bool,
    tickets: Tickets,
}

impl Tickets {
    /// Reads the ticket in an answer. Returns the ticket's path and whether it holds the lock, and
    /// adds its tokens to `value`.
    pub(super) fn read(self, answer: &mut Answer, effect: Effect, value: &mut Value) -> Option<(String, bool)> {
        match self {
            Tickets::One => match answer.read(effect)? {
                Ticket::Held { ticket, fencing_token, .. } => {
                    value["token"] = fencing_token.into();
                    Some((ticket, true))
                }
                Ticket::Waiting { ticket, .. } => Some((ticket, false)),
            },
            Tickets::Several => match answer.read(effect)? {
                MultiTicket::Held { ticket, locks, .. } => {
                    let asked = std::mem::take(&mut value["locks"]);
                    let part = |(i, part): (usize, &zlock_client::api::HeldPart)| {
                        let mut held = asked[i].clone();
                        held["lock"] = part.path.clone().into();
                        held["token"] = part.fencing_token.into();
                        held
                    };
                    value["locks"] = locks.iter().enumerate().map(part).collect();
                    Some((ticket, true))
                }
                MultiTicket::Waiting { ticket, .. } => Some((ticket, false)),
            },
        }
    }

    fn look(self, ticket: &str, wait: Duration) -> String {
        let route = if self == Tickets::One { "tickets" } else { "multilocks" };
        format!("/v1/{route}{ticket}?wait={}ms", wait.as_millis())
    }
}

impl Place {
    /// Returns the path of the lock, or of the first of several locks.
    pub(super) fn lock(&self) -> &str {
        let lock = self.value["lock"].as_str();
        lock.or_else(|| self.value["locks"][0]["lock"].as_str()).unwrap_or_default()
    }
}

/// Makes the operation `look`: reads the queue of a lock, with the sessions that hold it and the
/// permits of a semaphore.
pub(super) async fn look(lock: &str, client: &mut Client) {
    let value = json!({"lock": lock});
    let call = Call::get(format!("/v1/locks{lock}"));
    let read = |answer: &mut Answer| {
        let queue: LockQueue = answer.read(Effect::Read)?;
        let holders: Vec<u64> = queue.holders.iter().filter_map(|holder| holder.session).collect();
        let (held, limit) = (queue.permits_held, queue.permits_max);
        // If the queue is longer than one page, holders may be missing, so no value is returned.
        let all = queue.cursor.is_none();
        all.then(|| json!({"lock": lock, "holders": holders, "held": held, "limit": limit}))
    };
    client.operate("look", value, call, read).await;
}

/// Returns a copy of a history value with the session as its `owner`.
pub(super) fn owned(value: &Value, session: &Session) -> Value {
    let mut value = value.clone();
    value["owner"] = session.id.into();
    value
}

/// A worker with its session and its place in a queue.
#[derive(Default)]
pub struct Waiter {
    pub(super) owner: Owner,
    pub(super) place: Option<Place>,
}

impl Waiter {
    /// Gives the session back as [`Owner::after`] does, and drops the place if the session is
    /// dropped.
    pub(super) fn after(&mut self, session: Session, answer: &Answer, client: &mut Client) {
        if !self.owner.after(session, answer, client) {
            self.place = None;
        }
    }

    /// Tells whether the worker's place in the queue has been granted the lock.
    pub(super) fn holds(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.held)
    }

    /// Makes the next operation on the worker's place in the queue: releases it if it holds or
    /// `leaves` is true, else waits for the grant. Without a place it does nothing and returns the
    /// session.
    pub(super) async fn step(&mut self, leaves: bool, session: Session, client: &mut Client) -> Option<Session> {
        let Some(place) = self.place.take() else { return Some(session) };
        if place.held || leaves {
            self.release(session, place, client).await;
        } else {
            self.wait(session, place, client).await;
        }
        None
    }

    /// Makes the next operation on the worker's place as [`Waiter::step`] does. `die` is a random
    /// number of 0 to 19: below 3 the worker looks at the queue instead, and with 3 it leaves the
    /// queue early.
    pub(super) async fn step_or_look(&mut self, die: u8, session: Session, client: &mut Client) -> Option<Session> {
        if die < 3
            && let Some(place) = &self.place
        {
            look(place.lock(), client).await;
            self.owner.keep(session);
            return None;
        }
        self.step(die == 3, session, client).await
    }

    /// Returns a waiter whose sessions have this timeout.
    pub(super) fn with_timeout(timeout_ms: u64) -> Waiter {
        Waiter { owner: Owner::with_timeout(timeout_ms), place: None }
    }

    /// Makes the operation `enqueue`, which asks for a place in a queue.
    pub(super) async fn enqueue(&mut self, session: Session, asked: Asked, client: &mut Client) {
        self.ask("enqueue", session, asked, client).await;
    }

    /// Asks for a place in a queue by the operation with the name `f`. The place stays in the queue
    /// after the answer (`keep=true`).
    pub(super) async fn ask(&mut self, f: &str, session: Session, asked: Asked, client: &mut Client) -> Answer {
        let (tickets, value, call) = asked;
        let call = call.query("keep=true").session(&session.key);
        let mut result = owned(&value, &session);
        let mut place = None;
        let answer = client
            .operate(f, result.clone(), call, |answer| {
                let (ticket, held) = tickets.read(answer, Effect::Write, &mut result)?;
                result["ticket"] = ticket.clone().into();
                place = Some(Place { value: result.clone(), ticket, held, tickets });
                Some(result)
            })
            .await;
        self.place = place;
        self.after(session, &answer, client);
        answer
    }

    /// Makes the operation `await`, which waits for the grant of the place in the queue.
    pub(super) async fn wait(&mut self, session: Session, mut place: Place, client: &mut Client) {
        let mut result = owned(&place.value, &session);
        let wait = next_wait(WAIT, &mut client.rng);
        let mut asked = result.clone();
        asked["wait_ms"] = (wait.as_millis() as u64).into();
        let call = Call::get(place.tickets.look(&place.ticket, wait)).session(&session.key).waiting(wait);
        let answer = client
            .operate("await", asked, call, |answer| {
                let (_, held) = place.tickets.read(answer, Effect::Read, &mut result)?;
                place.held = held;
                place.value.clone_from(&result);
                Some(result)
            })
            .await;
        if !answer.is_problem("ticket-gone") {
            self.place = Some(place);
        }
        self.after(session, &answer, client);
    }

    /// Makes the operation `release`, which gives the place in the queue back.
    pub(super) async fn release(&mut self, session: Session, place: Place, client: &mut Client) {
        let value = owned(&place.value, &session);
        let call = Call::delete(format!("/v1/tickets{}", place.ticket)).session(&session.key);
        let answer = client.operate("release", value, call, |_| None).await;
        if !answer.is_ok() && !answer.is_problem("ticket-gone") {
            self.place = Some(place);
        }
        self.after(session, &answer, client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::GRANT_MAX_NS;

    #[test]
    fn a_long_wait_shows_a_lost_grant() {
        assert!(LONG.as_nanos() >= 2 * u128::from(GRANT_MAX_NS));
    }
}
