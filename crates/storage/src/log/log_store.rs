//! The Raft log, the vote and the committed position: one ordered, checksummed stream in raft-log.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use raft_log::api::raft_log_writer::RaftLogWriter;
use raft_log::{RaftLog, Segment};
use tokio::sync::{oneshot, watch};

use crate::codec::{EntryRecord, LogIdRecord, OwnerRecord, VoteRecord};
use crate::directory::descriptors::lend;
use crate::failpoint;
use crate::fatal::Fatal;
use crate::log::callback::{Done, Reach};
use crate::log::flushes::{OnClose, SharedLog};
use crate::log::log_writes::LogWrites;
use crate::log::tail;
use crate::log::wal::WalTypes;
use crate::raft::types::{Entry, LogId, TypeConfig, Vote};

/// Size in bytes of one file (chunk) of the log. A purge deletes whole chunks only.
const CHUNK_BYTES_MAX: usize = 64 << 20;
/// Size in bytes of the cache of the newest entries. Entries for a follower that keeps up come from
/// it, without reads from disk. raft-log also caches all entries of the chunk that it writes, so
/// the cache can exceed this size by one chunk.
const CACHE_BYTES_MAX: usize = 64 << 20;
/// Time for which raft-log's flush thread waits for more appends. Zero, as [`crate::log::flushes`]
/// groups the appends.
const FLUSH_WAIT: Duration = Duration::ZERO;
/// Bytes in the flush thread's queue at which raft-log would make an append wait. Practically
/// unlimited, as [`crate::log::flushes`] bounds the bytes.
const FLUSH_QUEUE_BYTES_MAX: usize = usize::MAX / 2;
/// Delay before the id of the last committed entry, and the number of the log's bytes on disk, are
/// written to the log. With the delay, one record serves many entries.
const WRITE_WAIT: Duration = Duration::from_millis(20);
/// Largest size in bytes of the entries in one append request to a follower; a larger first entry
/// is sent alone.
const READ_BYTES_MAX: u64 = 4 << 20;

/// The Raft log of one node. Clones share it.
///
/// After any error, [`Fatal`] keeps the error, and every later call is refused with it as the
/// reason.
#[derive(Clone, Debug)]
pub struct LogStore {
    log: SharedLog,
    /// True while a task waits for [`WRITE_WAIT`] before it calls `Flushes::write_out`.
    writes_soon: Arc<AtomicBool>,
    fatal: Fatal,
}

impl LogStore {
    /// Opens the log in `dir`, or creates an empty one. Cuts off unflushed records that a power cut
    /// damaged; any other damage is an error. `incarnation` is the data directory's random number,
    /// which the log's owner records contain.
    ///
    /// # Errors
    /// An IO error: `InvalidData` for damage, `WouldBlock` if another process has the log open.
    pub(crate) fn open(dir: &Path, incarnation: u64, fatal: Fatal) -> io::Result<LogStore> {
        std::fs::create_dir_all(dir)?;
        tail::mend(dir, incarnation)?;
        let dir = dir.to_str().ok_or_else(|| io::Error::other("the data directory's name is not UTF-8"))?;
        let mut config = raft_log::Config::new(dir);
        config.wal.chunk_max_size = Some(failpoint::chunk_bytes().unwrap_or(CHUNK_BYTES_MAX));
        config.wal.flush_batch_wait = Some(FLUSH_WAIT);
        config.wal.flush_queue_max_bytes = Some(FLUSH_QUEUE_BYTES_MAX);
        config.wal.read_buffer_size = Some(1 << 20);
        config.log_cache_capacity = Some(CACHE_BYTES_MAX);
        let log = RaftLog::open(Arc::new(config))?;
        let log = SharedLog::new(log, fatal.clone());
        Ok(LogStore { log, writes_soon: Arc::default(), fatal })
    }

    /// First disk error of this node's storage, in the log or elsewhere.
    pub fn fatal(&self) -> &Fatal {
        &self.fatal
    }

    /// Returns a channel that closes when the last clone was dropped and the log is closed.
    pub(crate) fn closing(&self) -> watch::Receiver<()> {
        self.log.flushes.closing()
    }

    /// Counts of the writes that wait for the disk.
    pub fn writes(&self) -> &LogWrites {
        &self.log.flushes.writes
    }

    /// The current vote; `None` if the node never voted.
    pub fn vote(&self) -> Option<Vote> {
        self.read().log_state().vote().copied().map(Vote::from)
    }

    /// Position of the last entry; when all entries were purged, of the last purged entry. `None`
    /// for an empty log.
    pub fn last(&self) -> Option<LogId> {
        self.read().log_state().last().copied().map(LogId::from)
    }

    /// Position of the last entry known to be committed: the later one of the positions in this
    /// process's memory and in the log on disk.
    pub fn committed(&self) -> Option<LogId> {
        let written = self.read().log_state().committed().copied();
        written.max(*self.log.flushes.committed()).map(LogId::from)
    }

    /// Position of the last entry that was purged; `None` before the first purge.
    pub fn purged(&self) -> Option<LogId> {
        self.read().log_state().purged().copied().map(LogId::from)
    }

    /// Bytes that the log occupies on disk.
    pub fn disk_bytes(&self) -> u64 {
        self.read().on_disk_size()
    }

    /// Owner record of this log: its node, and the number of its bytes on disk. `None` in a new
    /// log.
    pub(crate) fn owner(&self) -> Option<OwnerRecord> {
        self.read().log_state().user_data.clone()
    }

    /// Number of bytes ever written to this log, purged bytes included.
    pub(crate) fn end(&self) -> u64 {
        self.read().stat().open_chunk.global_end
    }

    /// Writes `owner`, the record of the node that owns the log. On return, this record and all
    /// records that were in the opened log are durable. Blocking.
    pub(crate) fn begin(&self, owner: OwnerRecord) -> io::Result<()> {
        self.durably_at_start(|log| log.save_user_data(Some(owner)))?;
        let mut log = self.write()?;
        // All records that were in the opened log are on disk now. An owner record that states this
        // number of bytes tells later damage to them from an unflushed end.
        self.log.flushes.mark(&mut log)?;
        log.flush(false, None)
    }

    /// Writes a vote into a new log, before Raft uses it. Durable on return. Blocking.
    pub(crate) fn begin_vote(&self, vote: &Vote) -> io::Result<()> {
        let vote = VoteRecord::from(vote);
        self.durably_at_start(|log| log.save_vote(vote))
    }

    /// Marks all entries up to `last`, the last entry of a snapshot, as purged in a new log.
    /// Durable on return. Blocking.
    pub(crate) fn begin_behind(&self, last: LogId) -> io::Result<()> {
        let last = LogIdRecord::from(&last);
        self.durably_at_start(|log| log.purge(last))
    }

    /// Positions up to which the log is written and durable. The returned value does not keep the
    /// log open.
    pub(crate) fn reach(&self) -> Arc<Reach> {
        Arc::clone(&self.log.flushes.reach)
    }

    /// Sets the callback that gets the number of bytes on disk when the log is closed without an
    /// error.
    pub(crate) fn set_on_close(&self, on_close: OnClose) {
        *self.log.flushes.on_close.lock().unwrap_or_else(PoisonError::into_inner) = Some(on_close);
    }

    /// Removes uncommitted entries that conflict with the snapshot whose last entry is `contained`.
    /// Such entries remain when the process was killed after a snapshot arrived and before Raft cut
    /// the log. Durable on return; returns true if entries were removed. Blocking.
    pub(crate) fn cut_refuted(&self, contained: LogId) -> io::Result<bool> {
        let index = contained.index;
        let found = self.entries(index, index.saturating_add(1), u64::MAX)?.pop();
        let upto = LogIdRecord::from(&contained);
        let refuted = match found {
            Some(entry) => entry.log_id != contained,
            None => ends_on_another_branch(&self.read(), &upto),
        };
        if refuted {
            self.durably_at_start(|log| go_behind(log, upto))?;
        }
        Ok(refuted)
    }

    /// Runs `write` and blocks until its record is on disk.
    fn durably_at_start(&self, write: impl FnOnce(&mut RaftLog<WalTypes>) -> io::Result<Segment>) -> io::Result<()> {
        let (opener, flushed) = std::sync::mpsc::sync_channel(1);
        {
            let mut log = self.write()?;
            self.log.flushes.record(&mut log, |log| write(log).map(Some))?;
            log.flush(true, Some(self.log.flushes.callback(true, Done::Opener(opener))))?;
        }
        flushed.recv().map_err(|_| io::Error::other("the flush thread is gone"))?
    }

    /// Tells whether neither a vote nor an entry was ever written.
    pub(crate) fn is_blank(&self) -> bool {
        let log = self.read();
        let state = log.log_state();
        state.vote().is_none() && state.last().is_none() && state.purged().is_none()
    }

    fn read(&self) -> RwLockReadGuard<'_, RaftLog<WalTypes>> {
        self.log.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> io::Result<RwLockWriteGuard<'_, RaftLog<WalTypes>>> {
        self.fatal.check()?;
        self.log.write().map_err(|_| io::Error::other("a thread panicked while it wrote the Raft log"))
    }

    /// Starts a task that writes two values to the log after [`WRITE_WAIT`]: the id of the last
    /// committed entry, and how many bytes of the log are on disk. Does nothing if such a task
    /// already waits.
    fn write_soon(&self) {
        if self.writes_soon.swap(true, Ordering::AcqRel) {
            return;
        }
        let (waits, flushes) = (Arc::clone(&self.writes_soon), Arc::clone(&self.log.flushes));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(WRITE_WAIT).await;
                waits.store(false, Ordering::Release);
                // Bytes of a flush that is still under way are recorded after another `WRITE_WAIT`,
                // by this task or a new one.
                if !flushes.write_out() || waits.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        });
    }

    /// Runs `write` and waits until its records are on disk.
    async fn durably<F>(&self, doing: &'static str, write: F) -> io::Result<()>
    where
        F: FnOnce(&mut RaftLog<WalTypes>) -> io::Result<Option<Segment>>,
    {
        self.fatal.note(doing, self.log.flushes.file_room().await)?;
        self.flushed(doing, true, write).await?;
        self.write_soon();
        Ok(())
    }

    /// Runs `write`, requests a flush, and waits for its end. With `sync`, the flush includes an
    /// fsync.
    async fn flushed<F>(&self, doing: &'static str, sync: bool, write: F) -> io::Result<()>
    where
        F: FnOnce(&mut RaftLog<WalTypes>) -> io::Result<Option<Segment>>,
    {
        let (waiter, flushed) = oneshot::channel();
        {
            let mut log = self.write()?;
            let queued = self.log.flushes.record(&mut log, write);
            let done = self.log.flushes.callback(sync, Done::Waiter(waiter));
            self.fatal.note(doing, queued.and_then(|()| log.flush(sync, Some(done))))?;
        }
        self.writes().begin();
        let result = flushed.await.unwrap_or_else(|_| Err(io::Error::other("the flush thread is gone")));
        self.writes().end(1);
        self.fatal.note(doing, result)
    }
}

/// Returns `entries`, or an empty list if the first of them does not have the index `from`: a purge
/// can remove that entry after Raft decided to send it. openraft asserts that the entries for a
/// follower have no gap; without entries it sends a heartbeat, and later a snapshot.
pub fn without_a_gap(from: u64, entries: Vec<Entry>) -> Vec<Entry> {
    let begins = entries.first().is_some_and(|entry| entry.log_id.index == from);
    if begins { entries } else { Vec::new() }
}

/// Converts `range` to a half-open range of indexes.
fn half_open(range: impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(&index) => index,
        Bound::Excluded(&index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(&index) => index.saturating_add(1),
        Bound::Excluded(&index) => index,
        Bound::Unbounded => u64::MAX,
    };
    (from, to.max(from))
}

impl LogStore {
    /// Returns the entries with indexes in `[from, to)`, up to `bytes_max` bytes in total, but at
    /// least the first entry.
    fn entries(&self, from: u64, to: u64, bytes_max: u64) -> io::Result<Vec<Entry>> {
        let log = self.read();
        let mut entries = Vec::new();
        let mut bytes = 0;
        for item in log.read(from, to) {
            let (log_id, payload) = self.fatal.note("reading the Raft log", item)?;
            bytes += <WalTypes as raft_log::Types>::payload_size(&payload);
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            let entry = EntryRecord { log_id, payload }.into_entry();
            entries.push(self.fatal.note("reading the Raft log", entry.map_err(io::Error::from))?);
        }
        Ok(entries)
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (from, to) = half_open(range);
        self.entries(from, to, u64::MAX)
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.vote())
    }

    async fn limited_get_log_entries(&mut self, from: u64, to: u64) -> io::Result<Vec<Entry>> {
        let entries = self.entries(from, to, READ_BYTES_MAX)?;
        Ok(without_a_gap(from, entries))
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        Ok(LogState { last_purged_log_id: self.purged(), last_log_id: self.last() })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let vote = VoteRecord::from(vote);
        self.durably("saving the vote", |log| {
            failpoint::pass("vote.save")?;
            log.save_vote(vote).map(Some)
        })
        .await?;
        self.fatal.note("saving the vote", failpoint::pass("vote.saved"))
    }

    // Does not wait for the disk: a lost committed position costs only work at the next start.
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.fatal.check()?;
        let Some(committed) = committed else { return Ok(()) };
        *self.log.flushes.committed() = Some(LogIdRecord::from(&committed));
        self.write_soon();
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.committed())
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.log.flushes.room().await;
        let mut bytes = 0;
        let entries = entries.into_iter().map(|entry| {
            let EntryRecord { log_id, payload } = EntryRecord::from(&entry);
            bytes += <WalTypes as raft_log::Types>::payload_size(&payload);
            (log_id, payload)
        });
        let mut entries = entries.peekable();
        let doing = "appending to the Raft log";
        let mut log = loop {
            self.fatal.note(doing, self.log.flushes.file_room().await)?;
            let mut log = self.write()?;
            let appended = failpoint::pass("log.append")
                .and_then(|()| self.log.flushes.record(&mut log, |log| log.append(entries.by_ref()).map(Some)));
            self.fatal.note(doing, appended)?;
            // Entries remain if the log's next file could not be opened: they wait for a
            // descriptor.
            if entries.peek().is_none() {
                break log;
            }
        };
        drop(entries);
        let result = failpoint::pass("log.flush").and_then(|()| self.log.flushes.add(&mut log, bytes, flushed));
        drop(log);
        self.write_soon();
        self.fatal.note(doing, result)
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let next = last.map_or(0, |id| id.index + 1);
        self.durably("truncating the Raft log", |log| {
            failpoint::pass("log.truncate")?;
            // If no entry stands behind `last`, there is nothing to cut. raft-log would refuse to
            // cut at a purged entry.
            if log.log_state().last().is_none_or(|id| id.index < next) {
                return Ok(None);
            }
            log.truncate(next).map(Some)
        })
        .await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        let upto = LogIdRecord::from(&upto);
        let doing = "purging the Raft log";
        let loan = self.fatal.note(doing, lend().await)?;
        self.durably(doing, |log| {
            failpoint::pass("log.purge")?;
            let refuted = ends_on_another_branch(log, &upto);
            if refuted { go_behind(log, upto) } else { log.purge(upto) }.map(Some)
        })
        .await?;
        // raft-log's flush thread removes the purged files after the flush above, and syncs their
        // directory before the next flush, which is requested here.
        self.flushed(doing, false, |_| Ok(None)).await?;
        drop(loan);
        self.fatal.note(doing, failpoint::pass("log.purged"))
    }
}

/// Tells whether the log ends before the committed entry `contained`, with an entry of a later
/// term. Then that last entry is not committed. raft-log would take it for a later one than
/// `contained`, because it compares terms first.
fn ends_on_another_branch(log: &RaftLog<WalTypes>, contained: &LogIdRecord) -> bool {
    log.log_state().last().is_some_and(|last| last.index < contained.index && last > contained)
}

/// Removes all entries that are not known to be committed, and marks all up to `contained` as
/// purged, so that the log ends with `contained`.
fn go_behind(log: &mut RaftLog<WalTypes>, contained: LogIdRecord) -> io::Result<Segment> {
    let state = log.log_state();
    let kept = [state.committed(), state.purged()].into_iter().flatten().copied().max_by_key(|id| id.index);
    // An earlier program may have purged beyond a last entry of a later term.
    if state.last().copied() > kept {
        let next = kept.map_or(0, |kept| kept.index + 1);
        log.truncate(next)?;
    }
    log.purge(contained)
}

#[cfg(test)]
mod tests;
