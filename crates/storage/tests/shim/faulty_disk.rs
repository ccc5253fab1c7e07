//! Library that simulates a failing disk when it is preloaded into a process. Environment variables
//! choose the fault: the n-th sync returns EIO, or writes beyond a number of bytes return ENOSPC,
//! or every sync records the synced content, so that a test can simulate a power loss afterwards.
//!
//! The tests compile this file with `rustc`, as it belongs to no crate. It replaces functions of
//! libc, so it affects sled, raft-log and std.

mod shadow;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
    fn __errno_location() -> *mut i32;
}

#[cfg(target_arch = "x86_64")]
const NUMBERS: (i64, i64, i64, i64, i64) = (1, 18, 20, 74, 75);
#[cfg(target_arch = "aarch64")]
const NUMBERS: (i64, i64, i64, i64, i64) = (64, 68, 66, 82, 83);
const WRITE: i64 = NUMBERS.0;
const PWRITE: i64 = NUMBERS.1;
const WRITEV: i64 = NUMBERS.2;
const FSYNC: i64 = NUMBERS.3;
const FDATASYNC: i64 = NUMBERS.4;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

static SYNCS: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicI64 = AtomicI64::new(0);

struct Faults {
    /// The data directory. Files outside it have no faults.
    dir: PathBuf,
    fail_sync_at: Option<u64>,
    disk_bytes: Option<i64>,
    shadow: Option<PathBuf>,
}

fn faults() -> &'static Faults {
    static FAULTS: OnceLock<Faults> = OnceLock::new();
    FAULTS.get_or_init(|| {
        let var = |name: &str| std::env::var(name).ok();
        Faults {
            dir: var("ZLOCK_STORAGE_CHILD_DIR").unwrap_or_default().into(),
            fail_sync_at: var("FAULTY_DISK_FAIL_SYNC_AT").and_then(|n| n.parse().ok()),
            disk_bytes: var("FAULTY_DISK_BYTES").and_then(|n| n.parse().ok()),
            shadow: var("FAULTY_DISK_SHADOW").map(PathBuf::from),
        }
    })
}

fn opened(fd: i32) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{fd}"))
}

fn is_ours(fd: i32) -> bool {
    std::fs::read_link(opened(fd)).is_ok_and(|path| path.starts_with(&faults().dir))
}

fn fail(errno: i32) -> i64 {
    // Sound: libc gives each thread its own error number.
    unsafe { *__errno_location() = errno };
    -1
}

fn sync(fd: i32, number: i64) -> i32 {
    if !is_ours(fd) {
        return unsafe { syscall(number, fd) } as i32;
    }
    if Some(SYNCS.fetch_add(1, Ordering::SeqCst) + 1) == faults().fail_sync_at {
        return fail(EIO) as i32;
    }
    match &faults().shadow {
        Some(shadow) => record(shadow, fd),
        None => unsafe { syscall(number, fd) as i32 },
    }
}

fn record(shadow: &Path, fd: i32) -> i32 {
    match shadow::record(shadow, &opened(fd)) {
        Ok(()) => 0,
        Err(_) => fail(EIO) as i32,
    }
}

/// Counts `bytes` bytes as written to the simulated disk. Returns how many of them the disk has
/// space for; `None` if the disk is full.
fn room(fd: i32, bytes: usize) -> Option<usize> {
    let Some(disk_bytes) = faults().disk_bytes else { return Some(bytes) };
    if bytes == 0 || !is_ours(fd) {
        return Some(bytes);
    }
    let before = WRITTEN.fetch_add(bytes as i64, Ordering::SeqCst);
    let fits = (disk_bytes - before).clamp(0, bytes as i64) as usize;
    (fits > 0).then_some(fits)
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: i32) -> i32 {
    sync(fd, FSYNC)
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: i32) -> i32 {
    sync(fd, FDATASYNC)
}

/// Does nothing, as the real function does not make data durable either.
#[unsafe(no_mangle)]
extern "C" fn sync_file_range(_fd: i32, _offset: i64, _bytes: i64, _flags: u32) -> i32 {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: i32, buffer: *const u8, bytes: usize) -> isize {
    match room(fd, bytes) {
        Some(fits) => unsafe { syscall(WRITE, fd, buffer, fits) as isize },
        None => fail(ENOSPC) as isize,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(fd: i32, buffer: *const u8, bytes: usize, offset: i64) -> isize {
    unsafe { pwrite64(fd, buffer, bytes, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(fd: i32, buffer: *const u8, bytes: usize, offset: i64) -> isize {
    match room(fd, bytes) {
        Some(fits) => unsafe { syscall(PWRITE, fd, buffer, fits, offset) as isize },
        None => fail(ENOSPC) as isize,
    }
}

/// Counts as one written byte, whatever its length, because the vector is not parsed.
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: i32, vector: *const u8, count: i32) -> isize {
    match room(fd, 1) {
        Some(_) => unsafe { syscall(WRITEV, fd, vector, count) as isize },
        None => fail(ENOSPC) as isize,
    }
}
