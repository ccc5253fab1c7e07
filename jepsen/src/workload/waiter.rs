//! A worker that takes a place in a queue, waits for it at any node, and releases it. Most
//! workloads with locks use it.

use std::time::Duration;

use serde_json::{Value, json};
use zlock_client::api::{LockQueue, MultiTicket, Ticket};

use super::owner::Owner;
use super::waits;
use super::wishes::Asked;
use crate::answer::{Answer, Effect};
use crate::client::{Client, Session};
use crate::http::Call;

/// Time that one request waits for a ticket.
const WAIT: Duration = Duration::from_millis(500);

/// Kind of the tickets of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tickets {
    /// A ticket of one lock: `token` in the history's values.
    One,
    /// Tickets of several locks at once: `locks` in the history's values, with a `token` each.
    Several,
}

/// A place in a queue.
pub(super) struct Place {
    /// Value for the history, without the owner. It has the token, or tokens, once the place holds.
    pub(super) value: Value,
    pub(super) ticket: String,
    pub(super) held: bool,
    tickets: Tickets,
}

impl Tickets {
    /// Reads an answer's ticket, and whether it holds. Adds its tokens to the value.
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
    /// Path of the lock; the first path of several.
    pub(super) fn lock(&self) -> &str {
        let lock = self.value["lock"].as_str();
        lock.or_else(|| self.value["locks"][0]["lock"].as_str()).unwrap_or_default()
    }
}

/// Reads the queue of a lock: `look`, with the sessions that hold it, and the permits of a
/// semaphore.
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

/// Returns the value of an operation with the session as its owner.
pub(super) fn owned(value: &Value, session: &Session) -> Value {
    let mut value = value.clone();
    value["owner"] = session.id.into();
    value
}

/// A worker, its session and its place.
#[derive(Default)]
pub struct Waiter {
    pub(super) owner: Owner,
    pub(super) place: Option<Place>,
}

impl Waiter {
    /// Keeps the session, or drops it together with its place.
    pub(super) fn after(&mut self, session: Session, answer: &Answer, client: &mut Client) {
        if !self.owner.after(session, answer, client) {
            self.place = None;
        }
    }

    /// Tells whether the place holds.
    pub(super) fn holds(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.held)
    }

    /// Takes a step with the place: releases it when it holds or `leaves` is true, else waits for
    /// it. Returns the session when there is no place.
    pub(super) async fn step(&mut self, leaves: bool, session: Session, client: &mut Client) -> Option<Session> {
        let Some(place) = self.place.take() else { return Some(session) };
        if place.held || leaves {
            self.release(session, place, client).await;
        } else {
            self.wait(session, place, client).await;
        }
        None
    }

    /// Takes a step with the place. The roll `die` of 0 to 19 makes it a look at the queue, or
    /// leads the worker to leave the queue early.
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

    /// Asks for a place: `enqueue`.
    pub(super) async fn enqueue(&mut self, session: Session, asked: Asked, client: &mut Client) {
        self.ask("enqueue", session, asked, client).await;
    }

    /// Asks for a place with an operation of this name.
    pub(super) async fn ask(&mut self, f: &str, session: Session, asked: Asked, client: &mut Client) -> Answer {
        let (tickets, value, call) = asked;
        let call = call.query("keep=true").session(&session.key);
        let mut result = owned(&value, &session);
        let mut place = None;
        let (answer, _) = client
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

    /// Waits for the place for a moment: `await`.
    pub(super) async fn wait(&mut self, session: Session, mut place: Place, client: &mut Client) {
        let mut result = owned(&place.value, &session);
        let wait = waits::next(WAIT, &mut client.rng);
        let mut asked = result.clone();
        asked["wait_ms"] = (wait.as_millis() as u64).into();
        let call = Call::get(place.tickets.look(&place.ticket, wait)).session(&session.key).waiting(wait);
        let (answer, _) = client
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

    /// Gives the place back: `release`.
    pub(super) async fn release(&mut self, session: Session, place: Place, client: &mut Client) {
        let value = owned(&place.value, &session);
        let call = Call::delete(format!("/v1/tickets{}", place.ticket)).session(&session.key);
        let (answer, _) = client.operate("release", value, call, |_| None).await;
        if !answer.is_ok() && !answer.is_problem("ticket-gone") {
            self.place = Some(place);
        }
        self.after(session, &answer, client);
    }
}
