//! Clients of the workloads `lock-delay` and `restore`: they take a lock, in `lock-delay` with a
//! lock-delay, and then release the lock or abandon the session that holds it.

use std::time::Duration;

use serde_json::json;

use super::Work;
use super::door::held;
use super::own_session::OwnSession;
use super::pool::Pool;
use crate::answer::Answer;
use crate::client::Client;
use crate::http::Call;

/// Timeout of the sessions, in milliseconds: the shortest that a node accepts.
const TIMEOUT_MS: u64 = 2_000;
/// Pause between two heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(TIMEOUT_MS / 5);
/// Longest wait of an acquire in the queue: shorter than the time between two heartbeats.
const WAIT: Duration = Duration::from_millis(300);
/// Lock-delays in `lock-delay`, in milliseconds.
const DELAYS_MS: &[u64] = &[0, 1_000, 2_000];

/// The workloads `lock-delay` and `restore`: locks of sessions that may expire.
pub struct Delays {
    pool: Pool,
    /// Lock-delays that clients ask for, in milliseconds.
    delays_ms: &'static [u64],
}

/// A worker with its session, for which the worker itself sends the heartbeats.
#[derive(Default)]
pub struct Holder {
    session: Option<OwnSession>,
    /// Lock that the worker holds, and its ticket (the path of the lock node).
    held: Option<(String, String)>,
}

impl Delays {
    /// Returns the workload `lock-delay` for this number of workers. The workload has enough locks
    /// that some are free while others are blocked by their delay.
    pub fn new(concurrency: usize) -> Delays {
        Delays { pool: Pool::new("lock-delay", concurrency / 2), delays_ms: DELAYS_MS }
    }

    /// Returns the workload `restore` for this number of workers, without lock-delays.
    pub fn none(concurrency: usize) -> Delays {
        Delays { pool: Pool::new("restore", concurrency / 2), delays_ms: &[0] }
    }

    async fn acquire(&self, holder: &mut Holder, session: &OwnSession, client: &mut Client) -> Answer {
        let lock = self.pool.take(client);
        let delay_ms = self.delays_ms[client.rng.usize(..self.delays_ms.len())];
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
        let answer = client.operate("acquire", asked, call, result).await;
        holder.held = ticket.map(|ticket| (lock, ticket));
        answer
    }
}

async fn release(session: &OwnSession, (lock, ticket): (String, String), client: &mut Client) -> Answer {
    let value = json!({"lock": lock, "owner": session.id, "mode": "exclusive"});
    let call = Call::delete(format!("/v1/tickets{ticket}")).session(&session.key);
    client.operate("release", value, call, |_| None).await
}

impl Work for Delays {
    type Worker = Holder;

    async fn step(&self, holder: &mut Holder, client: &mut Client) -> Result<(), String> {
        let Some(mut session) = holder.session.take() else {
            holder.session = OwnSession::open(TIMEOUT_MS, client).await;
            return Ok(());
        };
        let die = client.rng.u8(..10);
        let answer = if session.heard.elapsed() > HEARTBEAT {
            session.keep_alive(client).await
        } else if let Some(held) = holder.held.take() {
            match die {
                0 | 1 => {
                    session.abandon(client);
                    return Ok(());
                }
                2..6 => release(&session, held, client).await,
                _ => {
                    holder.held = Some(held);
                    session.keep_alive(client).await
                }
            }
        } else {
            self.acquire(holder, &session, client).await
        };
        // After an operation of unknown outcome the session is left to expire.
        if client.take_crashed() || answer.is_problem("session-expired") {
            holder.held = None;
        } else {
            holder.session = Some(session);
        }
        Ok(())
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        let call = |lock: &str| Call::post(format!("/v1/locks{lock}?mode=exclusive"));
        self.pool.acquire_again(client, |lock| (json!({"lock": lock}), call(lock))).await
    }
}
