//! A disk whose power can be cut, as a FUSE file system in memory.
//!
//! ```text
//! write ──> present content (processes see it) ── fsync of the file ──> durable content
//! rename ─> present names   (processes see them) ─ fsync of the directory ──> durable names
//! ```
//!
//! At a loss of power, a seed decides for each unsynced page (4 KiB) and each unsynced change of a
//! directory whether it survives. The result becomes both the present and the durable state.
//!
//! The disk is as bad as POSIX lets a disk be, so software that works on it relies only on POSIX.
//! After a loss of power, a file that has grown may have holes that read as zeros, a new page may
//! survive where the page before it is lost, a created file may be gone although it was fsynced,
//! and an unlinked file may be back. The disk does not tear pages, flip bits or lie about an fsync.
//! Unsynced bytes are lost only at a loss of power, and a rename is kept or lost in both of its
//! directories.
//!
//! - `file`: the content of one file, as processes see it and as it is durable
//! - `tree`: names and inodes, and the changes between two syncs
//! - `faults`: faults of the disk, present and planned
//! - `disk`: the whole disk, and the calls that break it
//! - `filesystem`: the FUSE requests of the kernel
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
