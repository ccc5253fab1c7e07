//! `queue`: ask for a lock, wait for it over any node, give it back.

use std::time::Duration;

use protocol::Ticket;
use serde_json::json;

use super::owner::Owner;
use super::{Work, epoch, make_root};
use crate::answer::{Answer, Effect};
use crate::client::{Client, Session};
use crate::http::Call;

const WAIT: Duration = Duration::from_millis(500);
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

/// A worker and its place in a queue.
#[derive(Default)]
pub struct Waiter {
    owner: Owner,
    place: Option<Place>,
}

struct Place {
    lock: String,
    ticket: String,
    held: bool,
}

impl Waiter {
    fn after(&mut self, session: Session, answer: &Answer, client: &mut Client) {
        if !self.owner.after(session, answer, client) {
            self.place = None;
        }
    }

    async fn enqueue(&mut self, session: Session, lock: String, client: &mut Client) {
        let mut value = json!({"lock": lock, "owner": session.id});
        let call = Call::post(format!("/v1/locks{lock}?wait=0&keep=true")).session(&session.key);
        let mut place = None;
        let (answer, _) = client
            .operate("enqueue", value.clone(), call, |answer| {
                let (ticket, held) = match answer.read(Effect::Write)? {
                    Ticket::Held { ticket, fencing_token, .. } => {
                        value["token"] = fencing_token.into();
                        (ticket, true)
                    }
                    Ticket::Waiting { ticket, .. } => (ticket, false),
                };
                value["ticket"] = ticket.clone().into();
                place = Some(Place { lock, ticket, held });
                Some(value)
            })
            .await;
        self.place = place;
        self.after(session, &answer, client);
    }

    async fn wait(&mut self, session: Session, mut place: Place, client: &mut Client) {
        let mut value = json!({"lock": place.lock, "owner": session.id});
        let target = format!("/v1/tickets{}?wait={}ms", place.ticket, WAIT.as_millis());
        let call = Call::get(target).session(&session.key).waiting(WAIT);
        let (answer, _) = client
            .operate("await", value.clone(), call, |answer| {
                if let Ticket::Held { fencing_token, .. } = answer.read(Effect::Read)? {
                    value["token"] = fencing_token.into();
                    place.held = true;
                }
                Some(value)
            })
            .await;
        if !answer.is_problem("ticket-gone") {
            self.place = Some(place);
        }
        self.after(session, &answer, client);
    }

    async fn release(&mut self, session: Session, place: Place, client: &mut Client) {
        let value = json!({"lock": place.lock, "owner": session.id});
        let call = Call::delete(format!("/v1/tickets{}", place.ticket)).session(&session.key);
        let (answer, _) = client.operate("release", value, call, |_| None).await;
        if !answer.is_ok() && !answer.is_problem("no-node") && !answer.is_problem("ticket-gone") {
            self.place = Some(place);
        }
        self.after(session, &answer, client);
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
        match worker.place.take() {
            Some(place) if place.held || leaves => worker.release(session, place, client).await,
            Some(place) => worker.wait(session, place, client).await,
            None => {
                let lock = format!("{}/queue/{}-{}", super::ROOT, epoch(client, EPOCH), client.rng.u64(..self.count));
                worker.enqueue(session, lock, client).await;
            }
        }
        Ok(())
    }
}
