//! HTTP client of all nodes. It sends each request once and judges the answer.

use std::time::Duration;

pub use testkit::http::Call;
use testkit::http::{Client, NoAnswer, Patience};

use crate::answer::{Answer, Effect, judge};
use crate::endpoints::Endpoints;

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
    endpoints: Endpoints,
}

impl Http {
    /// Returns a client of these nodes.
    pub fn new(endpoints: &Endpoints) -> Http {
        let clients = endpoints.addrs().iter().map(|addr| Client::with_patience(addr, PATIENCE)).collect();
        Http { clients, endpoints: endpoints.clone() }
    }

    /// Returns the ids of the present members, in order.
    pub fn members(&self) -> Vec<u64> {
        self.endpoints.members()
    }

    /// Returns the id of a random present member; 1 if there is none.
    pub fn any(&self, rng: &mut fastrand::Rng) -> u64 {
        rng.choice(self.members()).unwrap_or(1)
    }

    /// Returns the id of the next present member after `node`; after the last one, of the first.
    pub fn after(&self, node: u64) -> u64 {
        let members = self.members();
        members.iter().find(|id| **id > node).or(members.first()).copied().unwrap_or(1)
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
