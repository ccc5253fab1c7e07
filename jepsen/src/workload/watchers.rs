//! `watch`: some change znodes below one root, others follow the root over any node.

use std::time::Duration;

use serde_json::{Value, json};
use zlock_client::api::Events;

use super::{Work, make_root};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::http::Call;

/// Znodes that come, change and go.
const NODES: u64 = 12;
const WAIT: Duration = Duration::from_millis(800);

/// One root with watchers.
pub struct Watchers {
    /// Polls go on from "now" instead of from where the last one ended: the negative control.
    from_now: bool,
    watchers: usize,
}

impl Watchers {
    /// A third of the workers watch, two at least. With `negative`, polls begin at "now", so lost events must be found.
    pub fn new(concurrency: usize, negative: bool) -> Watchers {
        Watchers { from_now: negative, watchers: (concurrency / 3).max(2).min(concurrency.saturating_sub(1)) }
    }

    fn root() -> String {
        format!("{}/watch", super::ROOT)
    }

    async fn change(&self, client: &mut Client) {
        let path = format!("{}/n{}", Self::root(), client.rng.u64(..NODES));
        let url = format!("/v1/znodes{path}");
        let (f, call) = match client.rng.u8(..4) {
            0 => ("create", Call::post(url)),
            1 => ("delete", Call::delete(url)),
            _ => ("write", Call::put(url).body(client.rng.u64(..).to_string())),
        };
        client.operate(f, json!({"path": path}), call, |_| None).await;
    }

    async fn poll(&self, follower: &mut Follower, wait: Duration, client: &mut Client) -> Option<usize> {
        let Follower { watcher, since, gone } = follower;
        let node = client.any_node();
        let since_part = if self.from_now { String::new() } else { format!("&since={since}") };
        let target = format!("/v1/znodes{}?watch=subtree{since_part}&wait={}ms", Self::root(), wait.as_millis());
        let value = json!({"watcher": watcher, "since": since});
        client.invoke("poll", value.clone());
        let mut answer = client.http.send(node, Call::get(target).waiting(wait)).await;
        let Some(batch) = answer.read::<Events>(Effect::Read) else {
            *gone = if answer.is_problem("events-gone") { *gone + 1 } else { 0 };
            client.end_as(&answer, "poll", value);
            return None;
        };
        *gone = 0;
        let events = batch.events.iter().map(|event| json!([event.zxid, event.kind, event.path]));
        let events: Vec<Value> = events.collect();
        let count = events.len();
        let done = json!({"watcher": watcher, "since": since, "events": events, "upto": batch.upto});
        *since = batch.upto;
        client.end_as(&answer, "poll", done);
        Some(count)
    }

    /// Begins, or begins anew after the events have gone, at the present state.
    async fn reset(&self, follower: &mut Follower, client: &mut Client) {
        let value = json!({"watcher": follower.watcher});
        let mut since = None;
        let result = |answer: &mut Answer| {
            since = answer.zxid;
            Some(json!({"watcher": follower.watcher, "since": answer.zxid}))
        };
        client.operate("reset", value, Call::get(format!("/v1/znodes{}", Self::root())), result).await;
        if let Some(since) = since {
            *follower = Follower { since, gone: 0, ..*follower };
        }
    }
}

/// A watcher: what it is called, where it is, and how many nodes in a row had no events from there on.
pub struct Follower {
    watcher: u64,
    since: u64,
    gone: u64,
}

impl Work for Watchers {
    /// Watchers follow, the others change.
    type Worker = Option<Follower>;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "watch").await.map(|_| ())
    }

    fn worker(&self, index: usize) -> Option<Follower> {
        (index < self.watchers).then_some(Follower { watcher: index as u64, since: 0, gone: 0 })
    }

    async fn step(&self, worker: &mut Option<Follower>, client: &mut Client) -> Result<(), String> {
        let Some(follower) = worker else {
            self.change(client).await;
            return Ok(());
        };
        // A node that was restarted knows no old events; another may. Only when none does the watcher begins anew.
        if follower.since == 0 || follower.gone > 4 * client.http.node_count() {
            self.reset(follower, client).await;
        } else {
            self.poll(follower, WAIT, client).await;
        }
        Ok(())
    }

    async fn settle(&self, worker: Option<Follower>, client: &mut Client) -> Result<(), String> {
        let Some(mut follower) = worker.filter(|follower| follower.since > 0) else { return Ok(()) };
        let answer = client.insist(Call::get(format!("/v1/znodes{}", Self::root())), |_| false).await?;
        let target = answer.zxid.unwrap_or(0);
        while follower.since < target && follower.gone <= 4 * client.http.node_count() {
            self.poll(&mut follower, Duration::from_millis(200), client).await;
        }
        Ok(())
    }
}
