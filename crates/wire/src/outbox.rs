//! What a client is about to be sent.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

/// Frames on their way to one client, in order. Events come from whoever applies entries, answers from the connection.
///
/// An answer that sets a watch is made outside of the guard under which the watch was set. Events that come in between
/// are held back behind it ([`Outbox::hold`]), as a client must hear of its watch before it hears from it.
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    bytes_max: usize,
    filled: Notify,
    drained: Notify,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// Events behind an answer that is being made.
    held: Option<Vec<u8>>,
    /// Being written.
    writing: usize,
    end: Option<End>,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    /// Nothing more comes; what is there is still written.
    Finished,
    /// Nothing more is written.
    Aborted,
}

impl Outbox {
    pub(crate) fn new(bytes_max: usize) -> Outbox {
        Outbox { queue: Mutex::default(), bytes_max, filled: Notify::new(), drained: Notify::new() }
    }

    /// Appends an answer.
    pub(crate) fn push(&self, frame: &[u8]) {
        let mut queue = self.lock();
        if queue.end.is_none() {
            queue.bytes.extend_from_slice(frame);
            self.check(&mut queue);
        }
    }

    /// Appends an event, or holds it back.
    pub(crate) fn push_event(&self, frame: &[u8]) {
        let mut queue = self.lock();
        if queue.end.is_none() {
            let Queue { bytes, held, .. } = &mut *queue;
            held.as_mut().unwrap_or(bytes).extend_from_slice(frame);
            self.check(&mut queue);
        }
    }

    /// Holds events back until [`Outbox::release`].
    pub(crate) fn hold(&self) {
        self.lock().held.get_or_insert_default();
    }

    /// Appends the answer, and behind it the events that were held back.
    pub(crate) fn release(&self, frame: &[u8]) {
        let mut queue = self.lock();
        let held = queue.held.take().unwrap_or_default();
        if queue.end.is_none() {
            queue.bytes.extend_from_slice(frame);
            queue.bytes.extend_from_slice(&held);
            self.check(&mut queue);
        }
    }

    /// Nothing more comes.
    pub(crate) fn finish(&self) {
        self.lock().end.get_or_insert(End::Finished);
        self.wake();
    }

    /// Nothing more is written from here on, not even what is there.
    pub(crate) fn abort(&self) {
        let mut queue = self.lock();
        *queue = Queue { end: Some(End::Aborted), ..Queue::default() };
        self.wake();
    }

    /// The next bytes to write; `None` at the end. The bytes before count as written now.
    pub(crate) async fn next(&self) -> Option<Vec<u8>> {
        loop {
            {
                let mut queue = self.lock();
                queue.writing = 0;
                self.drained.notify_one();
                if !queue.bytes.is_empty() {
                    queue.writing = queue.bytes.len();
                    return Some(std::mem::take(&mut queue.bytes));
                }
                if queue.end.is_some() {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    /// Whether another request should be answered now.
    pub(crate) fn has_room(&self) -> bool {
        let queue = self.lock();
        queue.end.is_some() || queue.bytes.len() + queue.writing <= self.bytes_max / 2
    }

    /// Waits for it.
    pub(crate) async fn room(&self) {
        while !self.has_room() {
            self.drained.notified().await;
        }
    }

    /// Bytes that the client has not taken.
    pub(crate) fn unread(&self) -> usize {
        let queue = self.lock();
        queue.bytes.len() + queue.writing + queue.held.as_ref().map_or(0, Vec::len)
    }

    fn check(&self, queue: &mut Queue) {
        let held = queue.held.as_ref().map_or(0, Vec::len);
        if queue.bytes.len() + queue.writing + held > self.bytes_max {
            *queue = Queue { end: Some(End::Aborted), ..Queue::default() };
        }
        self.wake();
    }

    fn wake(&self) {
        self.filled.notify_one();
        self.drained.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nothing panics under this guard")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_wait_for_the_answer_that_sets_their_watch() {
        let outbox = Outbox::new(100);
        outbox.push_event(b"1");
        outbox.hold();
        outbox.push_event(b"4");
        outbox.push(b"2");
        outbox.release(b"3");
        outbox.push_event(b"5");
        outbox.finish();
        outbox.push_event(b"6");
        assert_eq!(outbox.next().await.unwrap(), b"12345");
        assert_eq!(outbox.next().await, None);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_given_up() {
        let outbox = Outbox::new(10);
        outbox.push(b"12345");
        assert!(outbox.has_room());
        let writing = outbox.next().await.unwrap();
        outbox.push(b"6");
        assert!(!outbox.has_room(), "{writing:?} is not written yet");
        outbox.push_event(b"78901");
        assert_eq!(outbox.next().await, None);
    }
}
