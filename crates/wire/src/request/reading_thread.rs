//! Thread for reads that take long.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use accept::{Pass, Windows};
use replica::background::leave_the_processor;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use crate::client::end::{End, NO_THREAD};
use crate::request::slices::{LongRead, Sink};

/// Largest number of long reads that are executed at the same time. Each of them keeps a state in
/// memory. Further reads wait without a state, except reads that must be answered from an older
/// state.
const READS_MAX: usize = 64;
/// Largest number of long reads of one address that are executed at the same time.
const READS_OF_ADDRESS_MAX: u32 = 16;

/// Thread for long reads, and the bounds on their number. Every connection has at most one long
/// read. The thread executes one slice of each read in turn.
pub(crate) struct LongReads {
    places: Semaphore,
    windows: Arc<Windows>,
    jobs: Sender<Job>,
}

/// Permit for one long read on the thread. Dropping it admits another read.
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
    /// Starts the thread.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start() -> std::io::Result<LongReads> {
        let (jobs, all) = channel();
        // The thread ends when the [`LongReads`] are dropped.
        std::thread::Builder::new().name("zookeeper-reads".into()).spawn(move || take_turns(&all))?;
        Ok(LongReads { places: Semaphore::new(READS_MAX), windows: Windows::new(READS_OF_ADDRESS_MAX), jobs })
    }

    /// Waits for a permit: first within the bound of the client's address, then within the bound of
    /// all addresses.
    pub(crate) async fn enter(&self, source: Option<IpAddr>) -> Result<Seat<'_>, End> {
        let of_address = self.windows.enter(source, 1).await;
        let of_all = self.places.acquire().await.map_err(|_| NO_THREAD)?;
        Ok(Seat { _of_all: of_all, _of_address: of_address })
    }

    /// Executes a read completely, into `sink`. `None` if the thread has ended.
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
