//! Changes of znodes below a root, and followers (watchers) that are told of the changes.

use std::time::Duration;

use jute::{AddWatchRequest, MultiOp, PathWatcher, Request, create_flags, event, watcher};
use serde_json::{Value, json};
use testkit::zookeeper::{Event, Failure, Reply, Zk};
use zlock_client::api::Events;

use super::{Door, Told, answer, any_version, at, create2, marked, set_data, told, zxid};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::http::Call;

/// Time for which events are collected before the node is asked for its zxid.
const GATHERED: Duration = Duration::from_millis(20);

/// Change of a znode.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Creates the znode.
    Create,
    /// Deletes the znode.
    Delete,
    /// Sets the znode's data to this text.
    Write(String),
}

/// Events up to a zxid, in the form of the history.
pub(crate) struct Batch {
    /// Zxid, kind and path of each event.
    pub(crate) events: Vec<Value>,
    /// Zxid up to which the events are complete.
    pub(crate) upto: u64,
}

/// Parameters of one poll.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poll {
    /// Zxid up to which the last poll told all events.
    pub(crate) since: u64,
    /// Time to wait for an event.
    pub(crate) wait: Duration,
    /// Whether the poll skips the events since the last poll, as the negative control does.
    pub(crate) careless: bool,
}

/// Position of a follower that uses a persistent recursive watch of ZooKeeper's protocol.
#[derive(Default)]
pub(crate) struct Following {
    connection: u64,
    /// Events that came already and are later than the zxid of the last answer.
    early: Vec<Event>,
}

/// Changes of znodes, and polls for them. Over HTTP each poll goes to a random node. Over
/// ZooKeeper's protocol a follower collects the events that have come, and asks the node for its
/// zxid. Events up to that zxid must have come before the answer. A follower that changes to
/// another node may miss events, so it begins anew.
impl Door {
    /// Returns the time that a poll waits for an event.
    pub(crate) fn wait(&self) -> Duration {
        Duration::from_millis(if self.follows_one_node() { 300 } else { 800 })
    }

    /// Tells whether a follower stays at one node, as over ZooKeeper's protocol. Such a follower
    /// begins anew after a failed poll, because it may have missed events. It gets the events of
    /// the znodes themselves, but none that tell a parent that its children have changed.
    pub(crate) fn follows_one_node(&self) -> bool {
        matches!(self, Door::ZooKeeper(_))
    }

    /// Makes a change. Over ZooKeeper's protocol a delete also sets the znode `marker`, to get a
    /// zxid.
    pub(crate) async fn change(&self, client: &mut Client, path: &str, change: Change, marker: &str) -> Answer {
        let Door::ZooKeeper(door) = self else {
            let url = format!("/v1/znodes{path}");
            return client
                .send(match change {
                    Change::Create => Call::post(url),
                    Change::Delete => Call::delete(url),
                    Change::Write(data) => Call::put(url).body(data),
                })
                .await;
        };
        let done = async {
            let zk = door.zk()?;
            match change {
                Change::Create => {
                    let (reply, created) = create2(zk, path, create_flags::PERSISTENT).await?;
                    Ok(((), reply, zxid(created.stat.czxid)))
                }
                Change::Delete => marked(zk, vec![MultiOp::Delete(any_version(path))], marker).await,
                Change::Write(data) => set_data(zk, path, &data, -1).await,
            }
        };
        answer(told(Effect::Write, done.await))
    }

    /// Begins to follow the changes below a root, or begins anew. Returns the zxid after which
    /// events will be told. Over ZooKeeper's protocol this is the node's zxid when it sets the
    /// watch.
    pub(crate) async fn reset(&mut self, client: &mut Client, root: &str, place: &mut Following) -> Told<u64> {
        let Door::ZooKeeper(door) = self else {
            let answer = client.send(Call::get(format!("/v1/znodes{root}"))).await;
            return match answer.zxid.filter(|_| answer.is_ok()) {
                Some(since) => Ok((since, answer)),
                None => Err(answer),
            };
        };
        let done = async {
            let zk = door.zk_mut()?;
            let reply = watch(zk, root).await?;
            place.connection = reply.connection;
            place.early = zk.take_events();
            place.early.retain(|event| event.place > reply.place && event.connection == reply.connection);
            Ok((reply.zxid, reply, None))
        };
        told(Effect::Read, done.await)
    }

    /// Asks for the events after `poll.since`.
    pub(crate) async fn poll(
        &mut self,
        client: &mut Client,
        root: &str,
        place: &mut Following,
        poll: Poll,
    ) -> Told<Batch> {
        if let Door::ZooKeeper(door) = self {
            let gathered = async { gather(door.zk_mut()?, root, place, poll).await };
            return told(Effect::Read, gathered.await.map(|(batch, reply)| (batch, reply, None)));
        }
        let Poll { since, wait, careless } = poll;
        let since = if careless { String::new() } else { format!("&since={since}") };
        let target = format!("/v1/znodes{root}?watch=subtree{since}&wait={}ms", wait.as_millis());
        let mut answer = client.send(Call::get(target).waiting(wait)).await;
        let Some(batch) = answer.read::<Events>(Effect::Read) else { return Err(answer) };
        let events = batch.events.iter().map(|event| json!([event.zxid, event.kind, event.path])).collect();
        Ok((Batch { events, upto: batch.upto }, answer))
    }
}

async fn watch(zk: &Zk, root: &str) -> Result<Reply, Failure> {
    let mode = watcher::MODE_PERSISTENT_RECURSIVE;
    zk.ask(Request::AddWatch(AddWatchRequest { path: root.into(), mode })).await
}

/// Returns the events up to the node's zxid, and the answer with that zxid.
async fn gather(zk: &mut Zk, root: &str, place: &mut Following, poll: Poll) -> Result<(Batch, Reply), Failure> {
    if poll.careless {
        watch(zk, root).await?;
    }
    let mut events = std::mem::take(&mut place.early);
    if events.is_empty() {
        events.extend(zk.event(poll.wait).await);
    }
    tokio::time::sleep(GATHERED).await;
    let reply = zk.ask(Request::Exists(at(root))).await?;
    events.extend(zk.take_events());
    if reply.connection != place.connection {
        return Err(Failure::NotSent("events may be missing: it was between two nodes".into()));
    }
    events.retain(|event| event.connection == reply.connection);
    if let Some(event) = events.iter().find(|event| event.zxid == 0) {
        return Err(Failure::Wrong(format!("an event without a zxid: {event:?}")));
    }
    // An event that came before the answer may have a later zxid; it is kept for the next poll.
    // An event that comes after the answer must have a later zxid.
    let (told, early): (Vec<Event>, Vec<Event>) =
        events.into_iter().partition(|event| event.place < reply.place && event.zxid <= reply.zxid);
    place.early = early;
    if poll.careless {
        let watch = PathWatcher { path: root.into(), kind: watcher::PERSISTENT_RECURSIVE };
        zk.ask(Request::RemoveWatches(watch)).await?;
    }
    let events = told.iter().map(|event| json!([event.zxid, kind(event), event.path])).collect();
    Ok((Batch { events, upto: reply.zxid }, reply))
}

fn kind(event: &Event) -> &'static str {
    match event.kind {
        event::NODE_CREATED => "created",
        event::NODE_DELETED => "deleted",
        event::NODE_DATA_CHANGED => "data_changed",
        _ => "children_changed",
    }
}
