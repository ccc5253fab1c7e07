//! Appends that wait for the disk: one flush at a time, and whatever is appended meanwhile goes with the next one.
//!
//! raft-log's flush thread could gather by itself, but only by waiting for company with a timeout, which costs a lone
//! write two task switches and a timer. Here the disk's own slowness is what gathers: nothing ever waits for company.
//!
//! The next flush is sent by the flush thread, from the callback of the one before. So that thread takes the log's
//! guard, and nobody may wait for it under that guard: the queue to it has no bound in bytes that an append could wait
//! at. What waits is bounded by those who append: the proposals under way at a leader, the frames at a follower.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use openraft::storage::IOFlushed;
use raft_log::RaftLog;
use raft_log::api::raft_log_writer::RaftLogWriter;

use crate::fatal::Fatal;
use crate::types::TypeConfig;
use crate::wal::{Done, WalCallback, WalTypes};

type Log = RwLock<RaftLog<WalTypes>>;

/// The log, for as long as somebody holds it. The last one to let go closes it, and that is never the flush thread, which
/// closing waits for.
#[derive(Clone)]
pub(crate) struct SharedLog {
    /// Empty only while it is dropped.
    log: Option<Arc<Log>>,
    pub(crate) flushes: Arc<Flushes>,
}

impl SharedLog {
    pub(crate) fn new(log: RaftLog<WalTypes>, fatal: Fatal) -> SharedLog {
        let log = Arc::new(RwLock::new(log));
        let flushes = Flushes { log: Mutex::new(Arc::downgrade(&log)), fatal, gathered: Mutex::default() };
        SharedLog { log: Some(log), flushes: Arc::new(flushes) }
    }
}

impl Deref for SharedLog {
    type Target = Log;

    fn deref(&self) -> &Log {
        self.log.as_deref().expect("it is there until it is dropped")
    }
}

impl fmt::Debug for SharedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedLog")
    }
}

impl Drop for SharedLog {
    fn drop(&mut self) {
        let last = {
            // Under this guard nobody else has taken hold of it for a moment, so the count is that of its holders.
            let _gate = self.flushes.gate();
            self.log.take().and_then(Arc::into_inner)
        };
        // Outside: closing waits for the flush thread, which may wait for the guard.
        drop(last);
    }
}

/// Who waits for which flush.
pub(crate) struct Flushes {
    /// Taken hold of under this guard only, and let go under it.
    log: Mutex<Weak<Log>>,
    fatal: Fatal,
    gathered: Mutex<Gathered>,
}

#[derive(Default)]
struct Gathered {
    under_way: bool,
    waiting: Vec<IOFlushed<TypeConfig>>,
}

impl Flushes {
    fn gate(&self) -> MutexGuard<'_, Weak<Log>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells `flushed` when all that is in the log by now is on disk.
    pub(crate) fn add(self: &Arc<Self>, log: &mut RaftLog<WalTypes>, flushed: IOFlushed<TypeConfig>) -> io::Result<()> {
        let mut gathered = self.gathered();
        gathered.waiting.push(flushed);
        if gathered.under_way { Ok(()) } else { self.flush(log, &mut gathered) }
    }

    fn flush(self: &Arc<Self>, log: &mut RaftLog<WalTypes>, gathered: &mut Gathered) -> io::Result<()> {
        gathered.under_way = true;
        let flushed = std::mem::take(&mut gathered.waiting);
        let done = Done::Gathered(Together { flushes: Arc::clone(self), flushed });
        log.flush(true, Some(WalCallback { fatal: self.fatal.clone(), done }))
    }

    /// After a flush: the next one, if somebody waits for it. Called by the flush thread.
    fn go_on(self: &Arc<Self>) {
        let mut gathered = self.gathered();
        if gathered.waiting.is_empty() {
            gathered.under_way = false;
            return;
        }
        drop(gathered);
        self.hold(|log| {
            let sent = self.flush(log, &mut self.gathered());
            // The error stops the node, whoever waits.
            drop(self.fatal.note("flushing the Raft log", sent));
        });
    }

    /// Sends what is not written yet to the disk, without waiting for anything.
    pub(crate) fn write_out(&self) {
        self.hold(|log| drop(self.fatal.note("writing the Raft log", log.flush(false, None))));
    }

    /// Does something with the log, unless it is closed by now or has failed.
    fn hold(&self, work: impl FnOnce(&mut RaftLog<WalTypes>)) {
        let gate = self.gate();
        let Some(log) = gate.upgrade() else { return };
        if self.fatal.check().is_ok()
            && let Ok(mut log) = log.write()
        {
            work(&mut log);
        }
        drop(log);
        drop(gate);
    }
}

/// Appends that one flush brings to the disk.
pub(crate) struct Together {
    flushes: Arc<Flushes>,
    flushed: Vec<IOFlushed<TypeConfig>>,
}

impl Together {
    /// The flush came to its end. Called by the flush thread.
    pub(crate) fn done(mut self, result: &io::Result<()>) {
        tell(std::mem::take(&mut self.flushed), result);
        // After an error the flush thread ends, and the node: nothing is retried.
        if result.is_ok() {
            self.flushes.go_on();
        }
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        if !self.flushed.is_empty() {
            let gone =
                self.flushes.fatal.note("flushing the Raft log", Err(io::Error::other("the flush thread is gone")));
            tell(std::mem::take(&mut self.flushed), &gone);
        }
    }
}

fn tell(waiting: Vec<IOFlushed<TypeConfig>>, result: &io::Result<()>) {
    for flushed in waiting {
        flushed.io_completed(match result {
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It ends without a word when it cannot remove a chunk, for one.
    #[test]
    fn a_flush_thread_that_is_gone_stops_the_node() {
        let (fatal, runtime) = (Fatal::new(), tokio::runtime::Builder::new_current_thread().build().unwrap());
        let (done, told) = <TypeConfig as openraft::type_config::TypeConfigExt>::oneshot();
        let flushes = Arc::new(Flushes { log: Mutex::default(), fatal: fatal.clone(), gathered: Mutex::default() });
        drop(Together { flushes, flushed: vec![IOFlushed::signal(done)] });
        assert!(runtime.block_on(told).unwrap().is_err());
        assert!(fatal.reason().unwrap().contains("the flush thread is gone"));
    }
}
