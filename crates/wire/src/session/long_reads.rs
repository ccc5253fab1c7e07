//! Long reads, executed in slices on a thread of their own, and setWatches, executed in steps.

use std::sync::Arc;

use jute::{Record, ReplyHeader, Request};
use tokio::task::yield_now;
use znode::{State, Zxid};

use crate::client::end::{End, NO_THREAD};
use crate::request::operations::needs;
use crate::request::pending::Arrival;
use crate::request::slices::{LongRead, Sink, Walk};
use crate::request::watches::{self, Comeback, WatchRequest};
use crate::session::connection::Connection;

/// Number of bytes in front of an answer's body: the frame's length and the header.
const HEAD_BYTES: usize = 20;

/// A read, and the length of its answer in one state.
struct Measurement {
    read: LongRead,
    zxid: Zxid,
    /// Length of the answer's body in bytes, or the error code of an answer without a body.
    length: Result<usize, i32>,
}

impl Measurement {
    /// Returns the length of the answer in bytes. An answer with an error code has only the header.
    fn bytes(&self) -> usize {
        HEAD_BYTES + self.length.unwrap_or_default()
    }
}

impl Connection {
    /// Answers a long read, and returns the end of the connection if the read causes it. The read
    /// is answered from `state`. If that is `None`, it is answered from the state at the moment
    /// when there is memory for the answer.
    pub(crate) async fn read_long(
        &self,
        xid: i32,
        arrival: Arrival,
        request: Request,
        state: Option<Arc<State>>,
    ) -> Option<End> {
        let end = self.read_in_slices(xid, &request, state).await.err();
        self.answered(arrival, end);
        end
    }

    /// Answers a read in slices. While the read waits for memory for its answer, it has no permit
    /// for the reading thread, and holds no state, because an old state takes memory. So the length
    /// is measured in one state, and the answer is made from a later state.
    ///
    /// Two kinds of reads hold a state while they wait. One has a given `state`, because later
    /// states would show the client's later writes. The other has an answer that has grown beyond
    /// the memory that was reserved for it.
    async fn read_in_slices(&self, xid: i32, request: &Request, state: Option<Arc<State>>) -> Result<(), End> {
        let (door, outbox) = (&self.door, &self.client.outbox);
        let source = outbox.account().source();
        let sets_or_hears = self.client.watches();
        let is_given = state.is_some();
        let mut permit = door.long_reads.enter(source).await?;
        let mut measured = self.measure(state.unwrap_or_else(|| door.replica.state()), request).await?;
        let mut waiting = outbox.account().queue_up(measured.bytes());
        let (mut place, mut releases) = (waiting.place_now(), false);
        if is_given {
            if place.is_none() {
                // Other reads use the thread while this one waits.
                drop(permit);
                place = Some(waiting.place().await);
                permit = door.long_reads.enter(source).await?;
            }
        } else if place.is_none() || sets_or_hears {
            if place.is_none() {
                drop((measured, permit));
                place = Some(waiting.place().await);
                permit = door.long_reads.enter(source).await?;
            }
            let looked = self.look_for(request);
            releases = looked.1;
            if let Err(code) = looked.2 {
                self.refuse(releases, xid, looked.0.last_zxid(), code);
                return Ok(());
            }
            measured = self.measure(looked.0, request).await?;
        }
        if let Err(code) = measured.length {
            self.refuse(releases, xid, measured.zxid, code);
            return Ok(());
        }
        let bytes = measured.bytes();
        let place = match place {
            Some(place) if place.len() >= bytes => place,
            // The answer has grown since it was measured. The reserved memory is freed first, so
            // that a read never waits while it holds some.
            less => {
                drop((less, permit));
                let place = outbox.account().place(bytes).await;
                permit = door.long_reads.enter(source).await?;
                place
            }
        };
        let frame = self.write_in_slices(xid, measured, bytes).await?;
        drop(permit);
        outbox.push_placed(frame, Some(place), releases);
        Ok(())
    }

    /// Measures the answer of a read in `state`.
    async fn measure(&self, state: Arc<State>, request: &Request) -> Result<Measurement, End> {
        let (door, client, zxid) = (&self.door, &self.client, state.last_zxid());
        let walk = needs(request).walk;
        let bytes_max = match walk {
            Some(Walk::Reads(_)) => self.multi_read_bytes_max(),
            _ => door.unread.answer_bytes_max(),
        };
        let bytes_max = bytes_max.min(door.unread.answer_bytes_max().saturating_sub(HEAD_BYTES));
        let read = LongRead::new(state, client.identities(), client.session(), walk, bytes_max);
        let (read, measured) = door.long_reads.run(read, Sink::Measure(0)).await.ok_or(NO_THREAD)?;
        Ok(Measurement { read, zxid, length: measured.map(|sink| sink.len()) })
    }

    /// Makes the frame of the answer to a measured read. The frame has `bytes` bytes.
    async fn write_in_slices(&self, xid: i32, measured: Measurement, bytes: usize) -> Result<Vec<u8>, End> {
        let Measurement { read, zxid, .. } = measured;
        let mut frame = Vec::with_capacity(bytes);
        frame.resize(HEAD_BYTES, 0);
        let written = self.door.long_reads.run(read, Sink::Write(frame)).await;
        let Some((_, Ok(Sink::Write(mut frame)))) = written else { return Err(NO_THREAD) };
        let mut head = Vec::with_capacity(HEAD_BYTES);
        i32::try_from(frame.len() - 4).unwrap_or(i32::MAX).write(&mut head);
        ReplyHeader { xid, zxid: self.told(zxid), error: 0 }.write(&mut head);
        frame[..HEAD_BYTES].copy_from_slice(&head);
        self.count_sent(frame.len(), zxid, true);
        Ok(frame)
    }

    /// Returns three values: the state for a read, after setting a watch if the request asks for
    /// one; whether events are held back until the answer; and an error code if the watch exceeds a
    /// bound.
    fn look_for(&self, request: &Request) -> (Arc<State>, bool, Result<(), i32>) {
        let (hub, client) = (&self.door.hub, &*self.client);
        match needs(request).watches {
            Some(WatchRequest::Read(watching, which)) => {
                let (state, set) = watches::look(hub, client, (watching, which), |bound| self.refuse_watch(bound));
                (state, true, set)
            }
            _ if client.watches() => (hub.look(client, |look| look.state().clone()), true, Ok(())),
            _ => (self.door.replica.state(), false, Ok(())),
        }
    }

    /// Answers setWatches: sets the watches of the client's former connection again, in steps.
    /// Other clients are served between the steps. Returns the end of the connection if not all
    /// watches could be set.
    pub(crate) async fn bring_back(&self, xid: i32, arrival: Arrival, mut comeback: Comeback) -> Option<End> {
        let brought = loop {
            if let Some(brought) = comeback.step(&self.door.hub, &self.client) {
                break brought;
            }
            self.door.hub.step_aside();
            yield_now().await;
        };
        let end = brought.map(|(zxid, body)| self.client.outbox.release(self.frame(xid, zxid, body))).err();
        self.answered(arrival, end);
        end
    }
}
