//! Requests and answers on one connection, from the handshake to its end.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use accept::{ReadHalf, WriteHalf};
use jute::{DecodeError, Frames, Input, MULTI_OPS_MAX, Record, ReplyHeader, Request, RequestHeader, error, framed, op};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};
use znode::State;

use crate::client::end::{End, NO_ROOM_FOR_A_PACKET, TOO_LONG};
use crate::client::inbox::{AsideBounds, Inbox, PassOutcome, WaitCause};
use crate::client::outbox::{PlaceClaim, Room};
use crate::client::read_into::read_into;
use crate::client::select_lazy::beside;
use crate::client::shared_bytes::{AnswerPlace, Charge, UNCOUNTED_BYTES_MAX};
use crate::request::operations::{answer, is_write, needs, prepare};
use crate::request::outcome::Outcome;
use crate::request::pending::{Arrival, DueRequest, PendingRequests, Resolution};
use crate::request::reads::Reader;
use crate::request::slices::is_long;
use crate::request::watches::{self, WatchRequest};
use crate::request::writes::{self, Asker};
use crate::session::connection::Connection;
use crate::session::requests::{propose, sync};

/// Longest time to write the remaining bytes of the outbox when a connection ends after a last
/// answer.
const FAREWELL: Duration = Duration::from_secs(2);

/// Number of written bytes of a long answer at which their memory is freed, while the remaining
/// bytes are still being written.
const FREED_BYTES_MIN: usize = 64 << 10;

/// Registration of a client in the hub (all connections and their watches). Dropping the
/// registration removes the client and its watches. It is dropped when the connection ends, or with
/// the connection's task when the connection is closed to admit another one.
struct HubMembership<'a>(&'a Connection);

impl Drop for HubMembership<'_> {
    fn drop(&mut self) {
        let Connection { door, client, .. } = self.0;
        client.outbox.abort();
        // The session's timeout counts from the client's last sign of life, so the leader is told
        // of it if it does not know it yet.
        if client.liveness.is_owed() {
            door.replica.touch_soon(client.arrival.credential);
        }
        door.counts.given_up(client.counts.look().outstanding);
        // Without a runtime the process ends, and the watches need not be removed.
        if door.hub.leave(client)
            && let Ok(runtime) = Handle::try_current()
        {
            let (door, client) = (Arc::clone(door), Arc::clone(client));
            runtime.spawn(async move {
                while door.hub.leave(&client) {
                    yield_now().await;
                }
            });
        }
    }
}

/// Functions of the task that takes and answers the client's requests.
impl Connection {
    /// Serves the client until the connection ends.
    pub(crate) async fn serve(&self, reading: ReadHalf, writing: WriteHalf, frames: Frames) {
        let membership = HubMembership(self);
        self.client.outbox.attach(writing.direct());
        let mut writer = pin!(self.write(writing));
        let aside = async {
            tokio::select! {
                end = self.keep_alive() => end,
                () = &mut writer => End::Cut("it does not read what it is sent"),
                () = self.client.closed() => End::Cut("the door or another connection ended it"),
            }
        };
        let end = beside(pin!(self.answer_all(reading, frames)), pin!(aside)).await;
        if end == End::Finished {
            self.client.outbox.finish();
            let _ = timeout(FAREWELL, writer).await;
        }
        drop(membership);
        let (session, addr) = (self.client.session(), self.client.arrival.addr);
        debug!(%session, %addr, ?end, "a connection ended");
        let End::Bound(bound) = end else { return };
        self.door.replica.count_refused(bound);
        if let Some(times) = self.door.cut.note(Instant::now()) {
            let cause = bound.as_str();
            warn!(%session, %addr, cause, times, "a ZooKeeper client was cut off, and will come back with the same");
        }
    }

    /// Writes the bytes of the outbox that no other task has sent. Returns when no more bytes will
    /// come, or when the client accepts none for too long.
    async fn write(&self, mut socket: WriteHalf) {
        let patience = Duration::from_millis(self.door.config.write_timeout_ms);
        let outbox = &self.client.outbox;
        let _writing = outbox.writing();
        while let Some(mut bytes) = outbox.next().await {
            let mut at = 0;
            while at < bytes.len() {
                match timeout(patience, socket.write(&bytes[at..])).await {
                    Ok(Ok(written)) if written > 0 && outbox.wrote(written) => at += written,
                    _ => return,
                }
                // Written bytes are no longer counted, so their memory is freed soon.
                if at >= FREED_BYTES_MIN && at > bytes.len() / 4 {
                    bytes.drain(..std::mem::take(&mut at));
                    bytes.shrink_to_fit();
                }
            }
            drop(bytes);
            // With TLS, written bytes may still be in a buffer.
            if !matches!(timeout(patience, socket.flush()).await, Ok(Ok(()))) {
                return;
            }
        }
        let _ = socket.shutdown().await;
    }

    /// Takes requests as they come, and answers them in order.
    async fn answer_all(&self, mut socket: ReadHalf, frames: Frames) -> End {
        let mut inbox = Inbox::new(frames);
        let mut pending = PendingRequests::default();
        let mut claim = PlaceClaim::default();
        let mut half = self.door.incomplete_packets.share(&self.client);
        let outbox = &self.client.outbox;
        let mut requests = self.door.requests.account(outbox.source()).charge();
        let mut now = Instant::now();
        loop {
            // A time slice may end between two answers: answers of reads can be long, and all reads
            // that wait for one write can be answered at the same time.
            while !pending.is_spent()
                && let Some(due) = pending.take_due(|wanted| outbox.has_room_in_turn(wanted, &claim))
            {
                if let Some(end) = self.resolve(due, &mut pending, claim.end()) {
                    return end;
                }
            }
            requests.set(pending.bytes() + inbox.aside_bytes());
            let eased = self.door.requests.eased();
            let wait = match self.take_all(&mut inbox, &mut pending, &mut requests, now) {
                Ok(wait) => wait,
                Err(end) => return end,
            };
            if wait == WaitCause::Rest {
                outbox.send_now();
                yield_now().await;
                pending.begin_turn();
                continue;
            }
            let reads = matches!(wait, WaitCause::More | WaitCause::Pings);
            // A connection that is not read for now has complete packets that wait, or an
            // incomplete one within its own bound, and is not counted. A packet that waits for room
            // among all requests is counted like an incomplete one, so its connection may be closed
            // for others.
            if !half.set(if reads || wait == WaitCause::Bytes { inbox.unread() } else { 0 }) {
                return NO_ROOM_FOR_A_PACKET;
            }
            inbox.frames().release();
            let waits = pending.waits();
            let wanted = [pending.wanted(), if let WaitCause::Room(room) = wait { Some(room) } else { None }];
            tokio::select! {
                biased;
                // The connection was not read while it waited, so bytes that the client has sent
                // meanwhile count as a sign of life now.
                end = pending.go_on(), if waits => {
                    if let Some(end) = end {
                        return end;
                    }
                    now = Instant::now();
                    self.client.liveness.heard(now);
                }
                () = outbox.room(wanted, &mut claim), if wanted != [None; 2] => {}
                () = eased, if wait == WaitCause::Bytes => {
                    now = Instant::now();
                    self.client.liveness.heard(now);
                }
                read = read_into(&mut socket, inbox.frames()), if reads => match read {
                    Ok(0) | Err(_) => return End::Cut("the client closed it"),
                    Ok(_) => {
                        now = Instant::now();
                        self.client.liveness.heard(now);
                    }
                },
                // This branch is polled when all work that could be done is done, so that answers
                // which became due together are sent together.
                () = outbox.send_and_wait() => {}
            }
        }
    }

    /// Takes the packets that have arrived, as far as the bounds permit. Returns the event for
    /// which the connection waits next.
    fn take_all<'a>(
        &'a self,
        inbox: &mut Inbox,
        pending: &mut PendingRequests<'a>,
        requests: &mut Charge,
        now: Instant,
    ) -> Result<WaitCause, End> {
        let config = &self.door.config;
        loop {
            if self.client.outbox.is_aborted() {
                return Err(End::Cut("it does not read what it is sent"));
            }
            if pending.is_spent() {
                return Ok(WaitCause::Rest);
            }
            if pending.len() >= config.outstanding_max || pending.bytes() >= config.outstanding_bytes_max {
                return Ok(WaitCause::Turn);
            }
            let Some(packet) = inbox.peek().map_err(|_| TOO_LONG)? else { return Ok(WaitCause::More) };
            let op = RequestHeader::from_bytes(packet).map(|header| header.op);
            // A request such as a sync must see the client's earlier writes and no later ones. So a
            // later write is not proposed until that request is answered.
            if pending.holds_writes_back() && op.is_ok_and(is_write) {
                let wait = self.take_pings(inbox, pending, requests, now);
                requests.set(pending.bytes() + inbox.aside_bytes());
                return wait;
            }
            // Packets that were put aside are counted already.
            if inbox.aside_bytes() == 0 && !requests.has_room_for(pending.bytes() + packet.len()) {
                return Ok(WaitCause::Bytes);
            }
            // A read needs only short room here: it waits for room for its answer later, when the
            // answers before it are sent.
            let room = if op == Ok(op::PING) { Room::Ping } else { Room::Short };
            if !self.has_room_now(room) {
                return Ok(WaitCause::Room(room));
            }
            let packet = inbox.next_packet().map_err(|_| TOO_LONG)?.unwrap_or_default();
            pending.spend(packet.len());
            let end = self.take(&packet, pending, now);
            requests.set(pending.bytes() + inbox.aside_bytes());
            if let Some(end) = end {
                return Err(end);
            }
        }
    }

    /// Takes one packet. A request that cannot be answered at once becomes a pending request.
    fn take<'a>(&'a self, packet: &[u8], pending: &mut PendingRequests<'a>, since: Instant) -> Option<End> {
        self.count_received();
        let mut input = Input::new(packet);
        let Ok(RequestHeader { xid, op }) = input.read() else { return Some(End::Cut("a packet has no header")) };
        let body = &packet[packet.len() - input.remaining()..];
        match op {
            op::PING => {
                self.client.liveness.ping(since);
                return None;
            }
            op::AUTH => return self.prove(xid, body),
            _ => {}
        }
        self.client.counts.begun(xid, op);
        self.door.counts.begun(xid, op);
        let (bytes, arrival) = (packet.len(), Arrival { at: since, op });
        let due = move |resolution| DueRequest { xid, bytes, arrival, is_barrier: false, resolution };
        if matches!(op, op::SET_WATCHES | op::SET_WATCHES2) {
            self.client.watches_from_now_on();
            return self.in_order(due(Resolution::back(op, body)), pending);
        }
        let request = match self.decode(op, body) {
            Ok(request) => request,
            Err(reason) => return self.in_order(due(Resolution::undecodable(reason)), pending),
        };
        let (identities, state) = (self.client.identities(), self.door.replica.state());
        let asker =
            Asker { session: self.client.arrival.credential.session, identities: &identities, limits: state.limits() };
        match prepare(&request, asker) {
            Some(Ok((op, shape))) => {
                let turn = self.client.next_turn();
                let closes = matches!(request, Request::CloseSession);
                let bytes = bytes + writes::acl_bytes(&op);
                let write = async move {
                    let done = propose(self, turn, op, &shape).await;
                    DueRequest { bytes, ..due(Resolution::Done(if closes { done.last() } else { done })) }
                };
                pending.push(bytes, false, Box::pin(write));
                None
            }
            Some(Err(refused)) => self.in_order(due(Resolution::Done(Outcome::Answer(None, refused))), pending),
            None => match request {
                Request::Sync(path) => {
                    let sync = async move {
                        let resolution = Resolution::Done(sync(&self.door, &path).await);
                        DueRequest { is_barrier: true, ..due(resolution) }
                    };
                    pending.push(bytes, true, Box::pin(sync));
                    None
                }
                request
                    if !pending.is_empty()
                        && !pending.holds_writes_back()
                        && self.is_answered_behind(&state, &request) =>
                {
                    let (moment, turn) = (self.door.hub.read_point(&self.client), self.client.last_turn());
                    let read = async move {
                        due(match moment.await {
                            Ok(state) => Resolution::Then(Box::new(request), state, turn),
                            Err(_) => Resolution::Done(Outcome::Cut("the state for a read was passed over")),
                        })
                    };
                    pending.push(bytes, false, Box::pin(read));
                    None
                }
                request => self.in_order(due(Resolution::Now(Box::new(request))), pending),
            },
        }
    }

    /// Decodes a request. If it sets a watch, the client gets events from now on.
    fn decode(&self, op: i32, body: &[u8]) -> Result<Request, DecodeError> {
        let decoded = Request::read(op, body);
        match &decoded {
            Ok(Request::Multi(ops)) => self.tell_of_too_many_ops(ops.len()),
            Err(DecodeError::TooManyOps) => self.tell_of_too_many_ops(MULTI_OPS_MAX + 1),
            Ok(request) if needs(request).watches.is_some() => self.client.watches_from_now_on(),
            Ok(_) | Err(_) => {}
        }
        decoded
    }

    /// Answers a request at once if no request is pending and the outbox has room. Otherwise the
    /// request becomes a pending request.
    fn in_order<'a>(&'a self, mut due: DueRequest, pending: &mut PendingRequests<'a>) -> Option<End> {
        if pending.is_empty() && due.resolution.wanted().is_none_or(|wanted| self.client.outbox.has_room(wanted)) {
            if let Resolution::Done(Outcome::Answer(at, _)) = &mut due.resolution {
                *at = Some(self.door.replica.state().last_zxid());
            }
            return self.resolve(due, pending, None);
        }
        due.is_barrier = matches!(due.resolution, Resolution::Now(_) | Resolution::Back(_));
        pending.push(due.bytes, due.is_barrier, Box::pin(std::future::ready(due)));
        None
    }

    /// Takes the pings that arrive after a write that is held back, and puts other packets aside,
    /// as far as the bounds permit. A client that waits for a long answer must still get answers to
    /// its pings.
    pub(crate) fn take_pings(
        &self,
        inbox: &mut Inbox,
        pending: &mut PendingRequests<'_>,
        requests: &Charge,
        now: Instant,
    ) -> Result<WaitCause, End> {
        let config = &self.door.config;
        let bytes_max = if requests.has_room() { config.outstanding_bytes_max } else { UNCOUNTED_BYTES_MAX };
        let bounds = AsideBounds {
            requests: config.outstanding_max.saturating_sub(pending.len()),
            bytes: bytes_max.saturating_sub(pending.bytes()),
        };
        loop {
            if pending.is_spent() {
                return Ok(WaitCause::Rest);
            }
            if !self.has_room_now(Room::Ping) {
                return Ok(WaitCause::Room(Room::Ping));
            }
            match inbox.pass(bounds).map_err(|_| TOO_LONG)? {
                PassOutcome::Ping => {
                    self.count_received();
                    self.client.liveness.ping(now);
                    pending.spend(0);
                }
                PassOutcome::Aside(bytes) => pending.spend(bytes),
                PassOutcome::More => return Ok(WaitCause::Pings),
                PassOutcome::Full => return Ok(WaitCause::Turn),
            }
        }
    }

    /// Answers a request once all requests before it are answered. A request that
    /// had to wait for memory has `place`, the memory reserved for its answer. A read that is done
    /// in slices frees `place`, and reserves memory again when the length of its answer is known.
    fn resolve<'a>(
        &'a self,
        due: DueRequest,
        pending: &mut PendingRequests<'a>,
        place: Option<AnswerPlace>,
    ) -> Option<End> {
        let DueRequest { xid, arrival, resolution, .. } = due;
        let session = self.client.session();
        let end = match resolution {
            Resolution::Done(Outcome::Answer(at, body)) => {
                self.reply(xid, at.unwrap_or_default(), body, place);
                None
            }
            Resolution::Done(Outcome::Last(at, body)) => {
                self.reply(xid, at.unwrap_or_default(), body, place);
                Some(End::Finished)
            }
            Resolution::Done(Outcome::Cut(why)) => Some(End::Cut(why)),
            Resolution::Now(request) if is_long(&self.door.replica.state(), session, needs(&request).walk) => {
                pending.read(Box::pin(self.read_long(xid, arrival, *request, None)));
                return None;
            }
            Resolution::Then(request, state, turn) if is_long(&state, session, needs(&request).walk) => {
                // If the client has sent writes after this read, the given state is used, because a
                // later one may show them.
                let state = (turn != self.client.last_turn()).then_some(state);
                pending.read(Box::pin(self.read_long(xid, arrival, *request, state)));
                return None;
            }
            Resolution::Back(comeback) => {
                pending.read(Box::pin(self.bring_back(xid, arrival, comeback)));
                return None;
            }
            Resolution::Now(request) => {
                self.read(xid, &request, pending, place);
                None
            }
            Resolution::Then(request, state, _) => {
                let body = self.body_from(&state, &request);
                pending.spend(body.as_ref().map_or(0, Vec::len));
                self.reply(xid, state.last_zxid(), body, place);
                None
            }
        };
        self.answered(arrival, end);
        end
    }

    /// Tells whether a read can be answered from the state right after the client's previous write.
    /// Later writes then need not wait for the read. A long read is not answered in this way,
    /// because it would hold that state for long.
    fn is_answered_behind(&self, state: &State, request: &Request) -> bool {
        !self.client.watches() && !is_long(state, self.client.session(), needs(request).walk)
    }

    /// Answers a request from this node's state, without the leader.
    fn read(&self, xid: i32, request: &Request, pending: &mut PendingRequests<'_>, place: Option<AnswerPlace>) {
        let (hub, client) = (&self.door.hub, &*self.client);
        let watched = match needs(request).watches {
            Some(WatchRequest::Read(watching, which)) => {
                let (state, set) = watches::look(hub, client, (watching, which), |bound| self.refuse_watch(bound));
                (state.last_zxid(), set.and_then(|()| self.body_from(&state, request)))
            }
            Some(WatchRequest::Add(add)) => watches::add(hub, client, add, |bound| self.refuse_watch(bound)),
            Some(WatchRequest::Check(which)) => watches::check(hub, client, which, false),
            Some(WatchRequest::Remove(which)) => watches::check(hub, client, which, true),
            // An event for the client may be about to be sent, so the state is taken while the hub
            // is locked.
            None if client.watches() => {
                let state = hub.look(client, |look| look.state().clone());
                (state.last_zxid(), self.body_from(&state, request))
            }
            None => {
                let state = self.door.replica.state();
                let body = self.body_from(&state, request);
                pending.spend(body.as_ref().map_or(0, Vec::len));
                self.reply(xid, state.last_zxid(), body, place);
                return;
            }
        };
        let (zxid, body) = watched;
        pending.spend(body.as_ref().map_or(0, Vec::len));
        self.release(xid, zxid, body, place);
    }

    /// Logs, at a limited rate, that a multi is refused if it has more operations than `ops_max`.
    fn tell_of_too_many_ops(&self, ops: usize) {
        let ops_max = self.door.replica.state().limits().ops_max;
        if ops > ops_max as usize
            && let Some(times) = self.door.long_multis.note(Instant::now())
        {
            let (session, addr) = (self.client.session(), self.client.arrival.addr);
            warn!(%session, %addr, ops, ops_max, times, "a multi is refused: it has too many operations");
        }
    }

    fn body_from(&self, state: &State, request: &Request) -> Result<Vec<u8>, i32> {
        let identities = self.client.identities();
        let reader = Reader { state, identities: &identities };
        answer(request, reader, self.client.session(), self.multi_read_bytes_max())
    }

    /// Answers an auth packet at once, ahead of requests that came before it.
    fn prove(&self, xid: i32, body: &[u8]) -> Option<End> {
        let proven = jute::AuthRequest::from_bytes(body)
            .is_ok_and(|auth| self.client.prove(auth, &self.door.config.super_digest));
        let error = if proven { error::OK } else { error::AUTH_FAILED };
        self.client.outbox.push(framed(|out| ReplyHeader { xid, zxid: 0, error }.write(out)));
        if !proven {
            self.door.auth_failed.fetch_add(1, Ordering::Relaxed);
        }
        if proven { None } else { Some(End::Finished) }
    }
}

#[cfg(test)]
mod tests;
