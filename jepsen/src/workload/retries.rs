//! Clients of the workload `exactly-once`: after a lost answer they send the request again, with
//! the same idempotency key, to any node.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use zlock_client::api::{ChangedZnode, CreatedZnode, Release, ZnodeInfo, headers};

use super::door::held;
use super::owner::Owner;
use super::sequences::{final_list, number_of};
use super::{Work, final_read};
use crate::answer::{Answer, Effect};
use crate::client::{Client, Session};
use crate::history::Kind;
use crate::http::Call;

const WAIT: Duration = Duration::from_millis(300);
/// Number of tries after which a client gives up. An outcome that is in doubt then stays unknown.
const TRIES_MAX: u64 = 12;

/// The workload `exactly-once`.
#[derive(Default)]
pub struct Retries {
    /// True for the negative control, whose retries have no idempotency key.
    keyless: bool,
    next_element: AtomicU64,
}

/// A worker with its session, and the ticket of the lock that it holds.
#[derive(Default)]
pub struct Insistent {
    index: usize,
    owner: Owner,
    ticket: Option<String>,
}

impl Retries {
    /// Returns the workload. With `negative`, requests are repeated without a key, so the checker
    /// must find requests that were applied twice.
    pub fn new(negative: bool) -> Retries {
        Retries { keyless: negative, ..Retries::default() }
    }
}

fn parent() -> String {
    format!("{}/exactly-once/children", super::ROOT)
}

fn counter() -> String {
    format!("{}/exactly-once/counter", super::ROOT)
}

/// Sends a request until its outcome is known, or up to [`TRIES_MAX`] times. Returns the answer and
/// the number of tries. For half of the tries the client closes the connection before the answer.
///
/// A refusal is final when no earlier try has an unknown outcome, or when `is_last_word` says that
/// the refusal settles all tries.
async fn insist(client: &mut Client, call: Call, is_last_word: impl Fn(&Answer) -> bool) -> (Answer, u64) {
    let mut in_doubt = false;
    let mut tries = 0;
    loop {
        tries += 1;
        let node = client.any_node();
        if client.rng.bool() {
            let after = Duration::from_micros(client.rng.u64(..8_000));
            let cut = client.http.send_and_hang_up(node, call.clone(), after).await;
            in_doubt |= cut.outcome == Kind::Info;
            continue;
        }
        let mut answer = client.http.send(node, call.clone()).await;
        let unavailable = answer.status == 503 || answer.status == 429 || answer.status == 0;
        match answer.outcome {
            Kind::Ok => return (answer, tries),
            Kind::Fail if !unavailable && (!in_doubt || is_last_word(&answer)) => return (answer, tries),
            Kind::Fail if unavailable => {}
            _ => in_doubt = true,
        }
        if tries >= TRIES_MAX {
            answer.outcome = if in_doubt { Kind::Info } else { Kind::Fail };
            return (answer, tries);
        }
        tokio::time::sleep(Duration::from_millis(20 * tries)).await;
    }
}

impl Retries {
    async fn operate(
        &self,
        client: &mut Client,
        f: &str,
        mut value: Value,
        call: Call,
        result: impl FnOnce(&mut Answer, &mut Value),
    ) -> Answer {
        client.invoke(f, value.clone());
        let key = format!("{:032x}", client.rng.u128(..));
        let call = if self.keyless { call } else { call.header(headers::IDEMPOTENCY_KEY, key) };
        let is_last_word = |answer: &Answer| {
            ["not-acquired", "idempotency-key-reused", "blocked-by-own-session"]
                .iter()
                .any(|name| answer.is_problem(name))
        };
        let (mut answer, tries) = insist(client, call, is_last_word).await;
        value["tries"] = tries.into();
        if answer.is_ok() {
            result(&mut answer, &mut value);
        }
        client.end_as(&answer, f, value);
        answer
    }

    async fn act(&self, worker: &mut Insistent, session: &Session, client: &mut Client) -> Answer {
        let element = self.next_element.fetch_add(1, Ordering::Relaxed);
        if let Some(ticket) = worker.ticket.take() {
            let value = json!({"lock": lock(worker.index), "owner": session.id});
            let call = Call::delete(format!("/v1/tickets{ticket}")).session(&session.key);
            return self
                .operate(client, "release", value, call, |answer, value| {
                    value["holds"] = answer.read::<Release>(Effect::Write).map(|released| released.holds).into();
                })
                .await;
        }
        match client.rng.u8(..3) {
            0 => {
                let value = json!({"parent": parent(), "element": element});
                let target = format!("/v1/znodes{}/e{element}-?mode=persistent-sequential", parent());
                let call = Call::post(target).session(&session.key);
                self.operate(client, "create", value, call, |answer, value| {
                    let created = answer.read::<CreatedZnode>(Effect::Write);
                    value["number"] = created.and_then(|created| number_of(&created.path)).into();
                })
                .await
            }
            1 => {
                let value = json!({"counter": counter(), "element": element});
                let call = Call::put(format!("/v1/znodes{}", counter())).body(element.to_string());
                self.operate(client, "add", value, call.session(&session.key), |answer, value| {
                    value["version"] = answer.read::<ChangedZnode>(Effect::Write).map(|set| set.stat.version).into();
                })
                .await
            }
            _ => {
                let lock = lock(worker.index);
                let value = json!({"lock": lock, "owner": session.id});
                let target = format!("/v1/locks{lock}?wait={}ms&owner=worker", WAIT.as_millis());
                let call = Call::post(target).session(&session.key).waiting(WAIT);
                let mut ticket = None;
                let answer = self
                    .operate(client, "acquire", value, call, |answer, value| {
                        if let Some((path, token, holds)) = held(answer) {
                            value["token"] = token.into();
                            value["holds"] = holds.into();
                            ticket = Some(path);
                        }
                    })
                    .await;
                worker.ticket = ticket;
                answer
            }
        }
    }
}

fn lock(worker: usize) -> String {
    format!("{}/exactly-once/lock-{worker}", super::ROOT)
}

impl Work for Retries {
    type Worker = Insistent;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        client.ensure(&parent(), "").await?;
        client.ensure(&counter(), "").await
    }

    fn worker(&self, index: usize) -> Insistent {
        Insistent { index, ..Insistent::default() }
    }

    async fn step(&self, worker: &mut Insistent, client: &mut Client) -> Result<(), String> {
        let Some(session) = worker.owner.session(client).await? else { return Ok(()) };
        let answer = self.act(worker, &session, client).await;
        if !worker.owner.after_tries(session, &answer, client) {
            worker.ticket = None;
        }
        Ok(())
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        final_list(client, &parent()).await?;
        let url = format!("/v1/znodes{}", counter());
        final_read(client, "count", json!({"counter": counter()}), Call::get(url), |answer| {
            let node = serde_json::from_slice::<ZnodeInfo>(&answer.body).ok();
            json!({"counter": counter(), "version": node.map(|node| node.stat.version)})
        })
        .await
    }
}
