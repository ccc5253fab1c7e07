//! A Raft log on a disk that loses what was not flushed.
//!
//! Appends, votes and purges are writes into one stream, as in the real log. They are readable at once; a flush makes
//! all before it durable and takes its time. A loss of power keeps some of the writes behind the last flush: the first
//! of them, as many as chance says.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use storage::{Entry, LogId, TypeConfig, Vote};
use tokio::sync::oneshot;

use crate::hub::{Event, Hub, MachineId};
use crate::planted::{self, Plant};

/// What the log holds.
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

/// Who is told when a flush is done.
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

/// An entry as some node once had it, for those who check.
#[derive(Clone, Debug)]
pub struct Archived {
    /// The entry.
    pub entry: Entry,
    /// When this node first wrote it.
    pub written_ms: u64,
}

struct Disk {
    current: Contents,
    durable: Contents,
    unflushed: VecDeque<Write>,
    /// How many of `unflushed` the flush that is under way covers; none is under way when there is none.
    flushing: Option<usize>,
    waiters: VecDeque<(u64, Waiter)>,
    /// Writes ever.
    written: u64,
    /// Everything that was ever written, by index; what was purged too.
    archive: BTreeMap<u64, Archived>,
    boot: u64,
    fails: bool,
    /// Whether somebody wants to know of the next vote for another node.
    watched: bool,
    /// That vote's candidate.
    granted: Option<MachineId>,
    /// Flushes take this long at most, and this much more while the disk is slow.
    flush_ms: u64,
    slow_ms: u64,
}

/// A node's log. Outlives its processes. Clones share it.
#[derive(Clone)]
pub struct LogDisk {
    disk: Arc<Mutex<Disk>>,
    hub: Hub,
    node: MachineId,
}

impl LogDisk {
    /// An empty log.
    pub fn new(hub: Hub, node: MachineId, flush_ms: u64) -> LogDisk {
        let disk = Disk {
            current: Contents::default(),
            durable: Contents::default(),
            unflushed: VecDeque::new(),
            flushing: None,
            waiters: VecDeque::new(),
            written: 0,
            archive: BTreeMap::new(),
            boot: 0,
            fails: false,
            watched: false,
            granted: None,
            flush_ms,
            slow_ms: 0,
        };
        LogDisk { disk: Arc::new(Mutex::new(disk)), hub, node }
    }

    /// The log as the next process opens it.
    pub fn open(&self) -> MemoryLog {
        MemoryLog { log: self.clone(), boot: self.lock().boot }
    }

    /// Entries as this node last had them, purged ones too.
    pub fn archived(&self, index: u64) -> Option<Archived> {
        self.lock().archive.get(&index).cloned()
    }

    /// Flushes take up to so much longer from now on.
    pub fn slow_down(&self, by_ms: u64) {
        self.lock().slow_ms = by_ms;
    }

    /// The next flush fails, and all after it until the next start.
    pub fn fail(&self) {
        self.lock().fails = true;
    }

    /// Begins, or ends, to look out for a vote for another node.
    pub fn watch_votes(&self, watched: bool) {
        let mut disk = self.lock();
        disk.watched = watched;
        disk.granted = None;
    }

    /// For whom this node has voted since [`LogDisk::watch_votes`], if for another. On disk or not.
    pub fn granted(&self) -> Option<MachineId> {
        self.lock().granted
    }

    /// The process ends. `power`: what was not flushed is lost, but for the first so many parts of 256 of it.
    pub fn crash(&self, power: Option<u8>) {
        let mut disk = self.lock();
        disk.boot += 1;
        let kept = power.map_or(disk.unflushed.len(), |part| disk.unflushed.len() * usize::from(part) / 256);
        disk.unflushed.truncate(kept);
        for write in std::mem::take(&mut disk.unflushed) {
            disk.durable.apply(&write);
        }
        disk.current = disk.durable.clone();
        disk.waiters.clear();
        disk.flushing = None;
        disk.fails = false;
    }

    /// Everything is lost.
    pub fn wipe(&self) {
        let mut disk = self.lock();
        disk.boot += 1;
        disk.current = Contents::default();
        disk.durable = Contents::default();
        disk.unflushed.clear();
        disk.waiters.clear();
        disk.flushing = None;
    }

    /// The flush that was begun in this boot is done.
    pub fn flushed(&self, boot: u64) {
        let (told, result) = {
            let mut disk = self.lock();
            if disk.boot != boot {
                return;
            }
            let Some(count) = disk.flushing.take() else { return };
            if disk.fails {
                (disk.waiters.drain(..).map(|(_, waiter)| waiter).collect::<Vec<_>>(), Err("the disk has failed"))
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
        for waiter in told {
            waiter.tell(result.map_err(io::Error::other));
        }
    }

    /// Begins a flush of everything that is written by now.
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

/// One process's hold on a [`LogDisk`].
#[derive(Clone)]
pub struct MemoryLog {
    log: LogDisk,
    boot: u64,
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
            let written = disk.written;
            disk.waiters.push_back((written, waiter));
            if disk.flushing.is_none() {
                self.log.flush(&mut disk);
            }
        }
        Ok(())
    }

    async fn durably(&self, write: Write) -> io::Result<()> {
        let (done, flushed) = oneshot::channel();
        self.write(write, Some(Waiter::Writer(done)))?;
        flushed.await.unwrap_or_else(|_| Err(io::Error::other("the machine has lost power")))
    }
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
        Ok(self.disk()?.current.vote)
    }

    async fn limited_get_log_entries(&mut self, from: u64, to: u64) -> io::Result<Vec<Entry>> {
        self.try_get_log_entries(from..to.min(from + 64)).await
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
        if planted::is(Plant::ForgottenVote) {
            return self.write(Write::Vote(*vote), None);
        }
        self.durably(Write::Vote(*vote)).await
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
        let write = Write::Append(entries.into_iter().collect());
        if planted::is(Plant::AckBeforeFsync) {
            self.write(write, None)?;
            flushed.io_completed(Ok(()));
            return Ok(());
        }
        self.write(write, Some(Waiter::Raft(flushed)))
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.durably(Write::Truncate(last.map_or(0, |id| id.index + 1))).await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.durably(Write::Purge(upto)).await
    }
}
