//! The FUSE requests of the kernel, answered from a [`Tree`].
//!
//! The kernel caches nothing: its write-back cache is off, files are opened for direct IO, and
//! names and attributes expire at once. So every write is in the tree when the system call returns,
//! and after a loss of power a process never sees a lost page. The kernel does not pass
//! `sync_file_range` on, so that call makes nothing durable, as POSIX allows. Advisory locks are
//! handled by the kernel itself.
//!
//! The kernel does not pass on `posix_fadvise` either, by which a process drops the page cache of a
//! file. So an fsync through a read-only handle drops the cache as well: a process that has written
//! nothing syncs a file only to read it from the disk afterwards.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenAccMode,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::disk::{CAPACITY_BYTES, Disk, reply_empty};
use crate::file::{File, PAGE_BYTES};
use crate::tree::{Body, Directory};

/// Time for which the kernel may cache names and attributes.
const NOT_AT_ALL: Duration = Duration::ZERO;

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
        let awake = state.faults.change();
        let changed = awake.and_then(|()| state.tree.inode(ino.0)).and_then(|inode| {
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
        let mut state = self.state();
        let unlinked = state.faults.change().and_then(|()| state.tree.unlink(parent.0, name));
        reply_empty(reply, unlinked);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.state();
        let removed = state.faults.change().and_then(|()| state.tree.rmdir(parent.0, name));
        reply_empty(reply, removed);
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
            let awake = state.faults.change();
            reply_empty(reply, awake.and_then(|()| state.tree.rename((parent.0, name), (newparent.0, newname))));
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let mut state = self.state();
        match state.tree.file(ino.0).map(|_| ()) {
            Ok(()) => {
                state.tree.open(ino.0);
                let handle = state.handle();
                if flags.acc_mode() == OpenAccMode::O_RDONLY {
                    state.readers.insert(handle.0);
                }
                reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO);
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
        // This is close, not fsync: nothing becomes durable.
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        state.readers.remove(&fh.0);
        state.tree.close(ino.0);
        reply.ok();
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.sync_as_told(ino.0, fh, reply);
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.sync_as_told(ino.0, fh, reply);
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
        let free = self.state().free_bytes() / block;
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
