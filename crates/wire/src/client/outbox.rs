//! Bytes that a client is about to be sent.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};

use accept::Direct;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::client::shared_bytes::{Account, AnswerPlace, PlaceWait, UNCOUNTED_BYTES_MAX};

/// Frames on their way to one client, in order. Events come from the task that applies entries,
/// answers from the connection.
///
/// A task that has put something in sends it at once, as far as the socket takes it
/// ([`Outbox::send_now`]). The connection's own writer is woken for what is left, and for all of it
/// with TLS.
///
/// An answer that sets a watch is made outside of the guard under which the watch was set. Events
/// that come in between are held back behind it ([`Outbox::hold`]), as a client must hear of its
/// watch before it hears from it.
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    bytes_max: usize,
    account: Account,
    /// The connection's end, which an abort brings about.
    closed: CancellationToken,
    filled: Notify,
    drained: Notify,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// Events behind an answer that is being made.
    held: Option<Vec<u8>>,
    /// Bytes that are being written, by one of the two.
    writing: usize,
    writer: Option<Writer>,
    /// The connection's writer knows that there is something for it.
    is_called: bool,
    /// A task is about to send its events.
    is_listed: bool,
    direct: Option<Direct>,
    end: Option<OutboxEnd>,
    /// Bytes that the socket has taken since the beginning.
    taken: u64,
    /// An answer that is longer than requests wait for: where it ends, and its length. It does not
    /// count against the bound.
    long: Option<(u64, usize)>,
    /// Bytes of this queue that count among those of all connections.
    counted: usize,
}

/// The purpose for which room is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// A ping.
    Ping,
    /// A request whose answer is short: a write, say.
    Short,
    /// The answer of a read, which may be long.
    Read,
}

/// A client's claim to a place for the answer of a read: its wait, then that place.
#[derive(Default)]
pub(crate) struct PlaceClaim {
    waiting: Option<PlaceWait>,
    place: Option<AnswerPlace>,
}

/// The connection's writer. What it was given counts until this is dropped.
pub(crate) struct Writing<'a>(&'a Outbox);

#[derive(Clone, Copy, PartialEq)]
enum Writer {
    /// The connection's own, which waits until the socket takes more.
    Waiting,
    /// The task that sends at once.
    Direct,
}

#[derive(Clone, Copy, PartialEq)]
enum OutboxEnd {
    /// The end after which nothing more comes; the bytes that are there are still written.
    Finished,
    /// The end after which nothing more is written.
    Aborted,
}

impl Outbox {
    pub(crate) fn new(bytes_max: usize, account: Account, closed: CancellationToken) -> Outbox {
        let (filled, drained) = (Notify::new(), Notify::new());
        Outbox { queue: Mutex::default(), bytes_max, account, closed, filled, drained }
    }

    /// The address whose share of all bytes this counts in; `None` for one without a share.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.account.source()
    }

    /// The account from which places for answers come.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// The connection can be written to. Without a direct way, its writer writes everything.
    pub(crate) fn attach(&self, direct: Option<Direct>) {
        self.lock().direct = direct;
    }

    /// Appends an answer.
    pub(crate) fn push(&self, frame: Vec<u8>) {
        self.push_placed(frame, None, false);
    }

    /// Appends an event, or holds it back. Whether the caller is the first to have one to be sent
    /// by [`Outbox::send_events`].
    pub(crate) fn push_event(&self, frame: &[u8]) -> bool {
        let mut queue = self.lock();
        if queue.end.is_some() {
            return false;
        }
        let Queue { bytes, held, .. } = &mut *queue;
        held.as_mut().unwrap_or(bytes).extend_from_slice(frame);
        self.check(&mut queue);
        queue.end.is_none() && !std::mem::replace(&mut queue.is_listed, true)
    }

    /// Holds events back until [`Outbox::release`].
    pub(crate) fn hold(&self) {
        self.lock().held.get_or_insert_default();
    }

    /// Appends the answer, and behind it the events that were held back.
    pub(crate) fn release(&self, frame: Vec<u8>) {
        self.push_placed(frame, None, true);
    }

    /// Appends an answer, which counts from here on instead of the place that was kept for it;
    /// `release` as [`Outbox::release`].
    pub(crate) fn push_placed(&self, frame: Vec<u8>, place: Option<AnswerPlace>, release: bool) {
        let mut queue = self.lock();
        let held = if release { queue.held.take().unwrap_or_default() } else { Vec::new() };
        if queue.end.is_some() {
            return;
        }
        queue.counted += place.map_or(0, AnswerPlace::keep);
        let length = frame.len();
        queue.append(frame);
        // Some of the one before it may be left: a client that reads asks for the next one
        // meanwhile.
        if length > self.bytes_max / 2 {
            let left = queue.long().unwrap_or(0);
            queue.long = Some((queue.taken + queue.offered() as u64, left + length));
        }
        queue.append(held);
        self.check(&mut queue);
    }

    /// Sends the events that were pushed.
    pub(crate) fn send_events(&self) {
        self.lock().is_listed = false;
        self.send_now();
    }

    /// Sends what is there, as far as the socket takes it at once. The connection's writer does the
    /// rest.
    pub(crate) fn send_now(&self) {
        while let Some((direct, bytes)) = self.take_to_send() {
            // What is wrong with the socket is found by the writer.
            let sent = direct.try_write(&bytes).unwrap_or(0);
            drop(direct);
            let mut queue = self.lock();
            if queue.end == Some(OutboxEnd::Aborted) {
                drop(bytes);
                self.free(&mut queue);
                return;
            }
            (queue.writer, queue.writing) = (None, 0);
            queue.taken += sent as u64;
            if sent < bytes.len() {
                let behind = std::mem::replace(&mut queue.bytes, bytes);
                queue.bytes.drain(..sent);
                queue.append(behind);
                queue.is_called = true;
            }
            self.recount(&mut queue);
            if queue.is_called || queue.end.is_some() {
                self.filled.notify_one();
            }
            self.drained.notify_one();
        }
    }

    /// Sends the same, and never resolves: for the last branch of a choice, which is polled when
    /// there is nothing else to do.
    pub(crate) async fn send_and_wait(&self) {
        self.send_now();
        std::future::pending().await
    }

    /// Takes the bytes that are there, unless another task writes them.
    fn take_to_send(&self) -> Option<(Direct, Vec<u8>)> {
        let mut queue = self.lock();
        if queue.bytes.is_empty() || queue.writer.is_some() || queue.is_called {
            return None;
        }
        let Some(direct) = queue.direct.clone() else {
            queue.is_called = true;
            self.filled.notify_one();
            return None;
        };
        Some((direct, queue.take_for(Writer::Direct)))
    }

    /// Notes that nothing more comes.
    pub(crate) fn finish(&self) {
        self.lock().end.get_or_insert(OutboxEnd::Finished);
        self.wake();
    }

    /// Ends all writing from here on, also of the bytes that are there.
    pub(crate) fn abort(&self) {
        self.abort_with(&mut self.lock());
    }

    /// Aborts, under the guard. Bytes that are being written are in memory until their writer lets
    /// go of them, and count until then.
    fn abort_with(&self, queue: &mut Queue) {
        let Queue { writing, writer, counted, taken, .. } = *queue;
        *queue = Queue { end: Some(OutboxEnd::Aborted), writing, writer, counted, taken, ..Queue::default() };
        self.recount(queue);
        self.closed.cancel();
        self.wake();
    }

    /// The connection's writer has written so many of the bytes that it has. False when it is to
    /// stop.
    pub(crate) fn wrote(&self, bytes: usize) -> bool {
        let mut queue = self.lock();
        if queue.end == Some(OutboxEnd::Aborted) {
            return false;
        }
        queue.writing = queue.writing.saturating_sub(bytes);
        queue.taken += bytes as u64;
        self.recount(&mut queue);
        self.drained.notify_one();
        true
    }

    /// The connection's own writer. It asks for [`Outbox::next`] while it has this.
    pub(crate) fn writing(&self) -> Writing<'_> {
        Writing(self)
    }

    /// Notes that the bytes that were being written are not in memory any more.
    fn free(&self, queue: &mut Queue) {
        (queue.writer, queue.writing) = (None, 0);
        self.recount(queue);
        self.wake();
    }

    /// The next bytes for the connection's writer; `None` at the end. The bytes before count as
    /// written now.
    pub(crate) async fn next(&self) -> Option<Vec<u8>> {
        loop {
            {
                let mut queue = self.lock();
                if queue.writer == Some(Writer::Waiting) {
                    queue.taken += queue.writing as u64;
                    (queue.writer, queue.writing) = (None, 0);
                    self.recount(&mut queue);
                    self.drained.notify_one();
                }
                if queue.writer.is_none() {
                    queue.is_called = false;
                    if !queue.bytes.is_empty() {
                        return Some(queue.take_for(Writer::Waiting));
                    }
                    if queue.end.is_some() {
                        return None;
                    }
                }
            }
            self.filled.notified().await;
        }
    }

    /// Tells whether a request may be taken, or a read answered.
    ///
    /// Where there is no room for all, or for this client's address, requests with short answers go
    /// on as long as the client keeps no more than is not counted.
    pub(crate) fn has_room(&self, wanted: Room) -> bool {
        let queue = self.lock();
        let own = queue.offered();
        queue.end.is_some()
            || own <= self.bytes_max / 2
                && match wanted {
                    Room::Ping => true,
                    Room::Short => own <= UNCOUNTED_BYTES_MAX || self.account.has_room(),
                    Room::Read => self.account.has_room(),
                }
    }

    /// Tells the same for a client that may have waited for its turn.
    pub(crate) fn has_room_in_turn(&self, wanted: Room, claim: &PlaceClaim) -> bool {
        self.has_room(wanted) || claim.place.is_some() && wanted == Room::Read && self.has_room(Room::Ping)
    }

    /// Tells whether nothing is written any more.
    pub(crate) fn is_aborted(&self) -> bool {
        matches!(self.lock().end, Some(OutboxEnd::Aborted))
    }

    /// Waits for room, for one of the two. Where there is none for a read, it gets a turn, which is
    /// kept between two calls.
    pub(crate) async fn room(&self, wanted: [Option<Room>; 2], claim: &mut PlaceClaim) {
        loop {
            let eased = self.account.eased();
            if wanted.iter().flatten().any(|wanted| self.has_room_in_turn(*wanted, claim)) {
                return;
            }
            // A client that has to read first keeps no place from others.
            if !wanted.contains(&Some(Room::Read)) || !self.has_room(Room::Ping) {
                *claim = PlaceClaim::default();
            } else if claim.place.is_none() {
                claim.waiting.get_or_insert_with(|| self.account.turn());
            }
            tokio::select! {
                () = self.drained.notified() => {}
                () = eased => {}
                () = claim.given() => {}
            }
        }
    }

    /// Bytes that the client has not taken.
    pub(crate) fn unread(&self) -> usize {
        self.lock().unread()
    }

    /// Bytes that the client has not taken, without those that are held back.
    pub(crate) fn offered(&self) -> usize {
        self.lock().offered()
    }

    /// Bytes that the client has taken since the beginning.
    pub(crate) fn taken(&self) -> u64 {
        self.lock().taken
    }

    /// The bound is for what waits behind a long answer: that by itself may always be sent.
    fn check(&self, queue: &mut Queue) {
        self.recount(queue);
        let behind = queue.unread() - queue.long().unwrap_or(0);
        if behind > self.bytes_max || queue.counted > 0 && self.account.overflows() {
            self.abort_with(queue);
        }
    }

    fn recount(&self, queue: &mut Queue) {
        let now = queue.unread().saturating_sub(UNCOUNTED_BYTES_MAX);
        self.account.recount(queue.counted, now);
        queue.counted = now;
    }

    fn wake(&self) {
        self.filled.notify_one();
        self.drained.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nothing panics under this guard")
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.account.recount(self.lock().counted, 0);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        if queue.writer == Some(Writer::Waiting) {
            self.0.free(&mut queue);
        }
    }
}

impl PlaceClaim {
    /// Ends the wait. The place, if its turn has come.
    pub(crate) fn end(&mut self) -> Option<AnswerPlace> {
        std::mem::take(self).place
    }

    /// Resolves when it has its place, if it waits for one.
    async fn given(&mut self) {
        match &mut self.waiting {
            Some(waiting) => self.place = Some(waiting.place().await),
            None => std::future::pending().await,
        }
        self.waiting = None;
    }
}

impl Queue {
    fn unread(&self) -> usize {
        self.offered() + self.held.as_ref().map_or(0, Vec::len)
    }

    fn offered(&self) -> usize {
        self.bytes.len() + self.writing
    }

    /// Bytes of the long answer that have not been taken.
    fn long(&self) -> Option<usize> {
        let (end, length) = self.long.filter(|(end, _)| *end > self.taken)?;
        Some(length.min(usize::try_from(end - self.taken).unwrap_or(usize::MAX)))
    }

    fn append(&mut self, frame: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = frame;
        } else {
            self.bytes.extend_from_slice(&frame);
        }
    }

    fn take_for(&mut self, writer: Writer) -> Vec<u8> {
        (self.writer, self.writing) = (Some(writer), self.bytes.len());
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests;
