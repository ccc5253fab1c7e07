//! Closing of dropped snapshot databases on separate threads.
//!
//! When sled closes a database, it writes buffered data and waits for its threads, for as long as
//! the disk takes. An async task that drops a database must not wait for that, as the wait would
//! delay other tasks, such as Raft's heartbeats. The directory of a database cannot be used until
//! the close has ended. That does no harm, as every snapshot has a separate directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

/// Largest number of threads that close databases. When all of them are busy, the thread that drops
/// a database closes it, which slows down the creation of new databases.
const THREADS_MAX: usize = 8;

/// Snapshot databases that are being closed, by their numbers. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closers {
    shared: Arc<Shared>,
    /// Lock of the data directory. Each close keeps the lock until its own end, because the next
    /// open of the directory deletes unfinished databases.
    lock: Weak<File>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Numbers of the databases that are being closed; true means that the database is removed
    /// after its close.
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

    /// Returns the lock of the data directory.
    ///
    /// # Errors
    /// An error when the lock was released.
    pub(crate) fn lock(&self) -> io::Result<Arc<File>> {
        self.lock.upgrade().ok_or_else(|| io::Error::other("the data directory is no longer in use"))
    }

    /// Runs `close` on another thread, and then `remove` if [`Closers::leaves_removal`] was called
    /// meanwhile. Runs both on the calling thread when [`THREADS_MAX`] closes are under way.
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
            // Dropped after `close`, even if it panics.
            let _end = end;
            close();
        };
        if under_way > THREADS_MAX {
            work();
        } else if let Err(error) = thread::Builder::new().name("zlock-close".into()).spawn(work) {
            // The failed spawn has dropped the closure, and with it the database.
            tracing::warn!(%error, "no thread to close a database on");
        }
    }

    /// Requests the removal of database `number` after its close. Returns false and requests
    /// nothing if the database is not being closed.
    pub(crate) fn leaves_removal(&self, number: u64) -> bool {
        self.shared.numbers().get_mut(&number).map(|remove| *remove = true).is_some()
    }

    /// Waits until no database is being closed. Blocking.
    pub(crate) fn rest(&self) {
        let numbers = self.shared.numbers();
        let closing = |numbers: &mut BTreeMap<u64, bool>| !numbers.is_empty();
        drop(self.shared.changed.wait_while(numbers, closing));
    }
}

/// Guard of one close. Its drop removes the database if the removal was requested during the close.
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
