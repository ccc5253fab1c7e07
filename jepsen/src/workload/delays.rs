//! `lock-delay`: take a lock with a lock-delay, and give it back, or leave the session to expire
//! with it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use zlock_client::api::{KeptAlive, OpenSession, SessionOpened};

use super::again::{Used, again};
use super::door::held;
use super::owner::SESSION_TIMEOUT_MS;
use super::waiter::Tickets;
use super::{Work, epoch, make_root};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::http::Call;

const EPOCH: Duration = Duration::from_secs(15);
/// How long these sessions live without a heartbeat: the shortest that a node agrees to.
const TIMEOUT_MS: u64 = 2_000;
/// Between two heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(TIMEOUT_MS / 5);
/// How long an acquire waits in the queue: shorter than the time between two heartbeats.
const WAIT: Duration = Duration::from_millis(300);
/// The delays that are asked for, in milliseconds.
const DELAYS_MS: [u64; 3] = [0, 1_000, 2_000];

/// Locks that are held by sessions that may expire.
pub struct Delays {
    count: u64,
    used: Used,
}

/// A worker and its session, which it keeps alive itself.
#[derive(Default)]
pub struct Holder {
    session: Option<Session>,
    /// Lock and ticket.
    held: Option<(String, String)>,
}

struct Session {
    id: u64,
    key: String,
    heard: Instant,
}

impl Delays {
    /// Locks for so many workers: enough that some are free while others are in their delay.
    pub fn new(concurrency: usize) -> Delays {
        Delays { count: (concurrency as u64 / 2).max(1), used: Used::default() }
    }

    async fn acquire(&self, holder: &mut Holder, session: &Session, client: &mut Client) -> Answer {
        let lock = format!("{}/lock-delay/{}-{}", super::ROOT, epoch(client, EPOCH), client.rng.u64(..self.count));
        self.used.note(&lock);
        let delay_ms = DELAYS_MS[client.rng.usize(..DELAYS_MS.len())];
        let mut value = json!({"lock": lock, "owner": session.id, "delay_ms": delay_ms, "mode": "exclusive"});
        value["wait_ms"] = (WAIT.as_millis() as u64).into();
        let target = format!("/v1/locks{lock}?wait={}ms&lock_delay={delay_ms}ms", WAIT.as_millis());
        let (call, asked) = (Call::post(target).session(&session.key).waiting(WAIT), value.clone());
        let mut ticket = None;
        let result = |answer: &mut Answer| {
            let (its, token, _) = held(answer)?;
            value["token"] = token.into();
            ticket = Some(its);
            Some(value)
        };
        let (answer, _) = client.operate("acquire", asked, call, result).await;
        holder.held = ticket.map(|ticket| (lock, ticket));
        answer
    }
}

async fn open(client: &mut Client) -> Option<Session> {
    let wish = OpenSession { timeout_ms: Some(TIMEOUT_MS), label: "jepsen".into(), client: None };
    let (mut opened, heard) = (None, Instant::now());
    let result = |answer: &mut Answer| -> Option<Value> {
        let session: SessionOpened = answer.read(Effect::Write)?;
        let value = json!({"owner": session.id, "safe_for_ms": session.safe_for_ms});
        opened = Some(Session { id: session.id, key: session.session, heard });
        Some(value)
    };
    client.operate("open", json!({}), Call::post("/v1/sessions").json(&wish), result).await;
    opened
}

async fn keep_alive(session: &mut Session, client: &mut Client) -> Answer {
    let (id, now) = (session.id, Instant::now());
    let call = Call::post(format!("/v1/sessions/{id}/keepalive")).session(&session.key).harmless();
    let result = |answer: &mut Answer| -> Option<Value> {
        let kept: KeptAlive = answer.read(Effect::Read)?;
        Some(json!({"owner": id, "safe_for_ms": kept.safe_for_ms}))
    };
    let (answer, _) = client.operate("keepalive", json!({"owner": id}), call, result).await;
    if answer.is_ok() {
        session.heard = now;
    }
    answer
}

async fn release(session: &Session, (lock, ticket): (String, String), client: &mut Client) -> Answer {
    let value = json!({"lock": lock, "owner": session.id, "mode": "exclusive"});
    let call = Call::delete(format!("/v1/tickets{ticket}")).session(&session.key);
    client.operate("release", value, call, |_| None).await.0
}

fn abandon(session: &Session, client: &mut Client) {
    client.invoke("abandon", json!({"owner": session.id}));
    client.end(crate::history::Kind::Ok, "abandon", json!({"owner": session.id}), None, None);
}

impl Work for Delays {
    type Worker = Holder;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "lock-delay").await.map(|_| ())
    }

    fn worker(&self, _index: usize) -> Holder {
        Holder::default()
    }

    async fn step(&self, holder: &mut Holder, client: &mut Client) -> Result<(), String> {
        let Some(mut session) = holder.session.take() else {
            holder.session = open(client).await;
            return Ok(());
        };
        let die = client.rng.u8(..10);
        let answer = if session.heard.elapsed() > HEARTBEAT {
            keep_alive(&mut session, client).await
        } else if let Some(held) = holder.held.take() {
            match die {
                0 | 1 => {
                    abandon(&session, client);
                    return Ok(());
                }
                2..6 => release(&session, held, client).await,
                _ => {
                    holder.held = Some(held);
                    keep_alive(&mut session, client).await
                }
            }
        } else {
            self.acquire(holder, &session, client).await
        };
        // A session in which something is in doubt is left to expire.
        if client.take_crashed() || answer.is_problem("session-expired") {
            holder.held = None;
        } else {
            holder.session = Some(session);
        }
        Ok(())
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        let session = client.open_session(SESSION_TIMEOUT_MS).await?;
        for lock in self.used.all() {
            let call = Call::post(format!("/v1/locks{lock}?mode=exclusive"));
            again(&session, Tickets::One, json!({"lock": lock}), &call, client).await;
        }
        Ok(())
    }
}
