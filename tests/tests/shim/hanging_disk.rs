//! A hanging disk, preloaded into a node: once the file named by `HANGING_DISK` exists, no sync
//! returns.
//!
//! The tests compile it with `rustc`; it belongs to no crate. Its functions take the place of
//! libc's.

use std::path::PathBuf;
use std::sync::OnceLock;

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
}

#[cfg(target_arch = "x86_64")]
const NUMBERS: (i64, i64) = (74, 75);
#[cfg(target_arch = "aarch64")]
const NUMBERS: (i64, i64) = (82, 83);

fn sync(fd: i32, number: i64) -> i32 {
    static SIGN: OnceLock<Option<PathBuf>> = OnceLock::new();
    let sign = SIGN.get_or_init(|| std::env::var_os("HANGING_DISK").map(PathBuf::from));
    if sign.as_ref().is_some_and(|sign| sign.exists()) {
        loop {
            std::thread::park();
        }
    }
    // Sound: both calls take a descriptor and nothing else.
    (unsafe { syscall(number, fd) }) as i32
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: i32) -> i32 {
    sync(fd, NUMBERS.0)
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: i32) -> i32 {
    sync(fd, NUMBERS.1)
}
