//! A Raft log on a disk that loses what was not flushed.
//!
//! Appends, votes and purges are writes into one stream, as in the real log. They can be read at
//! once. A flush takes some time, and makes all earlier writes durable. A loss of power keeps a
//! random number of the first writes after the last flush. So does the end of a process whose flush
//! has failed: that process still reads what it wrote, and only the next process notices the loss.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend, RaftLogReader};
use storage::{Command, Entry, LogId, LogWrites, TypeConfig, Vote};
use tokio::sync::oneshot;

use crate::hub::{Event, Hub};
use crate::network::MachineId;

/// Content of the log.
#[derive(Clone, Default)]
struct Contents {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Entry>,
}

enum Write {
    Vote(Vote),
    Committed(LogId),
    Append(Vec<Entry>),
    Truncate(u64),
    Purge(LogId),
}

impl Contents {
    fn apply(&mut self, write: &Write) {
        match write {
            Write::Vote(vote) => self.vote = Some(*vote),
            Write::Committed(id) => self.committed = Some(*id),
            Write::Append(entries) => {
                self.entries.extend(entries.iter().map(|entry| (entry.log_id.index, entry.clone())));
            }
            Write::Truncate(from) => drop(self.entries.split_off(from)),
            Write::Purge(upto) => {
                self.entries = self.entries.split_off(&(upto.index + 1));
                self.purged = Some(*upto);
            }
        }
    }

    fn last(&self) -> Option<LogId> {
        self.entries.last_key_value().map(|(_, entry)| entry.log_id).or(self.purged)
    }
}

/// Receiver of a flush's result.
enum Waiter {
    Raft(IOFlushed<TypeConfig>),
    Writer(oneshot::Sender<io::Result<()>>),
}

impl Waiter {
    fn tell(self, result: io::Result<()>) {
        match self {
            Waiter::Raft(flushed) => flushed.io_completed(result),
            Waiter::Writer(writer) => drop(writer.send(result)),
        }
    }
}

/// An entry that the node once wrote, kept for checks even after a purge.
#[derive(Clone, Debug)]
pub struct Archived {
    /// The entry.
    pub entry: Entry,
    /// The time at which this node first wrote the entry.
    pub written_ms: u64,
}

#[derive(Default)]
struct Disk {
    current: Contents,
    durable: Contents,
    unflushed: VecDeque<Write>,
    /// Number of writes in `unflushed` that the flush under way covers; `None` without a flush.
    flushing: Option<usize>,
    waiters: VecDeque<(u64, Waiter)>,
    /// Counts of the present process's writes that wait for a flush, and of those whose flush has
    /// ended.
    waited_for: LogWrites,
    /// Number of all writes so far.
    written: u64,
    /// All entries that were ever written, by index, the purged ones included.
    archive: BTreeMap<u64, Archived>,
    boot: u64,
    /// Whether the next flush fails.
    fails: bool,
    /// Whether a flush has failed since the node's last start.
    failed: bool,
    /// Number of the node's starts after which a flush failed.
    failures: u64,
    /// Whether a vote of this node for another node is to be recorded in `granted`.
    watched: bool,
    /// The candidate of the watched vote; `None` until this node has voted.
    granted: Option<MachineId>,
    /// Text in the next entry that is damaged when it is written; `None` for no damage.
    flips: Option<&'static [u8]>,
    /// Longest time of a flush in milliseconds. A slow disk takes up to `slow_ms` longer.
    flush_ms: u64,
    slow_ms: u64,
}

impl Disk {
    /// Ends the process that used the disk. The next one reads what is durable.
    fn end_process(&mut self) {
        self.boot += 1;
        self.current = self.durable.clone();
        self.waiters.clear();
        (self.flushing, self.fails, self.failed) = (None, false, false);
    }
}

/// The log of a node, which outlives the node's processes. Clones share it.
#[derive(Clone)]
pub struct LogDisk {
    disk: Arc<Mutex<Disk>>,
    hub: Hub,
    node: MachineId,
}

impl LogDisk {
    /// Returns an empty log.
    pub fn new(hub: Hub, node: MachineId, flush_ms: u64) -> LogDisk {
        let disk = Disk { flush_ms, ..Disk::default() };
        LogDisk { disk: Arc::new(Mutex::new(disk)), hub, node }
    }

    /// Opens the log for the next process.
    pub fn open(&self) -> MemoryLog {
        let mut disk = self.lock();
        disk.waited_for = LogWrites::default();
        MemoryLog { log: self.clone(), boot: disk.boot, writes: disk.waited_for.clone() }
    }

    /// Returns an entry as this node last had it, even if it was purged.
    pub fn archived(&self, index: u64) -> Option<Archived> {
        self.lock().archive.get(&index).cloned()
    }

    /// Damages the next entry whose bytes contain `text`, as a bit that flips on its way to this
    /// node.
    pub fn flip(&self, text: &'static [u8]) {
        self.lock().flips = Some(text);
    }

    /// Damages an entry that the log already has, if its bytes contain `text`. Returns false if
    /// there is no such entry.
    pub fn rot(&self, text: &[u8]) -> bool {
        self.lock().current.entries.values_mut().any(|entry| flip_bit(entry, text))
    }

    /// Makes flushes take up to `by_ms` longer from now on.
    pub fn slow_down(&self, by_ms: u64) {
        self.lock().slow_ms = by_ms;
    }

    /// Makes the next flush fail, and all later ones until the process ends. Has no effect if the
    /// process ends before its next flush.
    pub fn fail(&self) {
        self.lock().fails = true;
    }

    /// Number of the node's starts after which a flush has failed.
    pub fn failures(&self) -> u64 {
        self.lock().failures
    }

    /// Starts or stops watching for a vote of this node for another node.
    pub fn watch_votes(&self, watched: bool) {
        let mut disk = self.lock();
        disk.watched = watched;
        disk.granted = None;
    }

    /// Another node for which this node has voted since [`LogDisk::watch_votes`]; `None` without
    /// such a vote. The vote may not be flushed yet.
    pub fn granted(&self) -> Option<MachineId> {
        self.lock().granted
    }

    /// Ends the process. With `power`, only the first `power`/256 of the unflushed writes stay.
    /// After a failed flush, a part of the writes may be lost without a loss of power. Returns the
    /// part that stays, in 256ths, so that the caller can cut other data on the disk to the same
    /// part; `None` if nothing is lost.
    pub fn crash(&self, power: Option<u8>) -> Option<u8> {
        let mut disk = self.lock();
        let lost = power.or_else(|| self.lost_by_failure(&disk));
        let kept = lost.map_or(disk.unflushed.len(), |part| disk.unflushed.len() * usize::from(part) / 256);
        disk.unflushed.truncate(kept);
        for write in std::mem::take(&mut disk.unflushed) {
            disk.durable.apply(&write);
        }
        disk.end_process();
        lost
    }

    /// Returns how many 256ths of the unflushed writes stay after a failed flush; `None` if all
    /// stay.
    fn lost_by_failure(&self, disk: &Disk) -> Option<u8> {
        if !disk.failed {
            return None;
        }
        let mut shared = self.hub.lock();
        // With a probability of a quarter, the flush only reports an error, and all writes stay.
        let part = if shared.random.u8(..4) == 0 { None } else { Some(shared.random.u8(..)) };
        shared.event(&[22, self.node, part.map_or(256, u64::from)], || {
            let kept = part.map_or(256, u64::from);
            format!("of what node {} wrote since its last flush before the failed one, {kept}/256 stays", self.node)
        });
        part
    }

    /// Empties the log, as the loss of the disk does.
    pub fn wipe(&self) {
        let mut disk = self.lock();
        disk.durable = Contents::default();
        disk.unflushed.clear();
        disk.end_process();
    }

    /// Completes the flush under way, if it was begun after the node's start with the number
    /// `boot`.
    pub fn flushed(&self, boot: u64) {
        let (told, result) = {
            let mut disk = self.lock();
            if disk.boot != boot {
                return;
            }
            let Some(count) = disk.flushing.take() else { return };
            if disk.fails {
                disk.failures += u64::from(!disk.failed);
                disk.failed = true;
                let told: Vec<Waiter> = disk.waiters.drain(..).map(|(_, waiter)| waiter).collect();
                (told, Err("the disk has failed"))
            } else {
                for _ in 0..count {
                    if let Some(write) = disk.unflushed.pop_front() {
                        disk.durable.apply(&write);
                    }
                }
                let upto = disk.written - disk.unflushed.len() as u64;
                let told = disk.waiters.iter().take_while(|(at, _)| *at <= upto).count();
                let told = disk.waiters.drain(..told).map(|(_, waiter)| waiter).collect();
                if !disk.waiters.is_empty() {
                    self.flush(&mut disk);
                }
                (told, Ok(()))
            }
        };
        self.lock().waited_for.end(told.len());
        for waiter in told {
            waiter.tell(result.map_err(io::Error::other));
        }
    }

    /// Begins a flush of all writes so far.
    fn flush(&self, disk: &mut Disk) {
        disk.flushing = Some(disk.unflushed.len());
        let mut shared = self.hub.lock();
        let mut delay_ms = shared.random.u64(..=disk.flush_ms);
        if disk.slow_ms > 0 {
            delay_ms += shared.random.u64(..=disk.slow_ms);
        }
        shared.event(&[3, self.node, disk.written], || format!("node {} flushes {} writes", self.node, disk.written));
        shared.schedule(delay_ms, Event::Flush { node: self.node, boot: disk.boot });
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle of one process on a [`LogDisk`].
#[derive(Clone)]
pub struct MemoryLog {
    log: LogDisk,
    boot: u64,
    /// Counts of the writes that wait for the disk.
    pub writes: LogWrites,
}

impl MemoryLog {
    fn disk(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.log.lock();
        if disk.boot == self.boot { Ok(disk) } else { Err(io::Error::other("the machine has lost power")) }
    }

    fn write(&self, write: Write, waiter: Option<Waiter>) -> io::Result<()> {
        let mut disk = self.disk()?;
        disk.current.apply(&write);
        if let Write::Vote(vote) = &write
            && disk.watched
            && !vote.committed
            && vote.leader_id.voted_for != self.log.node
        {
            disk.granted = Some(vote.leader_id.voted_for);
        }
        if let Write::Append(entries) = &write {
            let written_ms = self.log.hub.now_ms();
            for entry in entries {
                disk.archive.insert(entry.log_id.index, Archived { entry: entry.clone(), written_ms });
            }
        }
        disk.unflushed.push_back(write);
        disk.written += 1;
        if let Some(waiter) = waiter {
            disk.waited_for.begin();
            let written = disk.written;
            disk.waiters.push_back((written, waiter));
            if disk.flushing.is_none() {
                self.log.flush(&mut disk);
            }
        }
        Ok(())
    }

    /// Flips a bit of the text that is to be damaged, in the first entry that has the text.
    fn damage(&self, entries: &mut [Entry]) -> io::Result<()> {
        let mut disk = self.disk()?;
        let Some(text) = disk.flips else { return Ok(()) };
        if entries.iter_mut().any(|entry| flip_bit(entry, text)) {
            disk.flips = None;
        }
        Ok(())
    }

    async fn durably(&self, write: Write) -> io::Result<()> {
        let (done, flushed) = oneshot::channel();
        self.write(write, Some(Waiter::Writer(done)))?;
        flushed.await.unwrap_or_else(|_| Err(io::Error::other("the machine has lost power")))
    }
}

/// Flips a bit of the text in an entry. Returns false if the entry does not have the text.
fn flip_bit(entry: &mut Entry, text: &[u8]) -> bool {
    let EntryPayload::Normal(Command(bytes)) = &mut entry.payload else { return false };
    let Some(at) = bytes.windows(text.len()).position(|part| part == text) else { return false };
    let mut damaged = bytes.to_vec();
    damaged[at] ^= 1;
    *bytes = damaged.into();
    true
}

impl RaftLogReader<TypeConfig> for MemoryLog {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let empty = match (range.start_bound(), range.end_bound()) {
            (Bound::Included(from), Bound::Excluded(to)) => from >= to,
            _ => false,
        };
        if empty {
            return Ok(Vec::new());
        }
        Ok(self.disk()?.current.entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        let vote = self.disk()?.current.vote;
        // A write that failed may have left its vote on the disk.
        if let Some(vote) = &vote {
            self.log.hub.lock().votes.note(self.log.node, vote);
        }
        Ok(vote)
    }

    async fn limited_get_log_entries(&mut self, from: u64, to: u64) -> io::Result<Vec<Entry>> {
        let entries = self.try_get_log_entries(from..to.min(from + 64)).await?;
        Ok(storage::without_a_gap(from, entries))
    }
}

impl RaftLogStorage<TypeConfig> for MemoryLog {
    type LogReader = MemoryLog;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let disk = self.disk()?;
        Ok(LogState { last_purged_log_id: disk.current.purged, last_log_id: disk.current.last() })
    }

    async fn get_log_reader(&mut self) -> MemoryLog {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.durably(Write::Vote(*vote)).await?;
        self.log.hub.lock().votes.note(self.log.node, vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        match committed {
            Some(committed) => self.write(Write::Committed(committed), None),
            None => Ok(()),
        }
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.disk()?.current.committed)
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut entries: Vec<Entry> = entries.into_iter().collect();
        self.damage(&mut entries)?;
        self.write(Write::Append(entries), Some(Waiter::Raft(flushed)))
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.durably(Write::Truncate(last.map_or(0, |id| id.index + 1))).await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.durably(Write::Purge(upto)).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::trace::Detail;

    use super::*;

    /// Returns a disk and the log on it: entry 0 is durable, the entries behind it are not flushed.
    fn written(seed: u64, unflushed: u64) -> (LogDisk, MemoryLog) {
        let disk = LogDisk::new(Hub::new(seed, Detail::Last), 1, 5);
        let mut log = disk.open();
        append(&mut log, 0);
        disk.flushed(log.boot);
        (1..=unflushed).for_each(|index| append(&mut log, index));
        (disk, log)
    }

    fn append(log: &mut MemoryLog, index: u64) {
        let entry = Entry { log_id: LogId::new_term_index(1, index), payload: EntryPayload::Blank };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(log.append([entry], IOFlushed::noop())).unwrap();
    }

    fn indexes(log: &MemoryLog) -> Vec<u64> {
        log.disk().unwrap().current.entries.keys().copied().collect()
    }

    /// Returns the entries that the next process finds after a failed flush, over many seeds.
    fn after_failure(power: Option<u8>) -> BTreeSet<Vec<u64>> {
        let found = |seed| {
            let (disk, log) = written(seed, 3);
            disk.fail();
            disk.flushed(log.boot);
            assert_eq!(indexes(&log), [0, 1, 2, 3], "seed {seed}: the process itself reads on");
            disk.crash(power);
            indexes(&disk.open())
        };
        (0..100).map(found).collect()
    }

    #[test]
    fn what_a_failed_flush_covered_may_be_gone_and_what_was_flushed_before_is_not() {
        let first = |count: u64| (0..=count).collect::<Vec<u64>>();
        assert_eq!(after_failure(None), (0..=3).map(first).collect());
        assert_eq!(after_failure(Some(0)), BTreeSet::from([first(0)]));
    }

    #[test]
    fn a_disk_whose_process_ends_before_the_next_flush_has_not_failed() {
        for seed in 0..100 {
            let (disk, log) = written(seed, 3);
            disk.fail();
            assert_eq!(disk.crash(None), None, "seed {seed}");
            // The flush that was under way comes too late.
            disk.flushed(log.boot);
            let mut next = disk.open();
            assert_eq!((indexes(&next), disk.failures()), (vec![0, 1, 2, 3], 0), "seed {seed}");
            append(&mut next, 4);
            disk.flushed(next.boot);
            disk.crash(Some(0));
            assert_eq!((indexes(&disk.open()), disk.failures()), (vec![0, 1, 2, 3, 4], 0), "seed {seed}");
        }
    }

    #[test]
    fn a_disk_fails_once_in_the_life_of_a_process() {
        let (disk, mut log) = written(1, 1);
        disk.fail();
        disk.flushed(log.boot);
        append(&mut log, 2);
        disk.flushed(log.boot);
        disk.crash(None);
        assert_eq!(disk.failures(), 1);
    }
}
