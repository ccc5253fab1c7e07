//! Bytes to send to a client.

use std::net::IpAddr;

use accept::{Direct, Mutex};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::client::shared_bytes::{Account, AnswerPlace, PlaceWait, UNCOUNTED_BYTES_MAX};

/// Queue of frames for one client, in order. Events are added by the task that applies log entries,
/// and answers by the connection's task.
///
/// A task that has added frames sends them itself, as far as the socket takes them at once
/// ([`Outbox::send_now`]). The connection's own writer sends the remaining bytes. With TLS, that
/// writer sends all bytes.
///
/// The answer to a request that sets a watch is made after the lock on the watch table is released.
/// Events that come in between are held back until after the answer ([`Outbox::hold`]), because a
/// client must get that answer before an event of the watch.
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    bytes_max: usize,
    account: Account,
    /// Token that ends the connection when this outbox is aborted.
    closed: CancellationToken,
    filled: Notify,
    drained: Notify,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// Events held back until after an answer that is being made; `None` while events are not held
    /// back.
    held: Option<Vec<u8>>,
    /// Number of bytes that a writer has taken and not written yet.
    writing: usize,
    writer: Option<Writer>,
    /// True if the connection's own writer has been woken to send the bytes of this queue.
    is_called: bool,
    /// True if the client is in the list of clients with unsent events, which the hub (all
    /// connections of this node) keeps.
    is_listed: bool,
    direct: Option<Direct>,
    end: Option<OutboxEnd>,
    /// Number of bytes that the socket has accepted since the connection began.
    taken: u64,
    /// End of the last long answer (longer than half of `bytes_max`), as the value of `taken` once
    /// the answer is sent. The second number is its length plus the unsent bytes of an earlier long
    /// answer; these bytes do not count against `bytes_max`.
    long: Option<(u64, usize)>,
    /// Bytes of this queue that count against the bound on the unread bytes of all connections.
    counted: usize,
}

/// Kind of answer for which an outbox must have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Room for the answer to a ping.
    Ping,
    /// Room for a short answer, such as that of a write.
    Short,
    /// Room for the answer of a read, which may be long.
    Read,
}

/// Claim of a client to memory for the answer of a read: first a position in a queue, then the
/// memory reserved for it.
#[derive(Default)]
pub(crate) struct PlaceClaim {
    waiting: Option<PlaceWait>,
    place: Option<AnswerPlace>,
}

/// Guard of the connection's own writer. Bytes that the writer has taken are counted until the
/// guard is dropped.
pub(crate) struct Writing<'a>(&'a Outbox);

#[derive(Clone, Copy, PartialEq)]
enum Writer {
    /// The connection's own writer, which waits until the socket accepts more bytes.
    Waiting,
    /// Another task, which sends only the bytes that the socket accepts at once.
    Direct,
}

#[derive(Clone, Copy, PartialEq)]
enum OutboxEnd {
    /// No more bytes are added; those in the queue are still written.
    Finished,
    /// No more bytes are written.
    Aborted,
}

impl Outbox {
    pub(crate) fn new(bytes_max: usize, account: Account, closed: CancellationToken) -> Outbox {
        let (filled, drained) = (Notify::new(), Notify::new());
        Outbox { queue: Mutex::default(), bytes_max, account, closed, filled, drained }
    }

    /// Returns the client's address, against whose bound the unread bytes count; `None` for an
    /// exempt address.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.account.source()
    }

    /// Returns the [`Account`], by which this connection reserves memory for answers.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Sets the handle by which any task can write to the socket; `None` if only the connection's
    /// writer may.
    pub(crate) fn attach(&self, direct: Option<Direct>) {
        self.queue.lock().direct = direct;
    }

    /// Appends an answer to the queue.
    pub(crate) fn push(&self, frame: Vec<u8>) {
        self.push_placed(frame, None, false);
    }

    /// Appends an event, or holds it back. True if the caller must put the client into the hub's
    /// list of clients with unsent events, for a call of [`Outbox::send_events`].
    pub(crate) fn push_event(&self, frame: &[u8]) -> bool {
        let mut queue = self.queue.lock();
        if queue.end.is_some() {
            return false;
        }
        let Queue { bytes, held, .. } = &mut *queue;
        held.as_mut().unwrap_or(bytes).extend_from_slice(frame);
        self.check(&mut queue);
        queue.end.is_none() && !std::mem::replace(&mut queue.is_listed, true)
    }

    /// Begins to hold events back, until [`Outbox::release`].
    pub(crate) fn hold(&self) {
        self.queue.lock().held.get_or_insert_default();
    }

    /// Appends the answer, and after it the events that were held back.
    pub(crate) fn release(&self, frame: Vec<u8>) {
        self.push_placed(frame, None, true);
    }

    /// Appends an answer, and counts its bytes instead of those that `place` had reserved for it.
    /// With `release`, events that were held back follow the answer.
    pub(crate) fn push_placed(&self, frame: Vec<u8>, place: Option<AnswerPlace>, release: bool) {
        let mut queue = self.queue.lock();
        let held = if release { queue.held.take().unwrap_or_default() } else { Vec::new() };
        if queue.end.is_some() {
            return;
        }
        queue.counted += place.map_or(0, AnswerPlace::keep);
        let length = frame.len();
        queue.append(frame);
        // A part of an earlier long answer may be unsent, because a client may send its next
        // request while it reads.
        if length > self.bytes_max / 2 {
            let left = queue.long().unwrap_or(0);
            queue.long = Some((queue.taken + queue.offered() as u64, left + length));
        }
        queue.append(held);
        self.check(&mut queue);
    }

    /// Sends the events that were appended.
    pub(crate) fn send_events(&self) {
        self.queue.lock().is_listed = false;
        self.send_now();
    }

    /// Sends the bytes that the socket accepts at once, and leaves the remaining bytes to the
    /// connection's own writer.
    pub(crate) fn send_now(&self) {
        while let Some((direct, bytes)) = self.take_to_send() {
            // The connection's writer will meet an error of the socket, too, and handles it.
            let sent = direct.try_write(&bytes).unwrap_or(0);
            drop(direct);
            let mut queue = self.queue.lock();
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

    /// Calls [`Outbox::send_now`], and never resolves. As the last branch of a `select!`, it is
    /// polled only when no other branch is ready.
    pub(crate) async fn send_and_wait(&self) {
        self.send_now();
        std::future::pending().await
    }

    /// Takes the bytes of the queue to send them directly; `None` if there are none or another
    /// writer must send them.
    fn take_to_send(&self) -> Option<(Direct, Vec<u8>)> {
        let mut queue = self.queue.lock();
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

    /// Notes that no more answers and events will be added.
    pub(crate) fn finish(&self) {
        self.queue.lock().end.get_or_insert(OutboxEnd::Finished);
        self.wake();
    }

    /// Stops all writing, discards the bytes in the queue, and ends the connection.
    pub(crate) fn abort(&self) {
        self.abort_with(&mut self.queue.lock());
    }

    /// Does the work of [`Outbox::abort`] while the queue is locked. Bytes that a writer has taken
    /// stay counted until the writer drops them.
    fn abort_with(&self, queue: &mut Queue) {
        let Queue { writing, writer, counted, taken, .. } = *queue;
        *queue = Queue { end: Some(OutboxEnd::Aborted), writing, writer, counted, taken, ..Queue::default() };
        self.recount(queue);
        self.closed.cancel();
        self.wake();
    }

    /// Notes that the connection's writer has written `bytes` bytes. False if the writer must stop.
    pub(crate) fn wrote(&self, bytes: usize) -> bool {
        let mut queue = self.queue.lock();
        if queue.end == Some(OutboxEnd::Aborted) {
            return false;
        }
        queue.writing = queue.writing.saturating_sub(bytes);
        queue.taken += bytes as u64;
        self.recount(&mut queue);
        self.drained.notify_one();
        true
    }

    /// Returns the guard of the connection's own writer, which keeps it while it calls
    /// [`Outbox::next`].
    pub(crate) fn writing(&self) -> Writing<'_> {
        Writing(self)
    }

    /// Notes that a writer has dropped the bytes that it had taken.
    fn free(&self, queue: &mut Queue) {
        (queue.writer, queue.writing) = (None, 0);
        self.recount(queue);
        self.wake();
    }

    /// Returns the next bytes for the connection's own writer; `None` at the end. The bytes
    /// returned before count as written now.
    pub(crate) async fn next(&self) -> Option<Vec<u8>> {
        loop {
            {
                let mut queue = self.queue.lock();
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

    /// Tells whether the outbox has room for an answer of the kind `wanted`.
    ///
    /// When the bound of all connections or of the client's address is reached, requests with short
    /// answers go on while the client's own unread bytes do not exceed [`UNCOUNTED_BYTES_MAX`].
    pub(crate) fn has_room(&self, wanted: Room) -> bool {
        let queue = self.queue.lock();
        let own = queue.offered();
        queue.end.is_some()
            || own <= self.bytes_max / 2
                && match wanted {
                    Room::Ping => true,
                    Room::Short => own <= UNCOUNTED_BYTES_MAX || self.account.has_room(),
                    Room::Read => self.account.has_room(),
                }
    }

    /// Tells whether the outbox has room for an answer of the kind `wanted`, or the client has
    /// memory reserved by `claim` for the answer of a read.
    pub(crate) fn has_room_in_turn(&self, wanted: Room, claim: &PlaceClaim) -> bool {
        self.has_room(wanted) || claim.place.is_some() && wanted == Room::Read && self.has_room(Room::Ping)
    }

    /// Tells whether writing has been stopped.
    pub(crate) fn is_aborted(&self) -> bool {
        matches!(self.queue.lock().end, Some(OutboxEnd::Aborted))
    }

    /// Waits until the outbox has room for an answer of one of the `wanted` kinds. A client without
    /// room for a read's answer joins a queue for memory; `claim` keeps its position between two
    /// calls.
    pub(crate) async fn room(&self, wanted: [Option<Room>; 2], claim: &mut PlaceClaim) {
        loop {
            let eased = self.account.eased();
            if wanted.iter().flatten().any(|wanted| self.has_room_in_turn(*wanted, claim)) {
                return;
            }
            // A client that must first read the bytes sent to it loses its position in the queue.
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

    /// Returns the number of bytes that the client has not read, including events that are held
    /// back.
    pub(crate) fn unread(&self) -> usize {
        self.queue.lock().unread()
    }

    /// Returns the number of bytes that the client has not read, without events that are held back.
    pub(crate) fn offered(&self) -> usize {
        self.queue.lock().offered()
    }

    /// Returns the number of bytes that the socket has accepted since the connection began.
    pub(crate) fn taken(&self) -> u64 {
        self.queue.lock().taken
    }

    /// Ends the connection if its unread bytes exceed the bound of this outbox; the bytes of long
    /// answers do not count. Also ends it if all connections, or those of its address, have too
    /// many unread bytes.
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
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.account.recount(self.queue.lock().counted, 0);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        if queue.writer == Some(Writer::Waiting) {
            self.0.free(&mut queue);
        }
    }
}

impl PlaceClaim {
    /// Ends the claim. Returns the reserved memory, if the client has got any.
    pub(crate) fn end(&mut self) -> Option<AnswerPlace> {
        std::mem::take(self).place
    }

    /// Resolves when memory has been reserved for the client. Never resolves if the client is in no
    /// queue.
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

    /// Returns the number of unread bytes of long answers; `None` if there are none.
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
