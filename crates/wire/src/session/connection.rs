//! One connection of a client with a session: its shared state, and the sending of answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jute::error;
use replica::{Bound, Entrance, RequestEnd};
use tokio::time::Instant;
use tracing::warn;
use znode::Zxid;

use crate::client::Client;
use crate::client::codes::wire_zxid;
use crate::client::end::End;
use crate::client::outbox::Room;
use crate::client::shared_bytes::AnswerPlace;
use crate::request::pending::Arrival;
use crate::request::write_order::WriteOrder;
use crate::session::door::Door;

/// Bytes of an answer to a multiRead beside its results: the header of the answer, and the header
/// that ends the results. Java clients close their connection at a longer answer than they accept.
const MULTI_READ_FRAME_BYTES: usize = 16 + 9;

/// Connection of one client with a session.
pub(crate) struct Connection {
    pub(crate) door: Arc<Door>,
    pub(crate) client: Arc<Client>,
    pub(crate) write_order: WriteOrder,
    /// Highest zxid in an answer so far. Later answers must not have a lower zxid.
    pub(crate) told: AtomicI64,
}

impl Connection {
    pub(crate) fn new(door: Arc<Door>, client: Arc<Client>) -> Connection {
        let told = AtomicI64::new(wire_zxid(door.replica.state().last_zxid()));
        Connection { door, client, write_order: WriteOrder::default(), told }
    }

    /// Tells whether the outbox has room for an answer of this kind. If not, it first sends the
    /// bytes that the socket accepts at once.
    pub(crate) fn has_room_now(&self, room: Room) -> bool {
        let outbox = &self.client.outbox;
        outbox.has_room(room) || {
            outbox.send_now();
            outbox.has_room(room)
        }
    }

    /// Counts a packet that has arrived.
    pub(crate) fn count_received(&self) {
        for counts in [&self.client.counts, &self.door.counts] {
            counts.received();
        }
    }

    /// Counts a request that was answered, or that ended the connection.
    pub(crate) fn answered(&self, arrival: Arrival, end: Option<End>) {
        let now = Instant::now();
        for counts in [&self.client.counts, &self.door.counts] {
            counts.answered(arrival.at, now);
        }
        self.door.times.note(arrival.op, now - arrival.at);
        if let Some(End::Cut(_) | End::Bound(_)) = end {
            self.door.replica.count(Entrance::ZooKeeper, RequestEnd::Unknown);
        }
    }

    /// Returns the error code for a watch that exceeds `bound`. Counts the refusal, and logs it at
    /// a limited rate.
    pub(crate) fn refuse_watch(&self, bound: Bound) -> i32 {
        self.door.replica.count_refused(bound);
        if let Some(times) = self.door.refused_watches.note(Instant::now()) {
            let (session, addr, cause) = (self.client.session(), self.client.arrival.addr, bound.as_str());
            warn!(%session, %addr, cause, times, "a watch of a ZooKeeper client is refused");
        }
        error::SYSTEM_ERROR
    }

    /// Returns the largest allowed size in bytes of the results in an answer to a multiRead.
    pub(crate) fn multi_read_bytes_max(&self) -> usize {
        let answer = self.door.config.packet_bytes_max.min(self.door.unread.answer_bytes_max());
        answer.saturating_sub(MULTI_READ_FRAME_BYTES)
    }

    pub(crate) fn reply(&self, xid: i32, zxid: Zxid, body: Result<Vec<u8>, i32>, place: Option<AnswerPlace>) {
        self.client.outbox.push_placed(self.frame(xid, zxid, body), place, false);
    }

    /// Sends an answer, and after it the events that were held back.
    pub(crate) fn release(&self, xid: i32, zxid: Zxid, body: Result<Vec<u8>, i32>, place: Option<AnswerPlace>) {
        self.client.outbox.push_placed(self.frame(xid, zxid, body), place, true);
    }

    /// Sends an error code. If `is_held` is true, the events that were held back follow it.
    pub(crate) fn refuse(&self, is_held: bool, xid: i32, zxid: Zxid, code: i32) {
        self.client.outbox.push_placed(self.frame(xid, zxid, Err(code)), None, is_held);
    }

    pub(crate) fn frame(&self, xid: i32, zxid: Zxid, body: Result<Vec<u8>, i32>) -> Vec<u8> {
        let is_ok = body.is_ok();
        let frame = self.client.answer(xid, self.told(zxid), body.map(bytes));
        self.count_sent(frame.len(), zxid, is_ok);
        frame
    }

    /// Counts an answer that was handed to the outbox.
    pub(crate) fn count_sent(&self, bytes: usize, zxid: Zxid, is_ok: bool) {
        for counts in [&self.door.counts, &self.client.counts] {
            counts.sent(bytes, wire_zxid(zxid));
        }
        self.count(is_ok);
    }

    /// Returns the zxid for an answer's header: the higher one of `zxid` and the highest zxid in
    /// earlier answers. First puts all events of the client that are due into its outbox.
    pub(crate) fn told(&self, zxid: Zxid) -> i64 {
        self.door.hub.catch_up(&self.client);
        let zxid = wire_zxid(zxid);
        self.told.fetch_max(zxid, Ordering::Relaxed).max(zxid)
    }

    fn count(&self, done: bool) {
        self.door.replica.count(Entrance::ZooKeeper, if done { RequestEnd::Done } else { RequestEnd::Refused });
    }
}

/// Returns a function that appends `body` to the bytes of a frame.
fn bytes(body: Vec<u8>) -> impl FnOnce(&mut Vec<u8>) {
    move |out| out.extend_from_slice(&body)
}
