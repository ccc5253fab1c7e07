//! HTTP client of all nodes. It sends each request once and judges the answer.

use std::time::Duration;

pub use testkit::http::Call;
use testkit::http::{Client, NoAnswer, Patience};

use crate::answer::{Answer, Effect, judge};

/// Time limits of a request. An answer counts as missing after 1.5 s, except that of a long-poll.
/// A node on this machine or near it accepts a connection at once. Nodes close idle connections
/// after some seconds, so a connection that was idle for 2 s is not used again.
const PATIENCE: Patience = Patience {
    answer: Duration::from_millis(1_500),
    connect: Duration::from_millis(1_000),
    idle: Duration::from_secs(2),
};

/// Connections of one client to all nodes.
pub struct Http {
    clients: Vec<Client>,
}

impl Http {
    /// Returns a client of these nodes (`host:port` each). Nodes are numbered from 1.
    pub fn new(endpoints: &[String]) -> Http {
        Http { clients: endpoints.iter().map(|endpoint| Client::with_patience(endpoint, PATIENCE)).collect() }
    }

    /// Number of nodes.
    pub fn node_count(&self) -> u64 {
        self.clients.len() as u64
    }

    /// Sends a request once, to this node, and judges the answer.
    pub async fn send(&mut self, node: u64, call: Call) -> Answer {
        let effect = if call.only_looks() { Effect::Read } else { Effect::Write };
        judge(effect, self.client(node).send(call).await, node)
    }

    /// Sends a request and closes the connection after the time `after`, without reading the
    /// answer.
    pub async fn send_and_hang_up(&mut self, node: u64, call: Call, after: Duration) -> Answer {
        let effect = if call.only_looks() { Effect::Read } else { Effect::Write };
        let sent = self.client(node).send_and_hang_up(call, after).await;
        judge(effect, sent.and(Err(NoAnswer::Broken("hung up".into()))), node)
    }

    fn client(&mut self, node: u64) -> &mut Client {
        &mut self.clients[(node - 1) as usize]
    }
}
