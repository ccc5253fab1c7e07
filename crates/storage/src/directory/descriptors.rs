//! File descriptors for the disk of a process that may open no more files.
//!
//! EMFILE and ENFILE tell of descriptors and of no disk, so they end a node only when they last. A
//! few descriptors are held spare, opened before any client connects. They are given up where a
//! file is opened, and held again afterwards. While there are none, the doors are asked to give
//! some back, and the disk waits.
//!
//! A limit that is lowered counts numbers and not files: what was opened first makes room below it.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio::sync::Notify;

/// Descriptors that are held spare.
const SPARE: usize = 8;
/// Descriptors that one step of the disk takes at most: sled opens so many at once.
const NEEDED: usize = 4;
/// Time after which the lack of a descriptor is an error of the disk.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two lines in the log.
const TOLD_AGAIN: Duration = Duration::from_secs(10);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Descriptors of this process: its limit is one for all that it opens.
static POOL: Mutex<Pool> = Mutex::new(Pool { spare: Vec::new(), loans: 0, told: None });
static WANTED: Notify = Notify::const_new();

struct Pool {
    spare: Vec<File>,
    /// Steps for which the spare ones were given up.
    loans: usize,
    /// Last line in the log.
    told: Option<Instant>,
}

/// Room for the descriptors of one step, until it is dropped.
pub(crate) struct Loan(());

/// Resolves when descriptors are missing: a door is to end a connection that it can do without.
pub async fn descriptors_wanted() {
    WANTED.notified().await;
}

/// Asks the doors of this process for descriptors, after an error that says that none are left.
/// False, and nothing happens, after any other error.
pub fn want_descriptors(error: &io::Error) -> bool {
    let is_missing = is_missing(error);
    if is_missing {
        WANTED.notify_waiters();
    }
    is_missing
}

/// Whether an error tells that there is no descriptor, of this process or of the system.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|missing| code == Some(missing.raw_os_error()))
}

/// Opens what is held spare, as far as there are descriptors.
pub(crate) fn hold_spare() {
    pool().fill();
}

/// Room for a step, at once or never.
pub(crate) fn try_lend() -> Option<Loan> {
    let mut pool = pool();
    pool.fill();
    // Under a loan there is room for the other step, or it waits.
    if pool.loans == 0 && pool.spare.len() < NEEDED {
        return None;
    }
    pool.spare.clear();
    pool.loans += 1;
    Some(Loan(()))
}

/// Wait for a descriptor.
#[derive(Default)]
struct Want {
    until: Option<Instant>,
}

impl Want {
    /// Asks for descriptors, and answers how long to wait before the next look.
    ///
    /// # Errors
    /// EMFILE, when they have been wanted for [`PATIENCE`].
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

/// Opens files, again and again while there is no descriptor. `open` can be repeated. Blocking.
///
/// # Errors
/// Those of `open`; that of a missing descriptor after [`PATIENCE`] only.
pub(crate) fn patiently<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut want = Want::default();
    loop {
        if let Some(_loan) = try_lend() {
            match open() {
                // Another thread was faster.
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
