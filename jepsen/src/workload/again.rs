//! In the calm at the end every lock that was used must be granted again.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use zlock_client::api::headers;

use super::waiter::{Tickets, owned};
use crate::answer::Effect;
use crate::client::{Client, Session};
use crate::history::Kind;
use crate::http::Call;

/// How long a lock may take to be granted when everything is mended and nobody wants it any more.
/// Below the timeout of the sessions, so that none is free only because its holder has died.
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// How long one try waits for the lock.
const WAIT: Duration = Duration::from_secs(2);

/// Locks that were used.
#[derive(Default)]
pub(super) struct Used {
    locks: Mutex<BTreeSet<String>>,
}

impl Used {
    pub(super) fn note(&self, lock: &str) {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if !locks.contains(lock) {
            locks.insert(lock.to_owned());
        }
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// Acquires once more, with a call without a wait: `again`, which fails when nobody can have the
/// lock.
pub(super) async fn again(session: &Session, tickets: Tickets, value: Value, call: &Call, client: &mut Client) {
    let mut value = owned(&value, session);
    client.invoke("again", value.clone());
    let deadline = Instant::now() + AGAIN_MAX;
    // The same for all tries: one that nobody answered is taken over by the next.
    let key = format!("{:032x}", client.rng.u128(..));
    let call = call.clone().query(&format!("wait={}s", WAIT.as_secs())).waiting(WAIT);
    let call = call.header(headers::IDEMPOTENCY_KEY, &key).session(&session.key);
    loop {
        let node = client.any_node();
        let mut answer = client.http.send(node, call.clone()).await;
        if let Some((_, true)) = tickets.read(&mut answer, Effect::Write, &mut value) {
            return client.end(Kind::Ok, "again", value, None, Some(&answer));
        }
        if Instant::now() > deadline {
            // What became of it is known: it was not granted in time.
            return client.end(Kind::Fail, "again", value, answer.error.clone(), Some(&answer));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
