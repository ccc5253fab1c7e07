//! Appends that wait for the disk: one flush at a time, and whatever is appended meanwhile goes
//! with the next one.
//!
//! raft-log's flush thread could gather by itself, but only by waiting for company with a timeout,
//! which costs a lone write two task switches and a timer. Here the disk's own slowness is what
//! gathers: nothing ever waits for company.
//!
//! The next flush is sent by the flush thread, from the callback of the one before. So that thread
//! takes the log's guard, and no holder of that guard may wait for it. Its queue has room for 1,024
//! requests and waits when it is full: so there is never more than one flush of ours in it, synced
//! or not, and a call or two of [`crate::LogStore`].
//!
//! Others may commit what this disk has not got, so those who append do not bound what waits for a
//! slow one: [`Flushes::room`] does.

use std::fmt;
use std::fs;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use openraft::storage::IOFlushed;
use raft_log::api::raft_log_writer::RaftLogWriter;
use raft_log::codeq::OffsetSize;
use raft_log::{ChunkId, RaftLog, Segment};
use tokio::sync::{Notify, watch};

use crate::codec::OwnerRecord;
use crate::directory::descriptors::{lend, try_lend, want_descriptors};
use crate::fatal::Fatal;
use crate::log::callback::{Appends, Done, Reach, WalCallback};
use crate::log::log_writes::LogWrites;
use crate::log::wal::{WalLogId, WalOwner, WalTypes};
use crate::raft::types::TypeConfig;

type Log = RwLock<RaftLog<WalTypes>>;

/// The log, for as long as a handle on it is held. The last one to let go closes it, and that is
/// never the flush thread, which closing waits for.
#[derive(Clone)]
pub(crate) struct SharedLog {
    /// Empty only while it is dropped.
    log: Option<Arc<Log>>,
    pub(crate) flushes: Arc<Flushes>,
}

impl SharedLog {
    pub(crate) fn new(log: RaftLog<WalTypes>, fatal: Fatal) -> SharedLog {
        let log = Arc::new(RwLock::new(log));
        let flushes = Flushes::new(Arc::downgrade(&log), fatal);
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
            // Under this guard no other caller has taken hold of it for a moment, so the count is
            // that of its holders.
            let _gate = self.flushes.gate();
            self.log.take().and_then(Arc::into_inner)
        };
        // Outside: closing waits for the flush thread, which may wait for the guard.
        if let Some(log) = last {
            self.flushes.close(log.into_inner());
        }
    }
}

/// Appends wait while so much of the log is not on disk: a leader whose disk is that late hears of
/// nothing any more, and another one is elected.
const UNFLUSHED_BYTES_MAX: u64 = 64 << 20;

pub(crate) type OnClose = Box<dyn FnOnce(u64) + Send>;

/// Who waits for which flush.
pub(crate) struct Flushes {
    pub(crate) reach: Arc<Reach>,
    /// Told how many bytes are on disk when the log is closed.
    pub(crate) on_close: Mutex<Option<OnClose>>,
    /// Taken hold of under this guard only, and let go under it.
    log: Mutex<Weak<Log>>,
    /// The last entry known to be committed. A record says so with the next [`Flushes::write_out`],
    /// and not with each append.
    committed: Mutex<Option<WalLogId>>,
    /// Dropped when the log is closed.
    open: Mutex<Option<watch::Sender<()>>>,
    fatal: Fatal,
    /// The log's file is full, and there was no descriptor for the next one.
    owes_file: AtomicBool,
    gathered: Mutex<Gathered>,
    /// Bytes of entries that are waiting or in the flush under way. Not under the guard: what a
    /// flush that cannot be sent drops counts it too.
    unflushed: AtomicU64,
    /// Told after every flush.
    flushed: Notify,
    /// Appends, and what [`crate::LogStore`] waits for itself.
    pub(crate) writes: LogWrites,
}

#[derive(Default)]
struct Gathered {
    under_way: bool,
    /// Something is to be written that no caller waits for.
    owed: bool,
    waiting: Vec<IOFlushed<TypeConfig>>,
    /// Of the entries that are waiting.
    bytes: u64,
}

impl Flushes {
    fn new(log: Weak<Log>, fatal: Fatal) -> Flushes {
        let (gathered, unflushed, flushed) = (Mutex::default(), AtomicU64::default(), Notify::new());
        let (reach, on_close, writes) = (Arc::default(), Mutex::default(), LogWrites::default());
        let (log, open) = (Mutex::new(log), Mutex::new(Some(watch::Sender::new(()))));
        let (committed, owes_file) = (Mutex::default(), AtomicBool::new(false));
        Flushes { reach, on_close, log, committed, open, fatal, owes_file, gathered, unflushed, flushed, writes }
    }

    fn gate(&self) -> MutexGuard<'_, Weak<Log>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for an append, which may then be of any size; at once after an
    /// error.
    pub(crate) async fn room(&self) {
        loop {
            let flushed = self.flushed.notified();
            if self.unflushed.load(Ordering::Acquire) < UNFLUSHED_BYTES_MAX || self.fatal.check().is_err() {
                return;
            }
            flushed.await;
        }
    }

    /// Tells `flushed` when all that is in the log by now is on disk; the last `bytes` of it came
    /// with this append.
    pub(crate) fn add(
        self: &Arc<Self>,
        log: &mut RaftLog<WalTypes>,
        bytes: u64,
        flushed: IOFlushed<TypeConfig>,
    ) -> io::Result<()> {
        self.writes.begin();
        let mut gathered = self.gathered();
        gathered.waiting.push(flushed);
        gathered.bytes += bytes;
        self.unflushed.fetch_add(bytes, Ordering::AcqRel);
        if gathered.under_way { Ok(()) } else { self.flush(log, &mut gathered) }
    }

    /// Sends what is not written yet, synced when a caller waits for it.
    fn flush(self: &Arc<Self>, log: &mut RaftLog<WalTypes>, gathered: &mut Gathered) -> io::Result<()> {
        gathered.under_way = true;
        gathered.owed = false;
        let (waiting, bytes) = (std::mem::take(&mut gathered.waiting), std::mem::take(&mut gathered.bytes));
        let sync = !waiting.is_empty();
        let together = Together { flushes: Arc::clone(self), waiting: Some(waiting), bytes };
        log.flush(sync, Some(self.callback(sync, Done::Gathered(Box::new(together)))))
    }

    /// For a flush of all that was written so far.
    pub(crate) fn callback(&self, sync: bool, done: Done) -> WalCallback {
        let reach = sync.then(|| {
            let upto = self.reach.end.load(Ordering::Acquire);
            self.reach.asked.store(upto, Ordering::Release);
            (Arc::clone(&self.reach), upto)
        });
        WalCallback { fatal: self.fatal.clone(), reach, done }
    }

    /// Writes a record that says how much of the log is on disk, if it was begun and none says so
    /// yet. It is not waited for.
    pub(crate) fn mark(&self, log: &mut RaftLog<WalTypes>) -> io::Result<()> {
        let durable = self.reach.durable.load(Ordering::Acquire);
        if durable <= self.reach.marked.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some(WalOwner(owner)) = log.log_state().user_data.clone() {
            let owner = Some(WalOwner(OwnerRecord { durable, ..owner }));
            self.record(log, |log| log.save_user_data(owner).map(Some))?;
        }
        self.reach.marked.store(durable, Ordering::Release);
        Ok(())
    }

    /// The last entry known to be committed since the log was opened.
    pub(crate) fn committed(&self) -> MutexGuard<'_, Option<WalLogId>> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a record of the last entry that is committed, if none says so yet.
    fn commit(&self, log: &mut RaftLog<WalTypes>) -> io::Result<()> {
        let Some(committed) = *self.committed() else { return Ok(()) };
        let state = log.log_state();
        // raft-log refuses to go back, and to commit what it does not hold: both mean that there is
        // nothing to say.
        if Some(&committed) <= state.committed() || Some(&committed) > state.last() {
            return Ok(());
        }
        self.record(log, |log| log.commit(committed).map(Some))
    }

    /// Whether more is on disk, or about to be, than a record says.
    fn owes_mark(&self) -> bool {
        self.reach.asked.load(Ordering::Acquire) > self.reach.marked.load(Ordering::Acquire)
    }

    /// Waits until there is a descriptor for the next file of the log, if it is owed.
    ///
    /// # Errors
    /// That there is none, for long.
    pub(crate) async fn file_room(&self) -> io::Result<()> {
        if !self.owes_file.load(Ordering::Acquire) {
            return Ok(());
        }
        // A node whose log waits for long is not ready.
        self.writes.begin();
        let room = lend().await.map(drop);
        self.writes.end(1);
        room
    }

    /// Writes records, and takes note of the last one, if there is one. A record that fills the
    /// log's file is written when there is no descriptor for the next file. Those behind it are not
    /// then, and the file is owed.
    pub(crate) fn record(
        &self,
        log: &mut RaftLog<WalTypes>,
        write: impl FnOnce(&mut RaftLog<WalTypes>) -> io::Result<Option<Segment>>,
    ) -> io::Result<()> {
        let _loan = if self.owes_file.load(Ordering::Acquire) { try_lend() } else { None };
        match write(log) {
            Ok(last) => {
                self.owes_file.store(false, Ordering::Release);
                last.iter().for_each(|last| self.reach.end.store(*last.end(), Ordering::Release));
                Ok(())
            }
            Err(error) if want_descriptors(&error) => {
                self.owes_file.store(true, Ordering::Release);
                let end = log.stat().open_chunk.global_end;
                self.reach.end.store(end, Ordering::Release);
                // It was made, and there was no descriptor to sync its name with.
                remove_empty(Path::new(&log.config().wal.chunk_path(ChunkId(end))))
            }
            Err(error) => Err(error),
        }
    }

    /// Ends when the log is closed.
    pub(crate) fn closing(&self) -> watch::Receiver<()> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().map_or_else(|| watch::channel(()).1, watch::Sender::subscribe)
    }

    /// Makes everything durable, says so in the log and to whom it concerns, and lets go of the
    /// log.
    fn close(&self, log: Result<RaftLog<WalTypes>, PoisonError<RaftLog<WalTypes>>>) {
        // The first local, so that it goes last.
        let _open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Ok(mut log) = log else { return };
        if self.fatal.reason().is_some() {
            return;
        }
        let (opener, flushed) = std::sync::mpsc::sync_channel(1);
        let sent = self.commit(&mut log);
        let sent = sent.and_then(|()| log.flush(true, Some(self.callback(true, Done::Opener(opener)))));
        if sent.is_err() || !matches!(flushed.recv(), Ok(Ok(()))) || self.mark(&mut log).is_err() {
            return;
        }
        drop(log);
        let on_close = self.on_close.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(on_close) = on_close {
            on_close(self.reach.durable.load(Ordering::Acquire));
        }
    }

    /// After a flush: the next one, if there is something to flush. Called by the flush thread.
    fn go_on(self: &Arc<Self>) {
        let mut gathered = self.gathered();
        if gathered.waiting.is_empty() && !gathered.owed {
            gathered.under_way = false;
            return;
        }
        drop(gathered);
        self.hold(|log| {
            let sent = self.flush(log, &mut self.gathered());
            // The error stops the node, whether a caller waits or not.
            drop(self.fatal.note("flushing the Raft log", sent));
        });
    }

    /// Sends what is not written yet to the disk, and how much of the rest is there, without
    /// waiting for anything: behind the flush that is under way, if one is. Answers whether there
    /// will be more to say.
    pub(crate) fn write_out(self: &Arc<Self>) -> bool {
        if self.owes_file.load(Ordering::Acquire) && try_lend().is_none() {
            return true;
        }
        let mut more = false;
        self.hold(|log| {
            let written = self.commit(log).and_then(|()| self.mark(log)).and_then(|()| self.write(log));
            more = self.fatal.note("writing the Raft log", written).is_ok() && self.owes_mark();
        });
        more
    }

    /// The same for a holder of the log.
    pub(crate) fn write(self: &Arc<Self>, log: &mut RaftLog<WalTypes>) -> io::Result<()> {
        let mut gathered = self.gathered();
        if gathered.under_way {
            gathered.owed = true;
            return Ok(());
        }
        self.flush(log, &mut gathered)
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

/// Removes a file that has nothing, if it is there.
fn remove_empty(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(file) if file.len() == 0 => fs::remove_file(path),
        Ok(_) => Err(io::Error::other(format!("{} has records already", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Appends that one flush brings to the disk.
struct Together {
    flushes: Arc<Flushes>,
    /// `None` when they have been told.
    waiting: Option<Vec<IOFlushed<TypeConfig>>>,
    bytes: u64,
}

impl Appends for Together {
    fn done(mut self: Box<Self>, result: &io::Result<()>) {
        self.tell(result);
        // After an error the flush thread ends, and the node: nothing is retried.
        if result.is_ok() {
            self.flushes.go_on();
        }
    }
}

impl Together {
    fn tell(&mut self, result: &io::Result<()>) {
        let waiting = self.waiting.take().unwrap_or_default();
        self.flushes.writes.end(waiting.len());
        for flushed in waiting {
            flushed.io_completed(match result {
                Ok(()) => Ok(()),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            });
        }
        self.flushes.unflushed.fetch_sub(self.bytes, Ordering::AcqRel);
        self.flushes.flushed.notify_waiters();
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        if self.waiting.is_some() {
            let gone = Err(io::Error::other("the flush thread is gone"));
            let gone = self.flushes.fatal.note("flushing the Raft log", gone);
            self.tell(&gone);
        }
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
        let flushes = Arc::new(Flushes::new(Weak::new(), fatal.clone()));
        drop(Together { flushes, waiting: Some(vec![IOFlushed::signal(done)]), bytes: 0 });
        assert!(runtime.block_on(told).unwrap().is_err());
        assert!(fatal.reason().unwrap().contains("the flush thread is gone"));
    }
}
