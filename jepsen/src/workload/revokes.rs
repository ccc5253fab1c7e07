//! Clients of the workload `revoke`: some hold a lock and write under it, others revoke the lock,
//! with a deadline or without. Some holders release the lock when they are asked to; stubborn
//! holders go on until their requests are refused.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zlock_client::api::{LockHistory, Revocation, Ticket};

use super::pool::Pool;
use super::waiter::{Place, Tickets, Waiter, owned};
use super::{Work, guarded};
use crate::answer::Effect;
use crate::client::{Client, Session};
use crate::http::Call;

/// Longest time that one request of a holder waits for a revocation.
const WAIT: Duration = Duration::from_millis(500);
/// Number of actions of a holder before it releases the lock by itself.
const DEEDS: u32 = 4;
/// Time for which a stubborn holder keeps the lock: longer than the longest deadline and the
/// checker's tolerance together.
const STUBBORN: Duration = Duration::from_secs(6);
/// Share of workers that revoke locks: one in this many.
const REVOKER_ONE_IN: usize = 5;

/// The workload `revoke`.
pub struct Revokes {
    pool: Pool,
    /// Sessions of workers that held a lock at the end of the run. They stay open, so that only a
    /// revocation ends these holds.
    stubborn: Mutex<Vec<Session>>,
}

/// A worker that takes locks, or that revokes them.
#[derive(Default)]
pub struct Holder {
    asks: bool,
    waiter: Waiter,
    stubborn: bool,
    /// Time of the worker's first action under the present hold.
    holds_since: Option<Instant>,
    deeds_left: u32,
    /// History value of a lost ticket; the next step reads in the lock's history how it ended.
    /// `None` without a lost ticket.
    lost: Option<Value>,
}

impl Revokes {
    /// Returns the workload for this number of workers, with so few locks that each has waiters.
    pub fn new(concurrency: usize) -> Revokes {
        Revokes { pool: Pool::new("revoke", concurrency / 4), stubborn: Mutex::default() }
    }

    async fn enqueue(&self, holder: &mut Holder, session: Session, client: &mut Client) -> Result<(), String> {
        let lock = self.pool.take_guarded(client).await?;
        (holder.stubborn, holder.holds_since) = (client.rng.bool(), None);
        holder.deeds_left = DEEDS;
        let call = Call::post(format!("/v1/locks{lock}"));
        holder.waiter.enqueue(session, (Tickets::One, json!({"lock": lock}), call), client).await;
        Ok(())
    }

    /// Takes one action of a holder: writes under the lock, or waits for a revocation (`listen`).
    async fn hold(&self, holder: &mut Holder, session: Session, place: Place, client: &mut Client) {
        let held_for = holder.holds_since.get_or_insert_with(Instant::now).elapsed();
        if !holder.stubborn || held_for > STUBBORN {
            holder.deeds_left -= 1;
        }
        let mut value = owned(&place.value, &session);
        let mut asked = false;
        let answer = if holder.stubborn || client.rng.u8(..3) == 0 {
            let token = value["token"].as_u64();
            value["element"] = self.pool.fresh().into();
            guarded::append(value, token, &session, u32::MAX, client).await
        } else {
            let target = format!("/v1/tickets{}?until=revoked&wait={}ms", place.ticket, WAIT.as_millis());
            let call = Call::get(target).session(&session.key).waiting(WAIT);
            let heard = client.operate("listen", value.clone(), call, |answer| {
                let Ticket::Held { revoke, .. } = answer.read(Effect::Read)? else { return Some(value) };
                asked = revoke.is_some();
                value["asked"] = asked.into();
                value["due_ms"] = revoke.and_then(|revoke| revoke.due_at_ms).into();
                Some(value)
            });
            heard.await
        };
        if asked {
            holder.deeds_left = 0;
        }
        if answer.is_problem("lock-not-held") || answer.is_problem("ticket-gone") {
            holder.lost = Some(owned(&place.value, &session));
        } else {
            holder.waiter.place = Some(place);
        }
        holder.waiter.after(session, &answer, client);
    }

    /// Revokes a random lock in use: without a deadline, with a deadline of 0.2 to 1.5 s, or (for
    /// every second lock) with a deadline of 0. The other locks are never taken away at once, so
    /// that the checker can judge holders that act after their deadline.
    async fn ask(&self, client: &mut Client) {
        let (epoch, number) = self.pool.place(client);
        let (lock, at_once) = (self.pool.lock((epoch, number)), (epoch + number) % 2 == 1);
        let deadline_ms = match client.rng.u8(..6) {
            0 => None,
            1 if at_once => Some(0),
            _ => Some(client.rng.u64(200..1_500)),
        };
        revoke(&lock, deadline_ms, client).await;
    }
}

/// Makes the operation `revoke`, answered with the tickets of the holders that were asked to
/// release. Returns true if the revocation was accepted or the lock has no holder.
async fn revoke(lock: &str, deadline_ms: Option<u64>, client: &mut Client) -> bool {
    let mut value = json!({"lock": lock, "deadline_ms": deadline_ms});
    let mut call = Call::post(format!("/v1/revocations{lock}"));
    if let Some(deadline_ms) = deadline_ms {
        call = call.query(&format!("deadline={deadline_ms}ms"));
    }
    let answer = client
        .operate("revoke", value.clone(), call, |answer| {
            let revoked: Revocation = answer.read(Effect::Write)?;
            value["tickets"] = revoked.tickets.into();
            Some(value)
        })
        .await;
    client.take_crashed();
    answer.is_ok() || answer.is_problem("no-node") || answer.is_problem("ticket-gone")
}

/// Makes the operation `past`: reads in the lock's history how and when a lost ticket ended.
async fn past(lost: &Value, client: &mut Client) {
    let (lock, ticket) = (lost["lock"].as_str().unwrap_or_default(), &lost["ticket"]);
    let mut value = json!({"lock": lock, "ticket": ticket, "dead_token": lost["token"]});
    let call = Call::get(format!("/v1/history{lock}"));
    let read = |answer: &mut crate::answer::Answer| {
        let history: LockHistory = answer.read(Effect::Read)?;
        let ended = history.history.into_iter().find(|past| past.ticket.as_deref() == ticket.as_str());
        if let Some(ended) = ended {
            value["end"] = serde_json::to_value(ended.ended.how).unwrap_or_default();
            value["ended_zxid"] = ended.ended.zxid.into();
            value["ended_ms"] = ended.ended.at_ms.into();
        }
        Some(value)
    };
    client.operate("past", json!({"lock": lock, "ticket": ticket}), call, read).await;
}

impl Work for Revokes {
    type Worker = Holder;

    fn worker(&self, index: usize) -> Holder {
        let asks = index % REVOKER_ONE_IN == REVOKER_ONE_IN - 1;
        Holder { asks, ..Holder::default() }
    }

    async fn step(&self, holder: &mut Holder, client: &mut Client) -> Result<(), String> {
        if holder.asks {
            // Revocations are made less often than locks change their holders.
            if client.rng.u8(..4) == 0 {
                self.ask(client).await;
            }
            return Ok(());
        }
        if let Some(lost) = holder.lost.take() {
            past(&lost, client).await;
            return Ok(());
        }
        let waiter = &mut holder.waiter;
        let Some(session) = waiter.owner.session(client).await? else { return Ok(()) };
        let leaves = client.rng.u8(..20) == 0;
        if let Some(place) = waiter.place.take_if(|place| place.held && holder.deeds_left > 0) {
            self.hold(holder, session, place, client).await;
        } else if let Some(session) = waiter.step(leaves, session, client).await {
            self.enqueue(holder, session, client).await?;
        }
        Ok(())
    }

    async fn settle(&self, mut holder: Holder, client: &mut Client) -> Result<(), String> {
        if holder.waiter.holds()
            && let Some(session) = holder.waiter.owner.take_session()
        {
            // The session stays open: `finish` revokes the lock.
            self.stubborn.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        }
        holder.waiter.owner.settle(client).await
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        for lock in self.pool.all_used() {
            while !revoke(&lock, Some(500), client).await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        self.pool.read_and_acquire_again(client, "locks").await
    }
}
