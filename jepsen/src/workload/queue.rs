//! `queue`: ask for a lock, wait for it over any node, give it back.

use std::time::Duration;

use serde_json::json;

use super::waiter::{Tickets, Waiter};
use super::{Work, epoch, make_root};
use crate::client::Client;
use crate::http::Call;

const EPOCH: Duration = Duration::from_secs(15);

/// Queues that many workers stand in.
pub struct Queue {
    count: u64,
}

impl Queue {
    /// Queues for so many workers: few enough to be long.
    pub fn new(concurrency: usize) -> Queue {
        Queue { count: (concurrency as u64 / 6).max(1) }
    }
}

impl Work for Queue {
    type Worker = Waiter;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "queue").await.map(|_| ())
    }

    fn worker(&self, _index: usize) -> Waiter {
        Waiter::default()
    }

    async fn step(&self, worker: &mut Waiter, client: &mut Client) -> Result<(), String> {
        let Some(session) = worker.owner.session(client).await? else { return Ok(()) };
        // Some leave the queue before their turn has come.
        let leaves = client.rng.u8(..20) == 0;
        if let Some(session) = worker.step(leaves, session, client).await {
            let lock = format!("{}/queue/{}-{}", super::ROOT, epoch(client, EPOCH), client.rng.u64(..self.count));
            let call = Call::post(format!("/v1/locks{lock}?wait=0&keep=true"));
            worker.enqueue(session, Tickets::One, json!({"lock": lock}), call, client).await;
        }
        Ok(())
    }
}
