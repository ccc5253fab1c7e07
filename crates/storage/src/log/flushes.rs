//! Groups appends to the log into flushes. One flush runs at a time; appends that arrive during a
//! flush wait for the next one.
//!
//! raft-log's flush thread could group appends itself, but it waits for more appends with a
//! timeout, which costs a lone write two task switches and a timer. Here a flush begins at once,
//! and a slow disk makes the groups larger.
//!
//! The flush thread requests the next flush itself, from the callback of the previous flush, and
//! locks the log for that. Therefore no thread that holds the log's lock may wait for the flush
//! thread. The thread's queue has room for 1,024 requests, and a send to a full queue blocks. The
//! queue does not become full, because this file has at most one request in it at any time; the few
//! others come from calls of [`crate::LogStore`].
//!
//! A leader can commit entries with the disks of other nodes, so a slow disk of its own does not
//! slow its appends down. [`Flushes::room`] bounds the bytes that wait for this disk.

use std::fmt;
use std::fs;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Instant;

use openraft::storage::IOFlushed;
use raft_log::api::raft_log_writer::RaftLogWriter;
use raft_log::codeq::OffsetSize;
use raft_log::{ChunkId, RaftLog, Segment};
use tokio::sync::{Notify, watch};

use crate::codec::{LogIdRecord, OwnerRecord};
use crate::directory::descriptors::{lend, try_lend, want_descriptors};
use crate::fatal::Fatal;
use crate::log::callback::{Done, Reach, WalCallback};
use crate::log::log_writes::LogWrites;
use crate::log::wal::WalTypes;
use crate::raft::types::TypeConfig;

type Log = RwLock<RaftLog<WalTypes>>;

/// Handle of the open log. The drop of the last handle closes the log. The flush thread holds no
/// handle, as closing waits for that thread.
#[derive(Clone)]
pub(crate) struct SharedLog {
    /// `None` only during the drop.
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
            // Temporary strong references exist only while this mutex is held, so the count is now
            // the number of handles.
            let _gate = self.flushes.gate();
            self.log.take().and_then(Arc::into_inner)
        };
        // Closed after the mutex is released: closing waits for the flush thread, which may wait
        // for the mutex.
        if let Some(log) = last {
            self.flushes.close(log.into_inner());
        }
    }
}

/// Number of unflushed bytes at which further appends wait. Raft on this node does nothing else
/// meanwhile, so a leader that waits for long is replaced by an election.
const UNFLUSHED_BYTES_MAX: u64 = 64 << 20;

pub(crate) type OnClose = Box<dyn FnOnce(u64) + Send>;

/// State of the log's flushes: the appends that wait for the disk, and how many bytes of the log
/// are written and how many are durable.
pub(crate) struct Flushes {
    pub(crate) reach: Arc<Reach>,
    /// Callback that gets the number of bytes on disk when the log is closed.
    pub(crate) on_close: Mutex<Option<OnClose>>,
    /// The log. A strong reference is taken and released only while this mutex is held.
    log: Mutex<Weak<Log>>,
    /// The last entry known to be committed. It is written to the log by [`Flushes::write_out`],
    /// and not with each append.
    committed: Mutex<Option<LogIdRecord>>,
    /// Sender for the receivers of [`Flushes::closing`]. Its drop signals that the log is closed.
    open: Mutex<Option<watch::Sender<()>>>,
    fatal: Fatal,
    /// True when the log's current file is full and the next file could not be opened for lack of a
    /// file descriptor.
    owes_file: AtomicBool,
    gathered: Mutex<Gathered>,
    /// Bytes of entries that wait for a flush or are being flushed. Atomic, because a flush that
    /// the flush thread does not accept subtracts its bytes while `gathered` is locked.
    unflushed: AtomicU64,
    /// Notified after every flush.
    flushed: Notify,
    /// Counts of appends, and of the other writes of [`crate::LogStore`] that wait for the disk.
    pub(crate) writes: LogWrites,
}

#[derive(Default)]
struct Gathered {
    under_way: bool,
    /// True if records that no caller waits for need a flush after the current one.
    owed: bool,
    waiting: Vec<IOFlushed<TypeConfig>>,
    /// Bytes of the entries in `waiting`.
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

    /// Waits until fewer than [`UNFLUSHED_BYTES_MAX`] bytes are unflushed; the next append may have
    /// any size. Returns at once after a fatal error.
    pub(crate) async fn room(&self) {
        loop {
            let flushed = self.flushed.notified();
            if self.unflushed.load(Ordering::Acquire) < UNFLUSHED_BYTES_MAX || self.fatal.check().is_err() {
                return;
            }
            flushed.await;
        }
    }

    /// Registers an append of `bytes` bytes that was just written to `log`. Completes `flushed`
    /// when its entries are on disk.
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

    /// Sends the unwritten records to the flush thread. The flush includes an fsync if a caller
    /// waits for it.
    fn flush(self: &Arc<Self>, log: &mut RaftLog<WalTypes>, gathered: &mut Gathered) -> io::Result<()> {
        gathered.under_way = true;
        gathered.owed = false;
        let (waiting, bytes) = (std::mem::take(&mut gathered.waiting), std::mem::take(&mut gathered.bytes));
        let sync = !waiting.is_empty();
        let together = Together { flushes: Arc::clone(self), waiting: Some(waiting), bytes, began: Instant::now() };
        log.flush(sync, Some(self.callback(sync, Done::Gathered(Box::new(|result| together.done(result))))))
    }

    /// Returns the callback for a flush of all records that were written so far.
    pub(crate) fn callback(&self, sync: bool, done: Done) -> WalCallback {
        let reach = sync.then(|| {
            let upto = self.reach.end.load(Ordering::Acquire);
            self.reach.asked.store(upto, Ordering::Release);
            (Arc::clone(&self.reach), upto)
        });
        WalCallback { fatal: self.fatal.clone(), reach, done }
    }

    /// Writes an owner record (the log's node, and the number of the log's bytes on disk), unless
    /// the last owner record already states the present number. Does not wait for the disk.
    pub(crate) fn mark(&self, log: &mut RaftLog<WalTypes>) -> io::Result<()> {
        let durable = self.reach.durable.load(Ordering::Acquire);
        if durable <= self.reach.marked.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some(owner) = log.log_state().user_data.clone() {
            let owner = Some(OwnerRecord { durable, ..owner });
            self.record(log, |log| log.save_user_data(owner).map(Some))?;
        }
        self.reach.marked.store(durable, Ordering::Release);
        Ok(())
    }

    /// The last entry committed since the log was opened; `None` before the first.
    pub(crate) fn committed(&self) -> MutexGuard<'_, Option<LogIdRecord>> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a record of the last committed log entry, unless the log already has this record.
    fn commit(&self, log: &mut RaftLog<WalTypes>) -> io::Result<()> {
        let Some(committed) = *self.committed() else { return Ok(()) };
        let state = log.log_state();
        // raft-log refuses a position before the recorded one or beyond the log's end, so neither
        // is recorded.
        if Some(&committed) <= state.committed() || Some(&committed) > state.last() {
            return Ok(());
        }
        self.record(log, |log| log.commit(committed).map(Some))
    }

    /// Tells whether the log needs a new owner record: the last one states fewer bytes on disk than
    /// there are after all requested flushes.
    fn owes_mark(&self) -> bool {
        self.reach.asked.load(Ordering::Acquire) > self.reach.marked.load(Ordering::Acquire)
    }

    /// Waits for a file descriptor if the log's next file could not be opened for lack of one.
    ///
    /// # Errors
    /// EMFILE when no descriptor is free for a long time.
    pub(crate) async fn file_room(&self) -> io::Result<()> {
        if !self.owes_file.load(Ordering::Acquire) {
            return Ok(());
        }
        // Counted as a write, so that a long wait makes the node report that it is not ready.
        self.writes.begin();
        let room = lend().await.map(drop);
        self.writes.end(1);
        room
    }

    /// Runs `write` and stores the end of its last record in `reach`. When no file descriptor is
    /// free for the log's next file, the record that fills the current file is still written. The
    /// later records are not written, and `owes_file` is set.
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
                // raft-log created the file, but had no descriptor to fsync its directory.
                remove_empty(Path::new(&log.config().wal.chunk_path(ChunkId(end))))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns a channel that closes when the log is closed.
    pub(crate) fn closing(&self) -> watch::Receiver<()> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().map_or_else(|| watch::channel(()).1, watch::Sender::subscribe)
    }

    /// Flushes all records, writes an owner record with the number of bytes on disk, closes the log
    /// and calls `on_close`.
    fn close(&self, log: Result<RaftLog<WalTypes>, PoisonError<RaftLog<WalTypes>>>) {
        // Declared first, so that the sender drops last.
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

    /// Requests the next flush after the end of the previous one, if records wait for a flush.
    /// Called by the flush thread.
    fn go_on(self: &Arc<Self>) {
        let mut gathered = self.gathered();
        if gathered.waiting.is_empty() && !gathered.owed {
            gathered.under_way = false;
            return;
        }
        drop(gathered);
        self.hold(|log| {
            let sent = self.flush(log, &mut self.gathered());
            // The result is dropped, as `fatal` keeps an error and stops the node.
            drop(self.fatal.note("flushing the Raft log", sent));
        });
    }

    /// Writes the id of the last committed entry and the number of the log's bytes on disk to the
    /// log. Requests a flush of all unwritten records without waiting for it; if a flush is under
    /// way, the next one has the records. Returns true if a later call will have more to write.
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

    /// Requests a flush of unwritten records, for a caller that has locked the log.
    pub(crate) fn write(self: &Arc<Self>, log: &mut RaftLog<WalTypes>) -> io::Result<()> {
        let mut gathered = self.gathered();
        if gathered.under_way {
            gathered.owed = true;
            return Ok(());
        }
        self.flush(log, &mut gathered)
    }

    /// Locks the log and runs `work` on it, unless the log is closed or has failed.
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

/// Removes the empty file at `path`. A missing file is no error; a file with content is one.
fn remove_empty(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(file) if file.len() == 0 => fs::remove_file(path),
        Ok(_) => Err(io::Error::other(format!("{} has records already", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Appends whose entries one flush writes to the disk.
struct Together {
    flushes: Arc<Flushes>,
    /// `None` once the appends have the result of the flush.
    waiting: Option<Vec<IOFlushed<TypeConfig>>>,
    bytes: u64,
    /// Time at which the flush was requested.
    began: Instant,
}

impl Together {
    /// Reports the result of the flush to the appends. Called by the flush thread.
    fn done(mut self, result: &io::Result<()>) {
        self.tell(result);
        // After an error, the flush thread and the node end without a retry.
        if result.is_ok() {
            self.flushes.go_on();
        }
    }

    fn tell(&mut self, result: &io::Result<()>) {
        let waiting = self.waiting.take().unwrap_or_default();
        if !waiting.is_empty() {
            self.flushes.writes.synced(self.began.elapsed());
        }
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

    /// raft-log's flush thread can end without calling its callbacks, for example when it cannot
    /// remove a chunk.
    #[test]
    fn a_flush_thread_that_is_gone_stops_the_node() {
        let (fatal, runtime) = (Fatal::new(), tokio::runtime::Builder::new_current_thread().build().unwrap());
        let (done, told) = <TypeConfig as openraft::type_config::TypeConfigExt>::oneshot();
        let flushes = Arc::new(Flushes::new(Weak::new(), fatal.clone()));
        drop(Together { flushes, waiting: Some(vec![IOFlushed::signal(done)]), bytes: 0, began: Instant::now() });
        assert!(runtime.block_on(told).unwrap().is_err());
        assert!(fatal.reason().unwrap().contains("the flush thread is gone"));
    }
}
