//! Spare file descriptors, with which the storage can open files when the process has reached its
//! limit of open files.
//!
//! EMFILE and ENFILE are no faults of the disk, so they stop a node only after [`PATIENCE`]. The
//! process holds a few spare descriptors, opened before any client connects. They are closed for
//! each step that opens a file, and opened again afterwards. When none are left, the servers for
//! clients are asked to close connections, and the storage waits.
//!
//! The limit of open files is in fact a bound on each descriptor's number, not on how many are
//! open. After an operator has lowered the limit, a new file needs a free number below it. Only
//! files that were opened early have such numbers, so only the close of such a file makes room.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio::sync::Notify;

/// Number of file descriptors that the process holds open in reserve for the storage.
const SPARE: usize = 8;
/// Largest number of file descriptors that one operation of the storage opens: sled opens this many
/// at once.
const NEEDED: usize = 4;
/// Time after which a lack of descriptors counts as a disk error and stops the node.
const PATIENCE: Duration = Duration::from_secs(30);
/// Shortest time between two log lines about missing descriptors.
const TOLD_AGAIN: Duration = Duration::from_secs(10);
/// Pause between two tries to open a file.
const PAUSE: Duration = Duration::from_millis(10);

/// Spare file descriptors of this process. The pool is global, because the limit of open files
/// applies to the whole process.
static POOL: Mutex<Pool> = Mutex::new(Pool { spare: Vec::new(), loans: 0, told: None });
static WANTED: Notify = Notify::const_new();

struct Pool {
    spare: Vec<File>,
    /// Number of existing [`Loan`]s. The spare descriptors are closed while it is not 0.
    loans: usize,
    /// Time of the last log line about missing descriptors; `None` before the first.
    told: Option<Instant>,
}

/// Loan of the spare descriptors: while it exists they stay closed, so that one operation of the
/// storage can open files with the freed descriptors.
pub(crate) struct Loan(());

/// Waits until an operation of the storage finds no free file descriptor. A server for clients
/// should then close one of its connections.
pub async fn descriptors_wanted() {
    WANTED.notified().await;
}

/// Asks the servers for clients to close connections, if `error` means that no file descriptor is
/// free. Returns whether `error` means this.
pub fn want_descriptors(error: &io::Error) -> bool {
    let is_missing = is_missing(error);
    if is_missing {
        WANTED.notify_waiters();
    }
    is_missing
}

/// Tells whether an error means that no descriptor is free, in this process or in the whole system.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|missing| code == Some(missing.raw_os_error()))
}

/// Opens the spare descriptors, up to [`SPARE`], as far as the limit of open files allows.
pub(crate) fn hold_spare() {
    pool().fill();
}

/// Closes the spare descriptors, so that one operation of the storage can open files. `None` when
/// too few descriptors are free. Does not wait.
pub(crate) fn try_lend() -> Option<Loan> {
    let mut pool = pool();
    pool.fill();
    // During another loan the spare descriptors are already closed. Both steps share the freed
    // descriptors; a step that finds none free tries again.
    if pool.loans == 0 && pool.spare.len() < NEEDED {
        return None;
    }
    pool.spare.clear();
    pool.loans += 1;
    Some(Loan(()))
}

/// Wait of one operation for a free file descriptor. `until` is the deadline of the wait; `None`
/// before the first failed try.
#[derive(Default)]
struct Want {
    until: Option<Instant>,
}

impl Want {
    /// Asks the servers for clients to close connections, and returns the pause before the next
    /// try.
    ///
    /// # Errors
    /// EMFILE, when descriptors have been missing for [`PATIENCE`].
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

/// Waits for a loan of the spare descriptors.
///
/// # Errors
/// EMFILE, when descriptors are missing for [`PATIENCE`].
pub(crate) async fn lend() -> io::Result<Loan> {
    let mut want = Want::default();
    loop {
        if let Some(loan) = try_lend() {
            return Ok(loan);
        }
        tokio::time::sleep(want.again()?).await;
    }
}

/// Runs `open` while the spare descriptors are closed, and repeats it while no descriptor is free.
/// Blocking.
///
/// # Errors
/// The errors of `open`; the lack of a descriptor only after [`PATIENCE`].
pub(crate) fn patiently<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut want = Want::default();
    loop {
        if let Some(_loan) = try_lend() {
            match open() {
                // Tried again: another thread took the descriptor first.
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
            // The root directory is there even in a container without /dev.
            match File::open("/") {
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
