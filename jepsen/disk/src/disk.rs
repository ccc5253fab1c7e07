//! The simulated disk: methods by which tests break and mend it, and its handling of the kernel's
//! requests (FUSE).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{Errno, FileAttr, FileHandle, FileType, INodeNo, ReplyEmpty, Request};

use crate::faults::{Faults, Syncs};
use crate::file::{Cut, PAGE_BYTES};
use crate::tree::{Body, Inode, Tree};

/// Capacity of a disk: far more than a node of a test needs, and far less than the machine's
/// memory.
pub const CAPACITY_BYTES: u64 = 512 << 20;

/// An fsync that has not returned: its inode, and the reply to send.
type Waiting = (u64, ReplyEmpty);

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) faults: Faults,
    /// File handles that were opened read-only.
    pub(crate) readers: BTreeSet<u64>,
    /// Fsyncs that hang or are slow and have not returned. The key is the number of the fsync: the
    /// value of `delayed` when it began to wait.
    waiting: BTreeMap<u64, Waiting>,
    /// Number of fsyncs that have hung or been slow since the disk was created.
    delayed: u64,
    /// Entries of each opened directory as they were when it was opened, by handle. A process may
    /// remove entries while it still lists the directory.
    pub(crate) listings: BTreeMap<u64, Vec<(u64, FileType, OsString)>>,
    next_handle: u64,
}

/// A disk and its faults. Clones share the disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    state: Arc<Mutex<State>>,
}

impl Disk {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Simulates a loss of power and an immediate restart: the disk then works without faults. A
    /// hanging fsync fails. The seed decides which unsynced changes survive.
    pub fn cut(&self, seed: u64) -> Cut {
        self.go_on();
        self.state().tree.cut(seed)
    }

    /// Stops the disk after `changes` more changes (a write, a change of a name, or an fsync each).
    /// From then on each change fails with EIO. The receiver gets a message at the first failed
    /// change. If [`Disk::go_on`] is called earlier, the receiver is disconnected instead.
    pub fn stop_after(&self, changes: u64) -> Receiver<()> {
        self.state().faults.stop_after(changes)
    }

    /// Makes every fsync fail, as [`Disk::fail`] does, after `changes` more changes (a write, a
    /// change of a name, or an fsync each).
    pub fn fail_after(&self, changes: u64) {
        self.state().faults.fail_after(changes);
    }

    /// Ends all faults, present and planned. The disk keeps its data. A hanging fsync fails.
    pub fn go_on(&self) {
        self.drop_hung();
        self.state().faults = Faults::default();
    }

    /// Makes every fsync hang from now on. Writes to the same file hang as well, because the kernel
    /// locks the file.
    pub fn hang(&self) {
        self.state().faults.syncs = Syncs::Hang;
    }

    /// Delays every fsync by this time from now on. Bytes written during the delay become durable,
    /// too.
    pub fn slow(&self, delay: Duration) {
        self.state().faults.syncs = Syncs::Slow(delay);
    }

    /// Makes every fsync fail from now on. The bytes of a failed fsync do not become durable,
    /// unless they are written again.
    pub fn fail(&self) {
        self.state().faults.syncs = Syncs::Fail;
    }

    /// Leaves no space on the disk: writes fail with ENOSPC, until files are removed.
    pub fn fill(&self) {
        let mut state = self.state();
        state.faults.full_bytes = Some(state.tree.allocated());
    }

    /// Makes every fsync work from now on, and frees the space of a full disk. Hanging fsyncs
    /// complete now.
    pub fn mend(&self) {
        let mut state = self.state();
        state.faults.work();
        for (inode, reply) in std::mem::take(&mut state.waiting).into_values() {
            reply_empty(reply, state.sync(inode));
        }
    }

    /// Makes every fsync work from now on, and frees the space of a full disk. Hanging fsyncs fail,
    /// and make nothing durable. This is for processes that are to end: a process in a hanging
    /// fsync cannot be killed.
    pub fn drop_hung(&self) {
        let mut state = self.state();
        state.faults.work();
        std::mem::take(&mut state.waiting).into_values().for_each(|(_, reply)| reply.error(Errno::EIO));
    }

    /// Returns the number of fsyncs that have not returned yet, hanging and slow ones.
    pub fn hung(&self) -> usize {
        self.state().waiting.len()
    }

    /// Returns the number of fsyncs that have hung or been slow since the disk was created.
    pub fn delayed(&self) -> u64 {
        self.state().delayed
    }

    /// Completes the slow fsync with this number after its delay, unless it has failed or completed
    /// already.
    fn let_go(&self, number: u64) {
        let mut state = self.state();
        if let Some((inode, reply)) = state.waiting.remove(&number) {
            reply_empty(reply, state.sync(inode));
        }
    }

    pub(crate) fn sync_as_told(&self, inode: u64, handle: FileHandle, reply: ReplyEmpty) {
        let mut state = self.state();
        if let Err(error) = state.faults.change() {
            return reply.error(error);
        }
        if state.faults.syncs == Syncs::Work
            && state.readers.contains(&handle.0)
            && let Ok(file) = state.tree.file(inode)
        {
            file.drop_forgotten();
        }
        match state.faults.syncs {
            Syncs::Work => reply_empty(reply, state.sync(inode)),
            Syncs::Hang => _ = state.wait(inode, reply),
            Syncs::Slow(delay) => {
                let (number, disk) = (state.wait(inode, reply), self.clone());
                // Each slow fsync gets a thread for its delay, because only few fsyncs wait at the
                // same time.
                std::thread::spawn(move || {
                    std::thread::sleep(delay);
                    disk.let_go(number);
                });
            }
            Syncs::Fail => {
                if let Ok(file) = state.tree.file(inode) {
                    file.sync_failed();
                }
                reply.error(Errno::EIO);
            }
        }
    }
}

impl State {
    fn wait(&mut self, inode: u64, reply: ReplyEmpty) -> u64 {
        self.delayed += 1;
        self.waiting.insert(self.delayed, (inode, reply));
        self.delayed
    }

    fn sync(&mut self, inode: u64) -> Result<(), Errno> {
        match self.tree.file(inode) {
            Ok(file) => {
                file.sync();
                Ok(())
            }
            Err(_) => self.tree.sync_directory(inode),
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.faults.full_bytes.unwrap_or(CAPACITY_BYTES).saturating_sub(self.tree.allocated())
    }

    pub(crate) fn handle(&mut self) -> FileHandle {
        self.next_handle += 1;
        FileHandle(self.next_handle)
    }

    pub(crate) fn attributes(&mut self, number: u64) -> Result<FileAttr, Errno> {
        let inode = self.tree.inode(number)?;
        let (kind, size, allocated) = match &inode.body {
            Body::File(file) => (FileType::RegularFile, file.size(), file.allocated()),
            Body::Directory(_) => (FileType::Directory, 0, 0),
        };
        let (uid, gid) = inode.owner;
        let time = inode.modified;
        Ok(FileAttr {
            ino: INodeNo(number),
            size,
            blocks: allocated / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: inode.mode,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: PAGE_BYTES as u32,
            flags: 0,
        })
    }

    pub(crate) fn make(
        &mut self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        body: Body,
        mode: u32,
    ) -> Result<FileAttr, Errno> {
        self.faults.change()?;
        let number =
            self.tree.create(parent, name, Inode::new(body, (mode & 0o7777) as u16, (req.uid(), req.gid())))?;
        self.attributes(number)
    }

    pub(crate) fn write(&mut self, number: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.faults.change()?;
        if data.len() as u64 > self.free_bytes() {
            return Err(Errno::ENOSPC);
        }
        self.tree.file(number)?.write(offset, data);
        self.tree.inode(number)?.modified = SystemTime::now();
        Ok(())
    }

    pub(crate) fn allocate(&mut self, number: u64, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
        self.faults.change()?;
        let file = self.tree.file(number)?;
        if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
            file.punch(offset, length);
        } else if mode == 0 {
            // Allocation only grows the size. The new space reads as zeros.
            let size = file.size().max(offset.saturating_add(length));
            file.resize(size);
        } else if mode != libc::FALLOC_FL_KEEP_SIZE {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(())
    }

    pub(crate) fn list(&mut self, number: u64) -> Result<FileHandle, Errno> {
        let mut listing = vec![
            (number, FileType::Directory, OsString::from(".")),
            (number, FileType::Directory, OsString::from("..")),
        ];
        for (name, inode) in self.tree.names(number)? {
            let kind = if self.tree.file(inode).is_ok() { FileType::RegularFile } else { FileType::Directory };
            listing.push((inode, kind, name));
        }
        let handle = self.handle();
        self.listings.insert(handle.0, listing);
        self.tree.open(number);
        Ok(handle)
    }
}

pub(crate) fn reply_empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}
