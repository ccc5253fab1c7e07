//! File descriptors for the disk of a process that may open no more files.
//!
//! EMFILE and ENFILE say nothing about the disk, so they end a node only when they last. The
//! process holds a few spare descriptors, opened before any client connects. They are released for
//! each step that opens a file, and taken back afterwards. While there are none, the doors are
//! asked to close some connections, and the disk waits.
//!
//! A lowered limit counts descriptor numbers and not open files, so only files that were opened
//! early make room below it.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio::sync::Notify;

/// Number of spare descriptors that the process holds open.
const SPARE: usize = 8;
/// Descriptors that one step of the disk takes at most: sled opens so many at once.
const NEEDED: usize = 4;
/// Time after which the lack of a descriptor counts as an error of the disk.
const PATIENCE: Duration = Duration::from_secs(30);
/// Shortest time between two log lines that say that the process has no free file descriptor.
const TOLD_AGAIN: Duration = Duration::from_secs(10);
/// Pause between two tries to open a file.
const PAUSE: Duration = Duration::from_millis(10);

/// Spare descriptors of this process. The limit applies to the process, so the pool is global.
static POOL: Mutex<Pool> = Mutex::new(Pool { spare: Vec::new(), loans: 0, told: None });
static WANTED: Notify = Notify::const_new();

struct Pool {
    spare: Vec<File>,
    /// Number of steps under way that use the room of the spare descriptors.
    loans: usize,
    /// Time of the last log line about missing descriptors; `None` before the first.
    told: Option<Instant>,
}

/// Permission for one step to open files in place of the spare descriptors, until it is dropped.
pub(crate) struct Loan(());

/// Resolves when descriptors are missing: a door should then close a connection that it can spare.
pub async fn descriptors_wanted() {
    WANTED.notified().await;
}

/// Asks the doors of this process for descriptors if `error` says that none are left. Returns true
/// in that case.
pub fn want_descriptors(error: &io::Error) -> bool {
    let is_missing = is_missing(error);
    if is_missing {
        WANTED.notify_waiters();
    }
    is_missing
}

/// Tells whether an error is the lack of a descriptor, in this process or in the whole system.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|missing| code == Some(missing.raw_os_error()))
}

/// Opens the spare descriptors, as far as the limit allows.
pub(crate) fn hold_spare() {
    pool().fill();
}

/// Returns room for a step, or `None` at once when there is none.
pub(crate) fn try_lend() -> Option<Loan> {
    let mut pool = pool();
    pool.fill();
    // During another loan the spare descriptors are already free: the two steps share them, or one
    // waits.
    if pool.loans == 0 && pool.spare.len() < NEEDED {
        return None;
    }
    pool.spare.clear();
    pool.loans += 1;
    Some(Loan(()))
}

/// Deadline of a step that waits for a descriptor.
#[derive(Default)]
struct Want {
    until: Option<Instant>,
}

impl Want {
    /// Asks for descriptors, and returns the pause before the next try.
    ///
    /// # Errors
    /// EMFILE, when they have been missing for [`PATIENCE`].
    fn again(&mut self) -> io::Result<Duration> {
        let now = Instant::now();
        if now >= *self.until.get_or_insert(now + PATIENCE) {
            return Err(Errno::MFILE.into());
        }
        pool().tell(now);
        WANTED.notify_waiters();
        Ok(PAUSE)
    }
}

/// Waits for room for a step.
///
/// # Errors
/// EMFILE, when there is none for [`PATIENCE`].
pub(crate) async fn lend() -> io::Result<Loan> {
    let mut want = Want::default();
    loop {
        if let Some(loan) = try_lend() {
            return Ok(loan);
        }
        tokio::time::sleep(want.again()?).await;
    }
}

/// Runs `open`, and repeats it while no descriptor is free. Blocking.
///
/// # Errors
/// The errors of `open`; the lack of a descriptor only after [`PATIENCE`].
pub(crate) fn patiently<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut want = Want::default();
    loop {
        if let Some(_loan) = try_lend() {
            match open() {
                // Another thread took the descriptor first.
                Err(error) if is_missing(&error) => {}
                opened => return opened,
            }
        }
        std::thread::sleep(want.again()?);
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    fn fill(&mut self) {
        while self.loans == 0 && self.spare.len() < SPARE {
            match File::open("/dev/null") {
                Ok(file) => self.spare.push(file),
                Err(_) => return,
            }
        }
    }

    fn tell(&mut self, now: Instant) {
        if self.told.is_some_and(|at| now < at + TOLD_AGAIN) {
            return;
        }
        self.told = Some(now);
        let wait_max_ms = PATIENCE.as_millis();
        tracing::warn!(wait_max_ms, "no descriptor is left for a file of the disk: it waits for one");
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut pool = pool();
        pool.loans -= 1;
        pool.fill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_descriptor_is_tried_again_and_asks_for_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let wanted = WANTED.notified();
        let mut times = 0;
        let opened = patiently(|| {
            times += 1;
            let missing = [Errno::MFILE, Errno::NFILE].get(times - 1);
            missing.map_or(Ok("open"), |missing| Err((*missing).into()))
        });
        assert_eq!((opened.unwrap(), times), ("open", 3));
        runtime.block_on(wanted);
    }

    #[test]
    fn any_other_error_is_one_at_once() {
        let mut times = 0;
        let failed = patiently(|| -> io::Result<()> {
            times += 1;
            Err(Errno::IO.into())
        });
        assert_eq!((failed.unwrap_err().raw_os_error(), times), (Some(Errno::IO.raw_os_error()), 1));
    }
}
