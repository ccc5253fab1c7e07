//! Changes below a root, and what followers of it are told.

use std::time::Duration;

use jute::{AddWatchRequest, MultiOp, PathWatcher, Request, create_flags, event, watcher};
use serde_json::{Value, json};
use testkit::zookeeper::{Event, Failure, Reply, Zk};
use zlock_client::api::Events;

use super::{Door, Told, answer, any_version, at, create2, marked, set_data, told, zxid};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::http::Call;

/// Events of a burst that are gathered before the node is asked.
const GATHERED: Duration = Duration::from_millis(20);

/// Change of a znode.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The znode is created.
    Create,
    /// The znode is deleted.
    Delete,
    /// This text becomes the znode's data.
    Write(String),
}

/// Events of a stretch of history, as the history has them.
pub(crate) struct Batch {
    /// Zxid, kind and path of each.
    pub(crate) events: Vec<Value>,
    /// Zxid at which the stretch ends.
    pub(crate) upto: u64,
}

/// One poll.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poll {
    /// Zxid at which the last poll ended.
    pub(crate) since: u64,
    /// Time to wait for an event.
    pub(crate) wait: Duration,
    /// Whether the poll forgets what happened since the last one: the negative control.
    pub(crate) careless: bool,
}

/// Position of a follower that has a persistent recursive watch.
#[derive(Default)]
pub(crate) struct Following {
    connection: u64,
    /// Events that are later than the last answer.
    early: Vec<Event>,
}

/// Over HTTP each poll goes to any node. Over ZooKeeper's protocol a follower takes the events that
/// came, and asks the node how far it is. Events of changes up to there must have come before that
/// answer. While a follower was between two nodes it was told nothing, so it begins anew.
impl Door {
    /// Time that a poll waits for an event.
    pub(crate) fn wait(&self) -> Duration {
        Duration::from_millis(if self.follows_one_node() { 300 } else { 800 })
    }

    /// Tells whether a follower that has no answer has missed events, and begins anew. Such a
    /// follower is told of each child, as by ZooKeeper, and not that the root's children have
    /// changed.
    pub(crate) fn follows_one_node(&self) -> bool {
        matches!(self, Door::ZooKeeper(_))
    }

    /// Makes a change. `marker` is a znode that may be set with it.
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

    /// Begins to follow, or begins anew: where. Over ZooKeeper's protocol that is what the node has
    /// when it sets the watch.
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

    /// Asks for the events behind `since`. A `careless` follower does not see what happens between
    /// two polls.
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

/// The events up to what the node has, and the answer that says how far that is.
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
    // Events that came before the answer may be later than it, and are told with the next one.
    // Those that came behind it must be later.
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
