//! Clients of the workload `election`. Candidates campaign, proclaim values, write to a znode under
//! their token, pause for longer than their session's timeout, and resign. Observers follow the
//! leader and its proclamations.

use std::time::Duration;

use serde_json::json;
use zlock_client::api::Election;

use super::pool::Pool;
use super::waiter::{Place, Tickets, Waiter, owned};
use super::{Work, guarded};
use crate::answer::Effect;
use crate::client::{Client, Session};
use crate::http::Call;

/// Timeout of a candidate's session, in milliseconds: the shortest that zlock allows. A client's
/// pauses are longer than this timeout.
const LEADER_TIMEOUT_MS: u64 = 2_000;
/// Longest time that an observer's request waits for a change.
const WAIT: Duration = Duration::from_millis(1_000);
/// Number of actions of a leader before it resigns.
const DEEDS: u32 = 4;
/// Share of a leader's actions with a pause of the client: one in this many.
const PAUSE_ONE_IN: u32 = 40;
/// Share of observers among the workers: one in this many.
const OBSERVER_ONE_IN: usize = 4;

/// The workload `election`, with the elections in use.
pub struct Elections {
    pool: Pool,
}

/// A worker: a candidate, which stands for election, or an observer.
#[derive(Default)]
pub struct Participant {
    /// State of an observer; `None` for a candidate.
    observer: Option<Observer>,
    waiter: Waiter,
    /// Number of actions that a candidate still takes as the leader.
    deeds_left: u32,
}

/// State of a worker that observes an election: the election's path, and the position `upto` of the
/// last answer, which the next request names.
#[derive(Default)]
struct Observer {
    election: String,
    upto: Option<String>,
}

impl Elections {
    /// Returns the workload for this number of workers, with so few elections that each has several
    /// candidates.
    pub fn new(concurrency: usize) -> Elections {
        Elections { pool: Pool::new("election", concurrency / 4) }
    }

    async fn campaign(&self, candidate: &mut Participant, session: Session, client: &mut Client) -> Result<(), String> {
        let lock = self.pool.take_guarded(client).await?;
        candidate.deeds_left = DEEDS;
        let call = Call::post(format!("/v1/elections{lock}?label=candidate"));
        candidate.waiter.enqueue(session, (Tickets::One, json!({"lock": lock}), call), client).await;
        Ok(())
    }

    /// Makes one operation of a leader: proclaims a number, or appends it to the list in the
    /// guarded znode. A candidate that is told that it does not lead gives up its place, to
    /// campaign again.
    async fn lead(&self, candidate: &mut Participant, session: Session, place: Place, client: &mut Client) {
        candidate.deeds_left -= 1;
        let element = self.pool.fresh();
        let mut value = owned(&place.value, &session);
        value["element"] = element.into();
        let token = value["token"].as_u64();
        let answer = if client.rng.bool() {
            guarded::append(value, token, &session, PAUSE_ONE_IN, client).await
        } else {
            guarded::maybe_pause(&session, PAUSE_ONE_IN, client).await;
            let (lock, token) = (place.lock(), token.unwrap_or(0));
            let call = Call::put(format!("/v1/elections{lock}?ticket={}&fencing_token={token}", place.ticket));
            let call = call.body(element.to_string()).session(&session.key);
            client.operate("proclaim", value, call, |_| None).await
        };
        if !answer.is_problem("lock-not-held") && !answer.is_problem("ticket-gone") {
            candidate.waiter.place = Some(place);
        }
        candidate.waiter.after(session, &answer, client);
    }

    /// Asks a random node for the leader, and waits there for a change since the last answer.
    async fn observe(&self, observer: &mut Observer, client: &mut Client) {
        let election = self.pool.any(client);
        // An observer stays with one election until the end of the period in which the election is
        // in use.
        let of_epoch = |name: &str| name.rsplit_once('-').map(|(epoch, _)| epoch.to_owned());
        if of_epoch(&election) != of_epoch(&observer.election) {
            *observer = Observer { election, upto: None };
        }
        let lock = observer.election.clone();
        let value = json!({"lock": lock, "since": observer.upto});
        let mut call = Call::get(format!("/v1/elections{lock}")).waiting(WAIT);
        if let Some(upto) = &observer.upto {
            call = call.query(&format!("since={upto}")).query(&format!("wait={}ms", WAIT.as_millis()));
        }
        let mut next = None;
        let answer = client
            .operate("observe", value.clone(), call, |answer| {
                let election: Election = answer.read(Effect::Read)?;
                let mut seen = value.clone();
                seen["upto"] = election.upto.clone().into();
                if let Some(leader) = &election.leader {
                    seen["leader"] = leader.session.into();
                    seen["leads_with"] = leader.fencing_token.into();
                    seen["said"] = leader.data.clone().into();
                }
                next = Some(election.upto);
                Some(seen)
            })
            .await;
        if answer.is_ok() {
            observer.upto = next;
        }
    }
}

impl Work for Elections {
    type Worker = Participant;

    fn worker(&self, index: usize) -> Participant {
        let observer = (index % OBSERVER_ONE_IN == OBSERVER_ONE_IN - 1).then(Observer::default);
        Participant { observer, waiter: Waiter::with_timeout(LEADER_TIMEOUT_MS), deeds_left: 0 }
    }

    async fn step(&self, candidate: &mut Participant, client: &mut Client) -> Result<(), String> {
        if let Some(observer) = &mut candidate.observer {
            self.observe(observer, client).await;
            return Ok(());
        }
        let waiter = &mut candidate.waiter;
        let Some(session) = waiter.owner.session(client).await? else { return Ok(()) };
        let leaves = client.rng.u8(..20) == 0;
        if let Some(place) = waiter.place.take_if(|place| place.held && candidate.deeds_left > 0) {
            self.lead(candidate, session, place, client).await;
        } else if let Some(session) = waiter.step(leaves, session, client).await {
            self.campaign(candidate, session, client).await?;
        }
        Ok(())
    }

    async fn settle(&self, worker: Participant, client: &mut Client) -> Result<(), String> {
        worker.waiter.owner.settle(client).await
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        self.pool.read_and_acquire_again(client, "elections").await
    }
}
