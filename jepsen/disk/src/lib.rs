//! A disk whose power can be cut, as a FUSE file system in memory.
//!
//! ```text
//! node ── write ──> now ── fsync ──> durable        file: 4 KiB page by page, and the size
//!      ── rename ─> now ── fsync of the directory ──> durable
//!
//! cut:  each page and each change of a directory that was not synced survives or is lost, from a seed;
//!       what is left becomes both, and is what the next process finds
//! ```
//!
//! It is as bad as POSIX lets a disk be, so that software which works on it relies on nothing else:
//! a file that has grown may have holes that read as zeros, a new page may survive where the one
//! before it is lost, a created file may be gone though it was fsynced, and an unlinked one may be
//! back. It does not tear pages, flip bits or lie about an fsync, and it loses what was not synced
//! at a cut only. That a rename is lost in one of its directories only does not happen either.
//!
//! - `file`: the content of one file, twice
//! - `tree`: names and inodes, and the changes between two syncs
//! - `faults`: what is wrong with it, and from when on
//! - `disk`: all of it, and what is done to it
//! - `filesystem`: the kernel's requests
//! - `mount`: the disk in a directory, served by threads of this process

mod disk;
mod faults;
mod file;
mod filesystem;
mod mount;
mod tree;

pub use disk::{CAPACITY_BYTES, Disk};
pub use file::{Cut, PAGE_BYTES};
pub use mount::{Mounted, available};
