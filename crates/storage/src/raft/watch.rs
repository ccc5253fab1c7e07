//! Watch channel for openraft: receivers read the value sent last and wait for the next one.
//!
//! Waiters wake in the order in which their waits began, so a simulation with the same seed runs
//! the same way. tokio's watch channel distributes waiters over eight lists with random numbers
//! that cannot be seeded. It also checks all eight lists for each value, and openraft sends about
//! twenty values for each write.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use openraft::rt::watch::{RecvError, SendError, Watch, WatchReceiver, WatchSender};
use openraft::rt::{OptionalSend, OptionalSync};
use tokio::sync::Notify;

/// Watch channel that wakes its waiters in the order in which they began to wait.
pub struct OrderedWatch;

/// The sending half of an [`OrderedWatch`].
pub struct OrderedSender<T>(Arc<Shared<T>>);

/// The receiving half of an [`OrderedWatch`].
pub struct OrderedReceiver<T> {
    shared: Arc<Shared<T>>,
    /// Version of the value that this receiver saw last.
    seen: u64,
}

struct Shared<T> {
    value: RwLock<T>,
    /// Number of values sent so far. Changed only while `value` is locked.
    version: AtomicU64,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    changed: Notify,
}

impl<T> Shared<T> {
    /// Locks the value for reading, even if a thread has panicked while it held the lock: the value
    /// is complete after a panic in openraft's code.
    fn read(&self) -> RwLockReadGuard<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let mut value = self.value.write().unwrap_or_else(PoisonError::into_inner);
        let modified = modify(&mut value);
        if modified {
            self.version.fetch_add(1, Ordering::Release);
        }
        drop(value);
        if modified {
            self.changed.notify_waiters();
        }
        modified
    }

    fn receiver(self: &Arc<Self>, seen: u64) -> OrderedReceiver<T> {
        self.receivers.fetch_add(1, Ordering::Relaxed);
        OrderedReceiver { shared: Arc::clone(self), seen }
    }
}

impl<T> Clone for OrderedSender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        OrderedSender(Arc::clone(&self.0))
    }
}

impl<T> Drop for OrderedSender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T> Clone for OrderedReceiver<T> {
    fn clone(&self) -> Self {
        self.shared.receiver(self.seen)
    }
}

impl<T> OrderedReceiver<T> {
    /// Result of a wait for a new value; `None` if the wait must go on. The error means that all
    /// senders were dropped.
    fn look(&mut self) -> Option<Result<(), RecvError>> {
        // Read before the version, so that a value sent just before the last sender's drop is not
        // missed.
        let is_closed = self.shared.senders.load(Ordering::Acquire) == 0;
        let version = self.shared.version.load(Ordering::Acquire);
        if version != self.seen {
            self.seen = version;
            return Some(Ok(()));
        }
        is_closed.then_some(Err(RecvError(())))
    }
}

impl<T> Drop for OrderedReceiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Watch for OrderedWatch {
    type Sender<T: OptionalSend + OptionalSync> = OrderedSender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = OrderedReceiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = RwLockReadGuard<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (OrderedSender<T>, OrderedReceiver<T>) {
        let shared = Arc::new(Shared {
            value: RwLock::new(init),
            version: AtomicU64::new(0),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(0),
            changed: Notify::new(),
        });
        let receiver = shared.receiver(0);
        (OrderedSender(shared), receiver)
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<OrderedWatch, T> for OrderedSender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.0.receivers.load(Ordering::Acquire) == 0 {
            return Err(SendError(value));
        }
        self.0.change(|old| {
            *old = value;
            true
        });
        Ok(())
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        self.0.change(modify)
    }

    fn borrow_watched(&self) -> RwLockReadGuard<'_, T> {
        self.0.read()
    }

    fn subscribe(&self) -> OrderedReceiver<T> {
        self.0.receiver(self.0.version.load(Ordering::Acquire))
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<OrderedWatch, T> for OrderedReceiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        let end = loop {
            if let Some(end) = self.look() {
                break end;
            }
            let mut woken = pin!(self.shared.changed.notified());
            // Registered before the check below, so that a change between the check and the wait
            // still wakes this task.
            woken.as_mut().enable();
            let same = self.shared.version.load(Ordering::Acquire) == self.seen;
            if same && self.shared.senders.load(Ordering::Acquire) > 0 {
                woken.await;
            }
        };
        tokio::task::coop::consume_budget().await;
        end
    }

    fn borrow_watched(&self) -> RwLockReadGuard<'_, T> {
        self.shared.read()
    }

    fn borrow_and_update(&mut self) -> RwLockReadGuard<'_, T> {
        let value = self.shared.read();
        self.seen = self.shared.version.load(Ordering::Acquire);
        value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn a_value_that_was_seen_is_no_change_and_the_last_one_is_told_before_the_end() {
        let (sender, mut receiver) = OrderedWatch::channel(0);
        sender.send(1).unwrap();
        assert_eq!(*receiver.borrow_and_update(), 1);
        assert!(!sender.send_if_modified(|_| false));
        sender.send(2).unwrap();
        drop(sender);
        assert!(receiver.changed().await.is_ok());
        assert_eq!(*receiver.borrow_watched(), 2);
        assert!(receiver.changed().await.is_err());
    }

    #[tokio::test]
    async fn a_value_without_receivers_is_given_back() {
        let (sender, receiver) = OrderedWatch::channel(0);
        let other = sender.subscribe();
        drop(receiver);
        sender.send(1).unwrap();
        drop(other);
        assert_eq!(sender.send(2).unwrap_err().0, 2);
    }

    #[tokio::test]
    async fn waiters_are_woken_in_their_order() {
        let (sender, receiver) = OrderedWatch::channel(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut waits = tokio::task::JoinSet::new();
        for waiter in 0..50 {
            let (mut receiver, woken) = (receiver.clone(), Arc::clone(&woken));
            waits.spawn(async move {
                receiver.changed().await.unwrap();
                woken.lock().unwrap().push(waiter);
                assert!(receiver.changed().await.is_err(), "the sender is gone");
            });
        }
        tokio::task::yield_now().await;
        sender.send(1).unwrap();
        tokio::task::yield_now().await;
        drop(sender);
        waits.join_all().await;
        assert_eq!(*woken.lock().unwrap(), (0..50).collect::<Vec<_>>());
    }
}
