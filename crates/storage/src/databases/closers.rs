//! Databases that were dropped: each is closed on a thread of its own.
//!
//! To close one, sled writes what it still holds and waits for its threads, which takes as long as
//! the disk takes. The task that drops a database has others beside it that must not wait:
//! heartbeats of Raft among them. Until a database is closed its directory is of no use. Nothing
//! needs it: every snapshot has a number, and so a directory, of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

/// Threads that close databases. Beyond, a task that drops one closes it itself: databases come
/// faster than the disk takes them.
const THREADS_MAX: usize = 8;

/// The databases that are being closed. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closers {
    shared: Arc<Shared>,
    /// Of the data directory. It is held until they are closed: the next one to open the directory
    /// tidies it up.
    lock: Weak<File>,
}

#[derive(Debug, Default)]
struct Shared {
    /// By number, and whether the database is to be removed then.
    numbers: Mutex<BTreeMap<u64, bool>>,
    changed: Condvar,
}

impl Shared {
    fn numbers(&self) -> MutexGuard<'_, BTreeMap<u64, bool>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Closers {
    pub(crate) fn new(lock: &Arc<File>) -> Closers {
        Closers { shared: Arc::default(), lock: Arc::downgrade(lock) }
    }

    /// The lock of the data directory.
    ///
    /// # Errors
    /// When it was let go.
    pub(crate) fn lock(&self) -> io::Result<Arc<File>> {
        self.lock.upgrade().ok_or_else(|| io::Error::other("the data directory is no longer in use"))
    }

    /// Runs `close`, and then `remove` each time that this was asked for meanwhile.
    pub(crate) fn close(
        &self,
        number: u64,
        close: impl FnOnce() + Send + 'static,
        remove: impl FnMut() + Send + 'static,
    ) {
        let under_way = {
            let mut numbers = self.shared.numbers();
            numbers.insert(number, false);
            numbers.len()
        };
        let end = End { number, shared: Arc::clone(&self.shared), remove, _lock: self.lock.upgrade() };
        let work = move || {
            // Dropped last, also when `close` panics.
            let _end = end;
            close();
        };
        if under_way > THREADS_MAX {
            work();
        } else if let Err(error) = thread::Builder::new().name("zlock-close".into()).spawn(work) {
            // What was to be done there was dropped just now, and with it the database.
            tracing::warn!(%error, "no thread to close a database on");
        }
    }

    /// True when the database is being closed: it is then removed behind that.
    pub(crate) fn leaves_removal(&self, number: u64) -> bool {
        self.shared.numbers().get_mut(&number).map(|remove| *remove = true).is_some()
    }

    /// Waits until all are closed. Blocking.
    pub(crate) fn rest(&self) {
        let numbers = self.shared.numbers();
        let closing = |numbers: &mut BTreeMap<u64, bool>| !numbers.is_empty();
        drop(self.shared.changed.wait_while(numbers, closing));
    }
}

/// The end of a close.
struct End<R: FnMut()> {
    number: u64,
    shared: Arc<Shared>,
    remove: R,
    _lock: Option<Arc<File>>,
}

impl<R: FnMut()> Drop for End<R> {
    fn drop(&mut self) {
        loop {
            {
                let mut numbers = self.shared.numbers();
                if numbers.insert(self.number, false) != Some(true) {
                    numbers.remove(&self.number);
                    self.shared.changed.notify_all();
                    return;
                }
            }
            (self.remove)();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn databases_that_close_slowly_do_not_add_up() {
        let (lock, (closed, all)) = (Arc::new(tempfile::tempfile().unwrap()), channel());
        let closers = Closers::new(&lock);
        let mut held = Vec::new();
        for number in 0..THREADS_MAX as u64 {
            let (go_on, told) = channel::<()>();
            held.push(go_on);
            closers.close(number, move || assert!(told.recv().is_err()), || {});
        }
        closers.close(99, move || closed.send(thread::current().id()).unwrap(), || {});
        assert_eq!(all.try_recv(), Ok(thread::current().id()), "closed before the drop was over");
        held.clear();
        closers.rest();
        assert!(closers.shared.numbers().is_empty());
    }
}
