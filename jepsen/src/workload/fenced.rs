//! Clients of the workload `fenced-lock`: they read a list and write it back under a lock, and
//! sometimes pause in between for longer than their session's timeout.
//!
//! Clients write two lists under the lock: a resource outside of zlock, here in memory, and a
//! znode. The resource refuses tokens below the highest token that it has seen, and the znode is
//! written with the header `If-Lock`. The negative control writes both without this protection.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;

use super::door::{Taken, Wish};
use super::pool::Pool;
use super::waiter::next_wait;
use super::{Work, guarded};
use crate::client::{Client, Session};
use crate::history::Kind;
use crate::http::Call;

/// Timeout of the sessions, in milliseconds: the shortest that zlock allows. A client's pauses are
/// longer than this timeout.
const SESSION_TIMEOUT_MS: u64 = 2_000;
const WAIT: Duration = Duration::from_millis(500);
/// Number of times that a holder appends to the znode and the resource before it releases the lock.
const USES: u32 = 3;
/// Share of writes with a pause of the client between read and write: one in this many.
const PAUSE_ONE_IN: u32 = 30;

/// Resource outside of zlock that the lock protects.
#[derive(Default)]
struct Resource {
    highest_token: u64,
    elements: Vec<u64>,
    writes: u64,
}

/// The workload `fenced-lock`: locks that guard a znode and a resource each.
pub struct Fenced {
    guarded: bool,
    pool: Pool,
    resources: Mutex<BTreeMap<String, Resource>>,
}

/// A worker with its session, and the lock that it believes it holds.
#[derive(Default)]
pub struct User {
    session: Option<Session>,
    held: Option<Held>,
}

struct Held {
    lock: String,
    ticket: String,
    token: u64,
    uses_left: u32,
}

impl Fenced {
    /// Returns the workload for this number of workers. With `negative`, writes are not protected
    /// by the token.
    pub fn new(concurrency: usize, negative: bool) -> Fenced {
        let pool = Pool::new("fenced-lock", concurrency / 4);
        Fenced { guarded: !negative, pool, resources: Mutex::default() }
    }

    fn resources(&self) -> MutexGuard<'_, BTreeMap<String, Resource>> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn acquire(&self, user: &mut User, session: &mut Session, client: &mut Client) -> Result<(), String> {
        let lock = self.pool.take_guarded(client).await?;
        let wait = next_wait(WAIT, &mut client.rng);
        let mut value = json!({"lock": lock, "owner": session.id, "wait_ms": wait.as_millis() as u64});
        client.invoke("acquire", value.clone());
        let wish = Wish { lock: &lock, mode: "exclusive", reentrant: false, wait };
        let answer = match session.acquire(&wish, client).await {
            Ok((Taken { ticket, token, .. }, answer)) => {
                value["token"] = token.into();
                user.held = Some(Held { lock, ticket, token, uses_left: USES });
                answer
            }
            Err(answer) => answer,
        };
        client.end_as(&answer, "acquire", value);
        Ok(())
    }

    /// Reads the resource's elements, may pause, and writes them back with one more.
    async fn use_resource(&self, held: &Held, session: &Session, client: &mut Client) {
        let element = self.pool.fresh();
        let mut value = json!({"lock": held.lock, "owner": session.id, "token": held.token, "element": element});
        client.invoke("use", value.clone());
        let seen = self.with_resource(held, |resource| resource.elements.clone());
        let Some(mut elements) = seen else {
            return client.end(Kind::Fail, "use", value, Some("stale-token".into()), None);
        };
        guarded::maybe_pause(session, PAUSE_ONE_IN, client).await;
        elements.push(element);
        let written = self.with_resource(held, |resource| {
            resource.elements = elements;
            resource.writes += 1;
            resource.writes
        });
        match written {
            Some(seq) => {
                value["seq"] = seq.into();
                client.end(Kind::Ok, "use", value, None, None);
            }
            None => client.end(Kind::Fail, "use", value, Some("stale-token".into()), None),
        }
    }

    /// Reads or changes the resource. Returns `None` if the resource refuses the token, because it
    /// has seen a higher one.
    fn with_resource<T>(&self, held: &Held, work: impl FnOnce(&mut Resource) -> T) -> Option<T> {
        let mut resources = self.resources();
        let resource = resources.entry(held.lock.clone()).or_default();
        if self.guarded && held.token < resource.highest_token {
            return None;
        }
        resource.highest_token = resource.highest_token.max(held.token);
        Some(work(resource))
    }

    /// Appends an element to the znode that the lock guards.
    async fn append(&self, held: &Held, session: &Session, client: &mut Client) {
        let element = self.pool.fresh();
        let value = json!({"lock": held.lock, "owner": session.id, "token": held.token, "element": element});
        guarded::append(value, self.guarded.then_some(held.token), session, PAUSE_ONE_IN, client).await;
    }

    async fn release(&self, held: Held, session: &Session, client: &mut Client) -> bool {
        let value = json!({"lock": held.lock, "owner": session.id, "token": held.token});
        let call = Call::delete(format!("/v1/tickets{}", held.ticket)).session(&session.key);
        let answer = client.operate("release", value, call, |_| None).await;
        answer.is_ok()
    }
}

impl Work for Fenced {
    type Worker = User;

    async fn step(&self, user: &mut User, client: &mut Client) -> Result<(), String> {
        let mut session = match user.session.take() {
            Some(session) => session,
            None => client.open_session(SESSION_TIMEOUT_MS).await?,
        };
        let mut keep = true;
        match user.held.take() {
            None => self.acquire(user, &mut session, client).await?,
            Some(held) if held.uses_left == 0 => keep = self.release(held, &session, client).await,
            Some(mut held) => {
                held.uses_left -= 1;
                self.use_resource(&held, &session, client).await;
                self.append(&held, &session, client).await;
                user.held = Some(held);
            }
        }
        // After an operation of unknown outcome the session is left to expire.
        if !client.take_crashed() && keep && !(user.held.is_none() && client.rng.u8(..10) == 0) {
            user.session = Some(session);
        } else {
            user.held = None;
        }
        Ok(())
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        for lock in self.pool.all_used() {
            let elements = self.resources().get(&lock).map(|resource| resource.elements.clone());
            let value = json!({"lock": lock});
            client.invoke("resource-read", value.clone());
            let done = json!({"lock": lock, "elements": elements.unwrap_or_default()});
            client.end(Kind::Ok, "resource-read", done, None, None);
        }
        self.pool.read_at_the_end(client).await
    }
}
