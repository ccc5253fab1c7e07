//! The kernel's requests, answered from a [`Tree`].
//!
//! The kernel keeps nothing: its write-back cache is not asked for, files are opened for direct IO,
//! names and attributes are good for no time. So every write is in the tree when the system call
//! returns, and after a cut no process sees a page that was lost. `sync_file_range` never gets
//! here, and makes nothing durable, as POSIX has it. Advisory locks are the kernel's own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::file::{Cut, File, PAGE_BYTES};
use crate::tree::{Body, Directory, Inode, Tree};

/// How large a disk is: far more than a node of a test needs, and far less than the machine has.
pub const CAPACITY_BYTES: u64 = 512 << 20;

/// How long the kernel may keep names and attributes.
const NOT_AT_ALL: Duration = Duration::ZERO;

/// What an fsync does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Syncs {
    /// It makes durable.
    #[default]
    Work,
    /// It does not return until it is let go.
    Hang,
    /// It returns that much later.
    Slow(Duration),
    /// It fails with EIO.
    Fail,
}

/// An fsync that has not returned: of which inode, and who waits.
type Waiting = (u64, ReplyEmpty);

#[derive(Debug, Default)]
struct State {
    tree: Tree,
    syncs: Syncs,
    /// By a number that no other has had.
    waiting: BTreeMap<u64, Waiting>,
    /// How many have ever waited.
    delayed: u64,
    /// What a directory had when it was opened, by handle: entries are removed while others are
    /// still being listed.
    listings: BTreeMap<u64, Vec<(u64, FileType, OsString)>>,
    next_handle: u64,
}

/// A disk: what is mounted, and what breaks it. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    state: Arc<Mutex<State>>,
}

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power goes, and comes back. An fsync that hangs has failed.
    pub fn cut(&self, seed: u64) -> Cut {
        self.drop_hung();
        self.state().tree.cut(seed)
    }

    /// From now on an fsync hangs, and with it, by the kernel's lock of the file, every write to
    /// the same file.
    pub fn hang(&self) {
        self.state().syncs = Syncs::Hang;
    }

    /// From now on an fsync returns that much later. What was written meanwhile is durable then,
    /// too.
    pub fn slow(&self, delay: Duration) {
        self.state().syncs = Syncs::Slow(delay);
    }

    /// From now on an fsync fails, and forgets what it should have written.
    pub fn fail(&self) {
        self.state().syncs = Syncs::Fail;
    }

    /// From now on an fsync works, and those that hang do so now.
    pub fn mend(&self) {
        let mut state = self.state();
        state.syncs = Syncs::Work;
        for (inode, reply) in std::mem::take(&mut state.waiting).into_values() {
            reply_empty(reply, state.sync(inode));
        }
    }

    /// From now on an fsync works, and those that hang fail with nothing made durable: a process
    /// that waits for one cannot even be killed.
    pub fn drop_hung(&self) {
        let mut state = self.state();
        state.syncs = Syncs::Work;
        std::mem::take(&mut state.waiting).into_values().for_each(|(_, reply)| reply.error(Errno::EIO));
    }

    /// How many fsyncs hang, or have not returned yet.
    pub fn hung(&self) -> usize {
        self.state().waiting.len()
    }

    /// How many fsyncs have hung or been slow, since the beginning.
    pub fn delayed(&self) -> u64 {
        self.state().delayed
    }

    /// The time of a slow fsync is over, if nothing has ended it before.
    fn let_go(&self, number: u64) {
        let mut state = self.state();
        if let Some((inode, reply)) = state.waiting.remove(&number) {
            reply_empty(reply, state.sync(inode));
        }
    }

    fn sync_as_told(&self, inode: u64, reply: ReplyEmpty) {
        let mut state = self.state();
        match state.syncs {
            Syncs::Work => reply_empty(reply, state.sync(inode)),
            Syncs::Hang => _ = state.wait(inode, reply),
            Syncs::Slow(delay) => {
                let (number, disk) = (state.wait(inode, reply), self.clone());
                // A thread for each: few fsyncs wait at a time.
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

    fn handle(&mut self) -> FileHandle {
        self.next_handle += 1;
        FileHandle(self.next_handle)
    }

    fn attributes(&mut self, number: u64) -> Result<FileAttr, Errno> {
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

    fn make(&mut self, req: &Request, parent: u64, name: &OsStr, body: Body, mode: u32) -> Result<FileAttr, Errno> {
        let number =
            self.tree.create(parent, name, Inode::new(body, (mode & 0o7777) as u16, (req.uid(), req.gid())))?;
        self.attributes(number)
    }

    fn write(&mut self, number: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        if self.tree.allocated() + data.len() as u64 > CAPACITY_BYTES {
            return Err(Errno::ENOSPC);
        }
        self.tree.file(number)?.write(offset, data);
        self.tree.inode(number)?.modified = SystemTime::now();
        Ok(())
    }

    fn allocate(&mut self, number: u64, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
        let file = self.tree.file(number)?;
        if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
            file.punch(offset, length);
        } else if mode == 0 {
            // Space that is promised but has no content: the size grows, and what is read are
            // zeros.
            let size = file.size().max(offset.saturating_add(length));
            file.resize(size);
        } else if mode != libc::FALLOC_FL_KEEP_SIZE {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(())
    }

    fn list(&mut self, number: u64) -> Result<FileHandle, Errno> {
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

fn reply_empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn reply_entry(reply: ReplyEntry, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attributes) => reply.entry(&NOT_AT_ALL, &attributes, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn reply_attributes(reply: ReplyAttr, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attributes) => reply.attr(&NOT_AT_ALL, &attributes),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.state();
        let found = state.tree.lookup(parent.0, name).and_then(|number| state.attributes(number));
        reply_entry(reply, found);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply_attributes(reply, self.state().attributes(ino.0));
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.state();
        let changed = state.tree.inode(ino.0).and_then(|inode| {
            inode.mode = mode.map_or(inode.mode, |mode| (mode & 0o7777) as u16);
            inode.owner = (uid.unwrap_or(inode.owner.0), gid.unwrap_or(inode.owner.1));
            match (size, &mut inode.body) {
                (Some(size), Body::File(file)) => file.resize(size),
                (Some(_), Body::Directory(_)) => return Err(Errno::EISDIR),
                (None, _) => {}
            }
            Ok(())
        });
        let attributes = changed.and_then(|()| state.attributes(ino.0));
        reply_attributes(reply, attributes);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let body = Body::Directory(Directory::default());
        let made = self.state().make(req, parent.0, name, body, mode & !umask);
        reply_entry(reply, made);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.state().tree.unlink(parent.0, name));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.state().tree.rmdir(parent.0, name));
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        if flags.contains(RenameFlags::RENAME_NOREPLACE) && state.tree.lookup(newparent.0, newname).is_ok() {
            reply.error(Errno::EEXIST);
        } else if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            reply.error(Errno::EINVAL);
        } else {
            reply_empty(reply, state.tree.rename((parent.0, name), (newparent.0, newname)));
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let mut state = self.state();
        match state.tree.file(ino.0).map(|_| ()) {
            Ok(()) => {
                state.tree.open(ino.0);
                reply.opened(state.handle(), FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut state = self.state();
        match state.make(req, parent.0, name, Body::File(File::default()), mode & !umask) {
            Ok(attributes) => {
                state.tree.open(attributes.ino.0);
                let handle = state.handle();
                reply.created(&NOT_AT_ALL, &attributes, Generation(0), handle, FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.state().tree.file(ino.0) {
            Ok(file) => reply.data(&file.read(offset, size as usize)),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.state().write(ino.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        // Of close, not of fsync: nothing becomes durable.
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.state().tree.close(ino.0);
        reply.ok();
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.sync_as_told(ino.0, reply);
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.sync_as_told(ino.0, reply);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.state().list(ino.0) {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let state = self.state();
        let Some(listing) = state.listings.get(&fh.0) else { return reply.error(Errno::EBADF) };
        let rest = listing.iter().zip(1..).skip(usize::try_from(offset).unwrap_or(usize::MAX));
        for ((inode, kind, name), next) in rest {
            if reply.add(INodeNo(*inode), next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        let mut state = self.state();
        state.listings.remove(&fh.0);
        state.tree.close(ino.0);
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let block = PAGE_BYTES as u64;
        let free = CAPACITY_BYTES.saturating_sub(self.state().tree.allocated()) / block;
        let (inodes, name_max) = (1 << 20, 255);
        reply.statfs(
            CAPACITY_BYTES / block,
            free,
            free,
            inodes,
            inodes,
            PAGE_BYTES as u32,
            name_max,
            PAGE_BYTES as u32,
        );
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.state().allocate(ino.0, offset, length, mode));
    }
}
