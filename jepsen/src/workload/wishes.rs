//! Requests for one lock or for several locks: to read, to write, or for some permits.

use serde_json::{Value, json};
use zlock_client::api::{AcquireAll, LockMode, LockWish, Policy};

use super::owner::SESSION_TIMEOUT_MS;
use super::pool::{Pool, again};
use super::waiter::{Asked, Tickets};
use crate::client::Client;
use crate::http::Call;

/// Number of permits that each lock has when it is used as a semaphore.
pub(super) const LIMIT: u32 = 4;
/// Largest number of permits that one request asks for.
pub(super) const PERMITS_MAX: u32 = 3;
/// Largest number of locks that one request asks for.
pub(super) const PARTS_MAX: usize = 3;

/// Returns a request for a lock in one mode.
pub(super) fn wish(path: String, mode: LockMode) -> LockWish {
    LockWish { path, mode, permits: None, permits_max: None }
}

/// Returns a request for some of the `limit` permits of a lock.
pub(super) fn lease(path: String, permits: u32, limit: u32) -> LockWish {
    LockWish { path, mode: LockMode::Semaphore, permits: Some(permits), permits_max: Some(limit) }
}

/// Returns the history value of a request for a lock.
pub(super) fn told(wish: &LockWish) -> Value {
    let mut value = json!({"lock": wish.path, "mode": wish.mode});
    if let (Some(permits), Some(limit)) = (wish.permits, wish.permits_max) {
        value["permits"] = permits.into();
        value["limit"] = limit.into();
    }
    value
}

/// Returns a request for one lock.
pub(super) fn one(wish: &LockWish) -> Asked {
    let value = told(wish);
    let mut call = Call::post(format!("/v1/locks{}?mode={}", wish.path, value["mode"].as_str().unwrap_or_default()));
    if let (Some(permits), Some(limit)) = (wish.permits, wish.permits_max) {
        call = call.query(&format!("permits={permits}&permits_max={limit}"));
    }
    (Tickets::One, value, call)
}

/// Returns a request for several locks. Two thirds of them have the policy `strict`, with which no
/// later request may overtake.
pub(super) fn several(locks: Vec<LockWish>, owner: &str, client: &mut Client) -> Asked {
    let policy = if client.rng.u8(..3) == 0 { Policy::Backfill } else { Policy::Strict };
    all(locks, owner, policy)
}

fn all(locks: Vec<LockWish>, owner: &str, policy: Policy) -> Asked {
    let value = json!({"locks": locks.iter().map(told).collect::<Value>(), "policy": policy});
    let body = AcquireAll { locks, policy, owner: owner.to_owned(), ..AcquireAll::default() };
    (Tickets::Several, value, Call::post("/v1/multilocks").json(&body))
}

/// Acquires once more each set of locks that were in use at the same time.
pub(super) async fn all_again(pool: &Pool, client: &mut Client) -> Result<(), String> {
    let session = client.open_session(SESSION_TIMEOUT_MS).await?;
    for set in pool.all_sets() {
        let locks = set.into_iter().map(|path| wish(path, LockMode::Exclusive)).collect();
        let (tickets, value, call) = all(locks, "", Policy::Strict);
        again(&session, tickets, value, &call, client).await;
    }
    Ok(())
}
