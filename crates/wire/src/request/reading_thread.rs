//! The thread for reads that take long. It takes them in turns, a slice each.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use accept::{Pass, Windows};
use replica::background::leave_the_processor;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use crate::client::end::End;
use crate::request::slices::{LongRead, Sink};

/// Long reads that are measured or made at once. Each keeps the state that it reads as it was;
/// beyond, they wait, and keep none but one that was given.
const READS_MAX: usize = 64;
/// Long reads of one address.
const READS_OF_ADDRESS_MAX: u32 = 16;

/// The thread, and the places on it. Every connection has one read there at most, and they take
/// turns, a slice each.
pub(crate) struct LongReads {
    places: Semaphore,
    windows: Arc<Windows>,
    jobs: Sender<Job>,
}

/// A place on the thread.
pub(crate) struct Seat<'a> {
    _of_all: SemaphorePermit<'a>,
    _of_address: Pass,
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
        Ok(LongReads { places: Semaphore::new(READS_MAX), windows: Windows::new(READS_OF_ADDRESS_MAX), jobs })
    }

    /// Waits for a place on the thread, first behind those of the same address.
    pub(crate) async fn enter(&self, source: Option<IpAddr>) -> Result<Seat<'_>, NoReadingThread> {
        let of_address = self.windows.enter(source, 1).await;
        let of_all = self.places.acquire().await.map_err(|_| NoReadingThread)?;
        Ok(Seat { _of_all: of_all, _of_address: of_address })
    }

    /// Does a read to its end.
    pub(crate) async fn run(&self, read: LongRead, sink: Sink) -> Option<(LongRead, Result<Sink, i32>)> {
        let (done, ended) = oneshot::channel();
        self.jobs.send(Job { read, sink, done }).ok()?;
        ended.await.ok()
    }
}

fn take_turns(all: &Receiver<Job>) {
    leave_the_processor();
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

/// The error of a long read whose thread is gone: the door closes.
pub(crate) struct NoReadingThread;

impl From<NoReadingThread> for End {
    fn from(NoReadingThread: NoReadingThread) -> End {
        End::Cut("the thread for long reads is gone")
    }
}
