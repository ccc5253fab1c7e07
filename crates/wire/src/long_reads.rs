//! Reads that take long: in slices, on a thread of their own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use jute::{Record, ReplyHeader, Request};
use rustix::process::{getpriority_process, setpriority_process};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::yield_now;
use tokio::time::Instant;
use znode::State;

use crate::connection::{Connection, End};
use crate::slices::{LongRead, Sink};
use crate::watches::{self, Comeback, Watching};

/// Long reads under way at once. Each keeps the state that it reads as it was; beyond, they wait without one.
const READS_MAX: usize = 64;
/// Of those who would share a core with it, what answers pings and replicates goes first.
const NICE: i32 = 5;
/// The length and the header of an answer.
const HEAD_BYTES: usize = 20;

/// The thread, and the places on it. Every connection has one read there at most, and they take turns, a slice each.
pub(crate) struct LongReads {
    places: Semaphore,
    jobs: Sender<Job>,
}

struct Job {
    read: LongRead,
    sink: Sink,
    done: oneshot::Sender<(LongRead, Result<Sink, i32>)>,
}

impl LongReads {
    /// # Errors
    /// When there is no thread to be had.
    pub(crate) fn start() -> std::io::Result<LongReads> {
        let (jobs, all) = channel();
        // It ends with the door.
        std::thread::Builder::new().name("zookeeper-reads".into()).spawn(move || take_turns(&all))?;
        Ok(LongReads { places: Semaphore::new(READS_MAX), jobs })
    }

    /// Does a read to its end.
    async fn run(&self, read: LongRead, sink: Sink) -> Option<(LongRead, Result<Sink, i32>)> {
        let (done, ended) = oneshot::channel();
        self.jobs.send(Job { read, sink, done }).ok()?;
        ended.await.ok()
    }
}

fn take_turns(all: &Receiver<Job>) {
    let own = getpriority_process(None).unwrap_or_default();
    let _ = setpriority_process(None, own.max(NICE));
    let mut waiting = VecDeque::new();
    loop {
        waiting.extend(all.try_iter());
        let Some(mut job): Option<Job> = waiting.pop_front().or_else(|| all.recv().ok()) else { return };
        if job.done.is_closed() {
            continue;
        }
        match job.read.step(&mut job.sink) {
            Ok(slice) if !slice.is_last => waiting.push_back(job),
            Ok(_) => _ = job.done.send((job.read, Ok(job.sink))),
            Err(code) => _ = job.done.send((job.read, Err(code))),
        }
    }
}

impl Connection {
    /// Answers a long read: from `state`, or from that of the moment when its place comes. Nothing is made before there is a
    /// place for all of the answer.
    pub(crate) async fn read_long(
        &self,
        xid: i32,
        since: Instant,
        request: Request,
        state: Option<Arc<State>>,
    ) -> Option<End> {
        let end = match &request {
            Request::SetWatches(set) => {
                self.bring_back_slowly(xid, &crate::requests::with_no_persistent_ones(set)).await
            }
            Request::SetWatches2(set) => self.bring_back_slowly(xid, set).await,
            _ => self.read_in_slices(xid, &request, state).await,
        };
        self.answered(since, end);
        end
    }

    async fn read_in_slices(&self, xid: i32, request: &Request, state: Option<Arc<State>>) -> Option<End> {
        const GONE: Option<End> = Some(End::Cut("the thread for long reads is gone"));
        let (door, client) = (&self.door, &self.client);
        let Ok(_place) = door.long_reads.places.acquire().await else { return GONE };
        let (state, releases, set) = match state {
            Some(state) => (state, false, Ok(())),
            None => self.look_for(request),
        };
        let zxid = state.last_zxid();
        let refuse = |code| {
            self.refuse(releases, xid, zxid, code);
            None
        };
        if let Err(code) = set {
            return refuse(code);
        }
        let all = &door.unread;
        let bytes_max = match request {
            Request::MultiRead(_) => door.config.packet_bytes_max,
            _ => all.bytes_max().saturating_sub(HEAD_BYTES),
        };
        let read = LongRead::new(state, client.identities(), client.session(), request, bytes_max);
        let Some((read, measured)) = door.long_reads.run(read, Sink::Measure(0)).await else { return GONE };
        let length = match measured {
            Ok(measured) => measured.len(),
            Err(code) => return refuse(code),
        };
        let place = all.place(HEAD_BYTES + length).await;
        let mut frame = Vec::with_capacity(HEAD_BYTES + length);
        frame.resize(HEAD_BYTES, 0);
        let written = door.long_reads.run(read, Sink::Write(frame)).await;
        let Some((_, Ok(Sink::Write(mut frame)))) = written else { return GONE };
        let mut head = Vec::with_capacity(HEAD_BYTES);
        i32::try_from(frame.len() - 4).unwrap_or(i32::MAX).write(&mut head);
        ReplyHeader { xid, zxid: self.told(zxid), error: 0 }.write(&mut head);
        frame[..HEAD_BYTES].copy_from_slice(&head);
        self.count_sent(frame.len(), zxid, true);
        client.outbox.push_placed(frame, place, releases);
        None
    }

    /// The state, with the watch on it where there is to be one; and whether events are held back until the answer.
    fn look_for(&self, request: &Request) -> (Arc<State>, bool, Result<(), i32>) {
        let (hub, client) = (&self.door.hub, &*self.client);
        match request {
            Request::GetChildren(which) | Request::GetChildren2(which) if which.watch => {
                let (state, set) = watches::look(hub, client, Watching::Children { with_stat: false }, which);
                (state, true, set)
            }
            _ if client.watches() => (hub.look(client, |look| look.state().clone()), true, Ok(())),
            _ => (self.door.replica.state(), false, Ok(())),
        }
    }

    /// Brings many watches back. Between two looks others have their turn.
    async fn bring_back_slowly(&self, xid: i32, set: &jute::SetWatches2) -> Option<End> {
        let mut comeback = Comeback::new(set);
        loop {
            match comeback.step(&self.door.hub, &self.client) {
                Some(brought) => return self.brought_back(xid, &brought),
                None => yield_now().await,
            }
        }
    }
}
