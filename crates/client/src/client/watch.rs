//! Events, as a stream that can be taken up where it was left.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::api::{EventInfo, Events, ProblemType};
use futures_util::Stream;

use crate::Error;
use crate::client::Client;
use crate::client::call::{Target, ZNODES};

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// The znode: created, deleted, data changed.
    Data,
    /// The znode: created, deleted.
    Exists,
    /// The znode's children; and the znode: created, deleted.
    Children,
    /// Everything at and below the path.
    Subtree,
}

impl fmt::Display for WatchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WatchKind::Data => "data",
            WatchKind::Exists => "exists",
            WatchKind::Children => "children",
            WatchKind::Subtree => "subtree",
        })
    }
}

impl Client {
    /// Events about a path, from the moment of the first call of [`Watcher::next`], or of
    /// [`Watcher::start`]. To miss nothing after a read, continue from it: [`Watcher::resume_from`]
    /// with the read's zxid.
    pub fn watch(&self, path: impl Into<String>, kind: WatchKind) -> Watcher {
        Watcher { client: self.clone(), path: path.into(), kind, position: None, events: VecDeque::new() }
    }

    /// Returns when something has happened after a zxid, or may have and is no longer known. What
    /// it was says a look.
    pub(crate) async fn changed_since(&self, path: &str, kind: WatchKind, zxid: u64) -> Result<(), Error> {
        let mut watcher = self.watch(path, kind);
        watcher.resume_from(zxid);
        match watcher.next().await {
            Err(error) if error.code() != Some(ProblemType::EventsGone) => Err(error),
            _ => Ok(()),
        }
    }
}

/// A watch that loses nothing: it asks on from where the last answer ended, at whichever node
/// answers.
#[derive(Clone, Debug)]
pub struct Watcher {
    client: Client,
    path: String,
    kind: WatchKind,
    /// Everything up to here was in an answer.
    position: Option<u64>,
    /// Events of the last answer that no caller took yet.
    events: VecDeque<EventInfo>,
}

impl Watcher {
    /// Continues after a zxid: of a read, of a write, or [`Watcher::position`] of an earlier
    /// watcher, of this program or of one that ran before.
    pub fn resume_from(&mut self, zxid: u64) {
        self.events.clear();
        self.position = Some(zxid);
    }

    /// The zxid up to which every event was taken. `None` before the watch has begun.
    pub fn position(&self) -> Option<u64> {
        match self.events.front() {
            // Events of one zxid come together; those that were not taken count as not seen.
            Some(event) => Some(event.zxid - 1),
            None => self.position,
        }
    }

    /// Begins to watch now, without waiting for an event.
    ///
    /// # Errors
    /// As any read.
    pub async fn start(&mut self) -> Result<(), Error> {
        if self.position.is_none() {
            self.position = Some(self.poll(Duration::ZERO).await?.upto);
        }
        Ok(())
    }

    /// The next event. Dropping the future loses nothing.
    ///
    /// # Errors
    /// `Refused` with `EventsGone` when events after [`Watcher::position`] are no longer kept: read
    /// afresh, then [`Watcher::resume_from`] that read. After `Unavailable` and `Unknown`, ask
    /// again: it goes on where it was.
    pub async fn next(&mut self) -> Result<EventInfo, Error> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            self.fetch().await?;
        }
    }

    /// What one answer brought, all events of a zxid together; empty when nothing happened for one
    /// long-poll. Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`Watcher::next`].
    pub async fn next_batch(&mut self) -> Result<Vec<EventInfo>, Error> {
        if self.events.is_empty() {
            self.fetch().await?;
        }
        Ok(self.events.drain(..).collect())
    }

    /// The events as a stream. An error is an item, and the stream goes on after it;
    /// [`Watcher::next`] says which errors need more than that.
    pub fn into_stream(self) -> impl Stream<Item = Result<EventInfo, Error>> + Send {
        futures_util::stream::unfold(self, |mut watcher| async move { Some((watcher.next().await, watcher)) })
    }

    async fn fetch(&mut self) -> Result<(), Error> {
        self.start().await?;
        let page = self.poll(self.client.inner.transport.timeouts.poll).await?;
        // Together, and after the last await: a dropped future has changed nothing.
        self.position = Some(page.upto);
        self.events.extend(page.events);
        Ok(())
    }

    async fn poll(&self, wait: Duration) -> Result<Events, Error> {
        let target = Target::path(ZNODES, &self.path)?.with("watch", self.kind).with_some("since", self.position);
        self.client.poll(target, wait).await
    }
}
