//! Clients of the workload `watch`: some change znodes below one root, others watch the root.

use std::time::Duration;

use serde_json::json;

use super::door::{Change, Door, Doors, Following, Poll};
use super::{ROOT, Work};
use crate::answer::Answer;
use crate::client::Client;
use crate::http::Call;

/// Number of znodes that are created, changed and deleted.
const NODES: u64 = 12;
/// Longest time that a poll waits at the end of a run, when no client makes changes.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// The workload `watch`.
pub struct Watchers {
    doors: Doors,
    /// True for the negative control, which watches nothing between two polls.
    careless: bool,
    watchers: usize,
}

/// A worker. With a `follower` it watches the root, otherwise it changes znodes.
#[derive(Default)]
pub struct Worker {
    door: Door,
    follower: Option<Follower>,
}

/// A watcher: its number in the history, its position, and `gone`, the number of answers in a row
/// that said that the events after this position are gone.
struct Follower {
    watcher: u64,
    /// Zxid up to which the watcher was told all events; 0 when it must begin anew.
    since: u64,
    gone: u64,
    place: Following,
}

fn root() -> String {
    format!("{ROOT}/watch")
}

/// Returns the path of a znode outside of the watched root. A delete over ZooKeeper's protocol also
/// sets this znode, because the result of a delete has no zxid.
fn marker() -> String {
    format!("{ROOT}/watch-marker")
}

impl Watchers {
    /// Returns a workload in which a third of the workers, but at least two, are watchers. With
    /// `negative`, they watch nothing between two polls, so the checker must find lost events.
    pub fn new(doors: Doors, concurrency: usize, negative: bool) -> Watchers {
        let watchers = (concurrency / 3).max(2).min(concurrency.saturating_sub(1));
        Watchers { doors, careless: negative, watchers }
    }

    async fn change(&self, door: &Door, client: &mut Client) -> Answer {
        let path = format!("{}/n{}", root(), client.rng.u64(..NODES));
        let (f, change) = match client.rng.u8(..4) {
            0 => ("create", Change::Create),
            1 => ("delete", Change::Delete),
            _ => ("write", Change::Write(client.rng.u64(..).to_string())),
        };
        let value = json!({"path": path});
        client.invoke(f, value.clone());
        let answer = door.change(client, &path, change, &marker()).await;
        client.end_as(&answer, f, value);
        answer
    }

    async fn poll(&self, door: &mut Door, follower: &mut Follower, wait: Duration, client: &mut Client) -> Answer {
        let (watcher, since) = (follower.watcher, follower.since);
        let value = json!({"watcher": watcher, "since": since, "children": !door.follows_one_node()});
        client.invoke("poll", value.clone());
        let poll = Poll { since, wait, careless: self.careless };
        match door.poll(client, &root(), &mut follower.place, poll).await {
            Ok((batch, answer)) => {
                (follower.since, follower.gone) = (batch.upto, 0);
                let mut done = value;
                done["events"] = batch.events.into();
                done["upto"] = batch.upto.into();
                client.end_as(&answer, "poll", done);
                answer
            }
            Err(answer) => {
                // A restarted node has no old events, but other nodes may have them. The watcher
                // begins anew only after many answers that the events are gone.
                follower.gone = if answer.is_problem("events-gone") { follower.gone + 1 } else { 0 };
                if door.follows_one_node() || follower.gone > 4 * client.http.members().len() as u64 {
                    follower.since = 0;
                }
                client.end_as(&answer, "poll", value);
                answer
            }
        }
    }

    /// Makes the operation `reset`: the watcher begins at the present state, also when the events
    /// after its position are gone.
    async fn reset(&self, door: &mut Door, follower: &mut Follower, client: &mut Client) -> Answer {
        let mut value = json!({"watcher": follower.watcher});
        client.invoke("reset", value.clone());
        let answer = match door.reset(client, &root(), &mut follower.place).await {
            Ok((since, answer)) => {
                (follower.since, follower.gone) = (since, 0);
                value["since"] = since.into();
                answer
            }
            Err(answer) => answer,
        };
        client.end_as(&answer, "reset", value);
        answer
    }
}

impl Work for Watchers {
    type Worker = Worker;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        client.ensure(&marker(), "").await
    }

    fn worker(&self, index: usize) -> Worker {
        let follower = Follower { watcher: index as u64, since: 0, gone: 0, place: Following::default() };
        Worker { door: self.doors.of_worker(index), follower: (index < self.watchers).then_some(follower) }
    }

    async fn step(&self, Worker { door, follower }: &mut Worker, client: &mut Client) -> Result<(), String> {
        door.enter(client).await?;
        let answer = match follower {
            None => self.change(door, client).await,
            Some(follower) if follower.since == 0 => self.reset(door, follower, client).await,
            Some(follower) => {
                let wait = door.wait();
                self.poll(door, follower, wait, client).await
            }
        };
        door.after(&answer);
        Ok(())
    }

    async fn settle(&self, Worker { mut door, follower }: Worker, client: &mut Client) -> Result<(), String> {
        let Some(mut follower) = follower.filter(|follower| follower.since > 0) else { return Ok(()) };
        let answer = client.insist(Call::get(format!("/v1/znodes{}", root())), |_| false).await?;
        let target = answer.zxid.unwrap_or(0);
        while follower.since > 0 && follower.since < target {
            self.poll(&mut door, &mut follower, LAST_WAIT, client).await;
        }
        Ok(())
    }
}
