//! What a client is about to be sent.

use std::sync::{Arc, Mutex, MutexGuard};

use tls::Direct;
use tokio::sync::Notify;

use crate::unread::{Place, UNCOUNTED_BYTES_MAX, Unread};

/// Frames on their way to one client, in order. Events come from whoever applies entries, answers from the connection.
///
/// Whoever has put something in sends it at once, as far as the socket takes it ([`Outbox::send_now`]). The connection's
/// own writer is woken for what is left, and for all of it with TLS.
///
/// An answer that sets a watch is made outside of the guard under which the watch was set. Events that come in between
/// are held back behind it ([`Outbox::hold`]), as a client must hear of its watch before it hears from it.
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    bytes_max: usize,
    all: Arc<Unread>,
    filled: Notify,
    drained: Notify,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// Events behind an answer that is being made.
    held: Option<Vec<u8>>,
    /// Being written, by one of the two.
    writing: usize,
    writer: Option<Writer>,
    /// The connection's writer knows that there is something for it.
    is_called: bool,
    /// Somebody is about to send its events.
    is_listed: bool,
    direct: Option<Direct>,
    end: Option<End>,
    /// How much the socket has taken since the beginning.
    taken: u64,
    /// An answer that is longer than requests wait for: where it ends, and its length. It does not count against the bound.
    long: Option<(u64, usize)>,
    /// What of it counts among the bytes of all connections.
    counted: usize,
    /// It is this client's turn to be answered, although there is hardly room.
    turn: Option<Place>,
}

#[derive(Clone, Copy, PartialEq)]
enum Writer {
    /// The connection's own, which waits until the socket takes more.
    Waiting,
    /// Whoever sends at once.
    Direct,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    /// Nothing more comes; what is there is still written.
    Finished,
    /// Nothing more is written.
    Aborted,
}

impl Outbox {
    pub(crate) fn new(bytes_max: usize, all: Arc<Unread>) -> Outbox {
        Outbox { queue: Mutex::default(), bytes_max, all, filled: Notify::new(), drained: Notify::new() }
    }

    /// The connection can be written to. Without a direct way, its writer writes everything.
    pub(crate) fn attach(&self, direct: Option<Direct>) {
        self.lock().direct = direct;
    }

    /// Appends an answer.
    pub(crate) fn push(&self, frame: Vec<u8>) {
        self.append(frame, None, false);
    }

    /// Appends an answer that has a place of its own; `release` as [`Outbox::release`].
    pub(crate) fn push_placed(&self, frame: Vec<u8>, place: Place, release: bool) {
        self.append(frame, Some(place), release);
    }

    /// Appends an event, or holds it back. Whether the caller is the first to have one to be sent by
    /// [`Outbox::send_events`].
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
        self.append(frame, None, true);
    }

    fn append(&self, frame: Vec<u8>, place: Option<Place>, release: bool) {
        let mut queue = self.lock();
        let held = if release { queue.held.take().unwrap_or_default() } else { Vec::new() };
        if queue.end.is_some() {
            return;
        }
        queue.turn = None;
        queue.counted += place.map_or(0, Place::keep);
        let length = frame.len();
        queue.append(frame);
        // Whoever was answered had room before; so there is one of these, and what waits behind it.
        if length > self.bytes_max / 2 && queue.long().is_none() {
            queue.long = Some((queue.taken + (queue.writing + queue.bytes.len()) as u64, length));
        }
        queue.append(held);
        self.check(&mut queue);
    }

    /// Sends the events that were pushed.
    pub(crate) fn send_events(&self) {
        self.lock().is_listed = false;
        self.send_now();
    }

    /// Sends what is there, as far as the socket takes it at once. The connection's writer does the rest.
    pub(crate) fn send_now(&self) {
        while let Some((direct, bytes)) = self.take_to_send() {
            // What is wrong with the socket is found by the writer.
            let sent = direct.try_write(&bytes).unwrap_or(0);
            drop(direct);
            let mut queue = self.lock();
            if queue.end == Some(End::Aborted) {
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

    /// The same, and never resolves: for the last branch of a choice, which is polled when there is nothing else to do.
    pub(crate) async fn send_and_wait(&self) {
        self.send_now();
        std::future::pending().await
    }

    /// What is there, unless somebody else writes it.
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

    /// Nothing more comes.
    pub(crate) fn finish(&self) {
        self.lock().end.get_or_insert(End::Finished);
        self.wake();
    }

    /// Nothing more is written from here on, not even what is there.
    pub(crate) fn abort(&self) {
        self.abort_with(&mut self.lock());
    }

    fn abort_with(&self, queue: &mut Queue) {
        self.all.recount(queue.counted, 0);
        *queue = Queue { end: Some(End::Aborted), ..Queue::default() };
        self.wake();
    }

    /// The connection's writer has written so many of the bytes that it has.
    pub(crate) fn wrote(&self, bytes: usize) {
        let mut queue = self.lock();
        if queue.end != Some(End::Aborted) {
            queue.writing = queue.writing.saturating_sub(bytes);
            queue.taken += bytes as u64;
            self.recount(&mut queue);
            self.drained.notify_one();
        }
    }

    /// The next bytes for the connection's writer; `None` at the end. The bytes before count as written now.
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

    /// Whether another request should be answered now.
    pub(crate) fn has_room(&self) -> bool {
        let queue = self.lock();
        queue.end.is_some() || self.is_read(&queue) && (queue.turn.is_some() || self.all.has_room())
    }

    fn is_read(&self, queue: &Queue) -> bool {
        queue.bytes.len() + queue.writing <= self.bytes_max / 2
    }

    /// Whether nothing is written any more.
    pub(crate) fn is_aborted(&self) -> bool {
        matches!(self.lock().end, Some(End::Aborted))
    }

    /// Waits for it.
    pub(crate) async fn room(&self) {
        while !self.has_room() {
            if self.is_read(&self.lock()) {
                // There is none for all. Whose turn it is may answer once, although others wait behind it.
                let turn = self.all.place(1).await;
                self.lock().turn = Some(turn);
            } else {
                self.drained.notified().await;
            }
        }
    }

    /// Bytes that the client has not taken.
    pub(crate) fn unread(&self) -> usize {
        self.lock().unread()
    }

    /// Bytes that the client has taken since the beginning.
    pub(crate) fn taken(&self) -> u64 {
        self.lock().taken
    }

    /// The bound is for what waits behind a long answer: that by itself may always be sent.
    fn check(&self, queue: &mut Queue) {
        self.recount(queue);
        let behind = queue.unread() - queue.long().unwrap_or(0);
        if behind > self.bytes_max || queue.counted > 0 && self.all.overflows() {
            self.abort_with(queue);
        }
    }

    fn recount(&self, queue: &mut Queue) {
        let now = queue.unread().saturating_sub(UNCOUNTED_BYTES_MAX);
        self.all.recount(queue.counted, now);
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
        self.all.recount(self.lock().counted, 0);
    }
}

impl Queue {
    fn unread(&self) -> usize {
        self.bytes.len() + self.writing + self.held.as_ref().map_or(0, Vec::len)
    }

    /// What of the long answer has not been taken.
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
mod tests {
    use tls::Stream;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn all() -> Arc<Unread> {
        Arc::new(Unread::new(1 << 30))
    }

    #[tokio::test]
    async fn events_wait_for_the_answer_that_sets_their_watch() {
        let outbox = Outbox::new(100, all());
        outbox.push_event(b"1");
        outbox.hold();
        outbox.push_event(b"4");
        outbox.push(b"2".to_vec());
        outbox.release(b"3".to_vec());
        outbox.push_event(b"5");
        outbox.finish();
        outbox.push_event(b"6");
        assert_eq!(outbox.next().await.unwrap(), b"12345");
        assert_eq!(outbox.next().await, None);
    }

    #[tokio::test]
    async fn what_the_socket_takes_is_sent_at_once_and_the_rest_is_the_writers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let (mut client, accepted) = (client.unwrap(), accepted.unwrap().0);
        accepted.writable().await.unwrap();
        let (_reading, writing) = Stream::from(accepted).into_split();
        let outbox = Outbox::new(1 << 30, all());
        outbox.attach(writing.direct());
        assert!(outbox.push_event(b"first") && !outbox.push_event(b","));
        outbox.send_events();
        assert_eq!(outbox.unread(), 0);
        let mut sent = b"first,".to_vec();
        while outbox.unread() == 0 {
            outbox.push(vec![sent.len() as u8; 1 << 20]);
            sent.extend_from_slice(&vec![sent.len() as u8; 1 << 20]);
            outbox.send_now();
        }
        // Nobody overtakes what is left.
        outbox.push(b"last".to_vec());
        outbox.send_now();
        sent.extend_from_slice(b"last");
        let left = outbox.next().await.unwrap();
        outbox.push(b"!".to_vec());
        outbox.send_now();
        assert_eq!(outbox.next().await.unwrap(), b"!");
        sent.truncate(sent.len() - left.len());
        let mut received = vec![0; sent.len()];
        client.read_exact(&mut received).await.unwrap();
        assert!(received == sent && left.ends_with(b"last"));
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_given_up() {
        let outbox = Outbox::new(10, all());
        outbox.push(b"12345".to_vec());
        assert!(outbox.has_room());
        let writing = outbox.next().await.unwrap();
        outbox.push(b"6".to_vec());
        assert!(!outbox.has_room(), "{writing:?} is not written yet");
        outbox.push_event(b"78901");
        assert_eq!(outbox.next().await, None);
    }

    /// The bound is for what waits behind it.
    #[tokio::test]
    async fn an_answer_of_any_length_is_sent_and_what_waits_behind_it_has_its_bound() {
        let outbox = Outbox::new(10, all());
        outbox.push(vec![1; 1_000]);
        outbox.push_event(&[2; 10]);
        assert!(!outbox.has_room());
        assert_eq!(outbox.next().await.unwrap().len(), 1_010);
        outbox.wrote(500);
        assert!(!outbox.is_aborted() && outbox.unread() == 510);
        outbox.wrote(499);
        outbox.push_event(&[3]);
        assert!(outbox.is_aborted(), "eleven bytes wait behind it");
    }

    #[test]
    fn what_is_not_taken_counts_for_all_until_it_is_or_the_connection_ends() {
        let all = all();
        let outbox = Outbox::new(1 << 20, Arc::clone(&all));
        outbox.push(vec![1; UNCOUNTED_BYTES_MAX]);
        assert_eq!(all.look(), (0, 0), "a little is not counted");
        outbox.hold();
        outbox.push(vec![2; 1_000]);
        outbox.push_event(&[3; 500]);
        assert_eq!(all.look(), (1_500, 1_500));
        outbox.release(Vec::new());
        let (_, bytes) = (0, futures_util::FutureExt::now_or_never(outbox.next()).unwrap().unwrap());
        outbox.wrote(bytes.len() - UNCOUNTED_BYTES_MAX - 1);
        assert_eq!(all.look(), (1, 1_500));
        outbox.push(vec![4; 1_000]);
        drop(outbox);
        assert_eq!(all.look(), (0, 1_500));
    }
}
