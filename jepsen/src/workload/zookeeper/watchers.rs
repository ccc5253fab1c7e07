//! `watch`: some change znodes below one root, others follow the root with a persistent recursive watch.
//!
//! A follower polls: it takes the events that came, and asks the node how far it is. Events of changes up to there must have
//! come before that answer. While a follower was between two nodes it was told nothing, so it begins anew.

use std::time::Duration;

use jute::{AddWatchRequest, MultiOp, PathWatcher, Request, Stat, create_flags, event, watcher};
use serde_json::{Value, json};

use super::{Seat, any_version, at, create2, end, marked, set, zxid};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::workload::{ROOT, Work, make_root};
use testkit::zookeeper::{Event, Failure, Reply, Zk};

/// Znodes that come, change and go.
const NODES: u64 = 12;
const WAIT: Duration = Duration::from_millis(300);
/// Events of a burst that are gathered before the node is asked.
const GATHERED: Duration = Duration::from_millis(20);

/// One root with watchers.
pub struct Watchers {
    doors: Vec<String>,
    /// Followers let their watch go between two polls: the negative control.
    lets_go: bool,
    watchers: usize,
}

impl Watchers {
    /// A third of the workers watch, two at least. With `negative`, nothing is watched between two polls, so lost events must be
    /// found.
    pub fn new(doors: Vec<String>, concurrency: usize, negative: bool) -> Watchers {
        let watchers = (concurrency / 3).max(2).min(concurrency.saturating_sub(1));
        Watchers { doors, lets_go: negative, watchers }
    }

    fn root() -> String {
        format!("{ROOT}/watch")
    }

    /// Outside of what is watched.
    fn marker() -> String {
        format!("{ROOT}/watch-marker")
    }

    async fn change(&self, client: &mut Client, zk: &Zk) -> Answer {
        let path = format!("{}/n{}", Self::root(), client.rng.u64(..NODES));
        let value = json!({"path": path});
        let (f, result) = match client.rng.u8(..4) {
            0 => {
                client.invoke("create", value.clone());
                let created = create2(zk, &path, create_flags::PERSISTENT).await;
                ("create", created.map(|(reply, created)| (reply, created.stat.czxid)))
            }
            1 => {
                client.invoke("delete", value.clone());
                let deleted = marked(zk, vec![MultiOp::Delete(any_version(&path))], &Self::marker()).await;
                ("delete", deleted.map(|(reply, stat)| (reply, stat.mzxid)))
            }
            _ => {
                client.invoke("write", value.clone());
                let data = client.rng.u64(..).to_string();
                let reply = zk.ask(Request::SetData(set(&path, &data, -1))).await;
                ("write", reply.and_then(|reply| reply.read().map(|stat: Stat| (reply, stat.mzxid))))
            }
        };
        let result = result.map(|(reply, at)| (reply, value.clone(), zxid(at)));
        end(client, f, value, Effect::Write, result)
    }

    async fn watch(zk: &Zk) -> Result<Reply, Failure> {
        let mode = watcher::MODE_PERSISTENT_RECURSIVE;
        zk.ask(Request::AddWatch(AddWatchRequest { path: Self::root(), mode })).await
    }

    /// Begins, or begins anew, at what the node has when it sets the watch.
    async fn reset(&self, follower: &mut Follower, client: &mut Client, zk: &mut Zk) -> Answer {
        let value = json!({"watcher": follower.watcher});
        client.invoke("reset", value.clone());
        let result = Self::watch(zk).await.map(|reply| {
            follower.since = reply.zxid;
            follower.connection = reply.connection;
            follower.early = zk.take_events();
            follower.early.retain(|event| event.place > reply.place && event.connection == reply.connection);
            (reply, json!({"watcher": follower.watcher, "since": follower.since}), None)
        });
        end(client, "reset", value, Effect::Read, result)
    }

    async fn poll(&self, follower: &mut Follower, client: &mut Client, zk: &mut Zk) -> Answer {
        let (watcher, since) = (follower.watcher, follower.since);
        let value = json!({"watcher": watcher, "since": since});
        client.invoke("poll", value.clone());
        let result = self.gather(follower, zk).await.map(|(reply, events)| {
            let (upto, events) = (reply.zxid, events.iter().map(told).collect::<Vec<Value>>());
            follower.since = upto;
            (reply, json!({"watcher": watcher, "since": since, "events": events, "upto": upto}), None)
        });
        if result.is_err() {
            follower.since = 0;
        }
        end(client, "poll", value, Effect::Read, result)
    }

    /// The events up to what the node has, and the answer that says how far that is.
    async fn gather(&self, follower: &mut Follower, zk: &mut Zk) -> Result<(Reply, Vec<Event>), Failure> {
        if self.lets_go {
            Self::watch(zk).await?;
        }
        let mut events = std::mem::take(&mut follower.early);
        if events.is_empty() {
            events.extend(zk.event(WAIT).await);
        }
        tokio::time::sleep(GATHERED).await;
        let reply = zk.ask(Request::Exists(at(&Self::root()))).await?;
        events.extend(zk.take_events());
        if reply.connection != follower.connection {
            return Err(Failure::NotSent("events may be missing: it was between two nodes".into()));
        }
        events.retain(|event| event.connection == reply.connection);
        if let Some(event) = events.iter().find(|event| event.zxid == 0) {
            return Err(Failure::Wrong(format!("an event without a zxid: {event:?}")));
        }
        // What came before the answer may be later than it, and is told with the next one. What came behind it must be.
        let (told, early) = events.into_iter().partition(|event| event.place < reply.place && event.zxid <= reply.zxid);
        follower.early = early;
        if self.lets_go {
            let watch = PathWatcher { path: Self::root(), kind: watcher::PERSISTENT_RECURSIVE };
            zk.ask(Request::RemoveWatches(watch)).await?;
        }
        Ok((reply, told))
    }
}

fn told(event: &Event) -> Value {
    let kind = match event.kind {
        event::NODE_CREATED => "created",
        event::NODE_DELETED => "deleted",
        event::NODE_DATA_CHANGED => "data_changed",
        _ => "children_changed",
    };
    json!([event.zxid, kind, event.path])
}

/// A watcher: what it is called, and where it is.
pub struct Follower {
    watcher: u64,
    /// 0 when it has to begin anew.
    since: u64,
    connection: u64,
    /// Events that are later than the last answer.
    early: Vec<Event>,
}

impl Work for Watchers {
    /// Watchers follow, the others change.
    type Worker = (Seat, Option<Follower>);

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "watch").await?;
        client.ensure(&Self::marker(), "").await
    }

    fn worker(&self, index: usize) -> (Seat, Option<Follower>) {
        let follower = Follower { watcher: index as u64, since: 0, connection: 0, early: Vec::new() };
        (Seat::default(), (index < self.watchers).then_some(follower))
    }

    async fn step(&self, (seat, follower): &mut (Seat, Option<Follower>), client: &mut Client) -> Result<(), String> {
        let zk = seat.zk(&self.doors, client).await?;
        let answer = match follower {
            None => self.change(client, zk).await,
            Some(follower) if follower.since == 0 => self.reset(follower, client, zk).await,
            Some(follower) => self.poll(follower, client, zk).await,
        };
        seat.after(&answer);
        if let Some(follower) = follower.as_mut().filter(|_| super::is_over(&answer)) {
            follower.since = 0;
        }
        Ok(())
    }

    async fn settle(&self, (mut seat, follower): (Seat, Option<Follower>), client: &mut Client) -> Result<(), String> {
        let Some(mut follower) = follower.filter(|follower| follower.since > 0) else { return Ok(()) };
        let Some(zk) = &mut seat.zk else { return Ok(()) };
        // Nothing changes any more. The first poll may still find what was left, the second must have all of it.
        for _ in 0..2 {
            if follower.since > 0 {
                self.poll(&mut follower, client, zk).await;
            }
        }
        Ok(())
    }
}
