//! Watches: streams of events that can be resumed.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::api::{EventInfo, Events, ProblemType};
use futures_util::Stream;

use crate::Error;
use crate::client::Client;
use crate::client::call::{Target, ZNODES};

/// Kind of events that a watch reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// Creation, deletion and data changes of the znode.
    Data,
    /// Creation and deletion of the znode.
    Exists,
    /// Creation and deletion of the znode and of its children.
    Children,
    /// All events at and below the path.
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
    /// Returns a watcher of a path. It reports the events after the first call of [`Watcher::next`]
    /// or [`Watcher::start`]. To miss no event after a read, call [`Watcher::resume_from`] with the
    /// zxid of the read.
    pub fn watch(&self, path: impl Into<String>, kind: WatchKind) -> Watcher {
        Watcher { client: self.clone(), path: path.into(), kind, position: None, events: VecDeque::new() }
    }

    /// Waits for an event after a zxid. Also returns when the cluster no longer keeps all events
    /// after the zxid, as a discarded event may have matched. The caller must read what changed.
    pub(crate) async fn changed_since(&self, path: &str, kind: WatchKind, zxid: u64) -> Result<(), Error> {
        let mut watcher = self.watch(path, kind);
        watcher.resume_from(zxid);
        match watcher.next().await {
            Err(error) if error.code() != Some(ProblemType::EventsGone) => Err(error),
            _ => Ok(()),
        }
    }
}

/// A watch that loses no event: each request continues from the end of the last answer, at any
/// node.
#[derive(Clone, Debug)]
pub struct Watcher {
    client: Client,
    path: String,
    kind: WatchKind,
    /// Zxid up to which the answers have contained all events; `None` before the watch has begun.
    position: Option<u64>,
    /// Events of the last answer that no caller has taken yet.
    events: VecDeque<EventInfo>,
}

impl Watcher {
    /// Continues with the events after a zxid: the zxid of a read or write, or the
    /// [`Watcher::position`] of an earlier watcher, even of another program.
    pub fn resume_from(&mut self, zxid: u64) {
        self.events.clear();
        self.position = Some(zxid);
    }

    /// Zxid up to which callers have taken all events; `None` before the watch has begun.
    pub fn position(&self) -> Option<u64> {
        match self.events.front() {
            // One transaction can make several events with one zxid. While one of them is not
            // taken, its zxid does not count as taken.
            Some(event) => Some(event.zxid - 1),
            None => self.position,
        }
    }

    /// Begins to watch now, without waiting for an event.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn start(&mut self) -> Result<(), Error> {
        if self.position.is_none() {
            self.position = Some(self.poll(Duration::ZERO).await?.upto);
        }
        Ok(())
    }

    /// Returns the next event. Dropping the future loses no event.
    ///
    /// # Errors
    /// `Refused` with `EventsGone` when the cluster no longer keeps all events after
    /// [`Watcher::position`]: read the znodes again, then call [`Watcher::resume_from`] with the
    /// zxid of that read. After `Unavailable` and `Unknown` the call may be repeated, and no event
    /// is missed.
    pub async fn next(&mut self) -> Result<EventInfo, Error> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            self.fetch(self.client.inner.transport.timeouts.poll).await?;
        }
    }

    /// Returns the events of one answer, with all events of a zxid together; empty when no event
    /// came during one long-poll. Dropping the future loses no event.
    ///
    /// # Errors
    /// As [`Watcher::next`].
    pub async fn next_batch(&mut self) -> Result<Vec<EventInfo>, Error> {
        self.batch_within(self.client.inner.transport.timeouts.poll).await
    }

    /// Returns a batch like [`Watcher::next_batch`], by a long-poll of at most `wait`.
    pub(crate) async fn batch_within(&mut self, wait: Duration) -> Result<Vec<EventInfo>, Error> {
        if self.events.is_empty() {
            self.fetch(wait).await?;
        }
        Ok(self.events.drain(..).collect())
    }

    /// Returns the events as a stream. An error is an item, and the stream goes on after it.
    /// [`Watcher::next`] says after which error the caller must read the znodes again.
    pub fn into_stream(self) -> impl Stream<Item = Result<EventInfo, Error>> + Send {
        futures_util::stream::unfold(self, |mut watcher| async move { Some((watcher.next().await, watcher)) })
    }

    async fn fetch(&mut self, wait: Duration) -> Result<(), Error> {
        self.start().await?;
        let page = self.poll(wait).await?;
        // Both fields change after the last await, so that a dropped future has changed nothing.
        self.position = Some(page.upto);
        self.events.extend(page.events);
        Ok(())
    }

    async fn poll(&self, wait: Duration) -> Result<Events, Error> {
        let target = Target::path(ZNODES, &self.path)?.with("watch", self.kind).with_some("since", self.position);
        self.client.poll(target, wait).await
    }
}
