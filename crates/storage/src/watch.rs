//! tokio's watch channel for Raft, with one difference in simulations: who waits for a change is woken in the order in
//! which the waits began. tokio spreads waiters over several lists by its own random numbers, which no seed can reach.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use openraft::rt::watch::{RecvError, SendError, Watch, WatchReceiver, WatchSender};
use openraft::rt::{OptionalSend, OptionalSync};
use tokio::sync::{Notify, watch};

use crate::runtime::is_seeded;

/// See the file.
pub struct OrderedWatch;

/// The sending half of an [`OrderedWatch`].
pub struct OrderedSender<T> {
    sender: watch::Sender<T>,
    /// There in simulations only.
    order: Option<Arc<Notify>>,
}

/// The receiving half of an [`OrderedWatch`].
pub struct OrderedReceiver<T> {
    receiver: watch::Receiver<T>,
    order: Option<Arc<Notify>>,
}

impl<T> Clone for OrderedSender<T> {
    fn clone(&self) -> Self {
        OrderedSender { sender: self.sender.clone(), order: self.order.clone() }
    }
}

impl<T> Clone for OrderedReceiver<T> {
    fn clone(&self) -> Self {
        OrderedReceiver { receiver: self.receiver.clone(), order: self.order.clone() }
    }
}

impl<T> Drop for OrderedSender<T> {
    fn drop(&mut self) {
        self.wake();
    }
}

impl<T> OrderedSender<T> {
    fn wake(&self) {
        if let Some(order) = &self.order {
            order.notify_waiters();
        }
    }
}

impl Watch for OrderedWatch {
    type Sender<T: OptionalSend + OptionalSync> = OrderedSender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = OrderedReceiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = watch::Ref<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (OrderedSender<T>, OrderedReceiver<T>) {
        let order = is_seeded().then(Arc::default);
        let (sender, receiver) = watch::channel(init);
        (OrderedSender { sender, order: order.clone() }, OrderedReceiver { receiver, order })
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<OrderedWatch, T> for OrderedSender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        let sent = self.sender.send(value).map_err(|error| SendError(error.0));
        self.wake();
        sent
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        let modified = self.sender.send_if_modified(modify);
        self.wake();
        modified
    }

    fn borrow_watched(&self) -> watch::Ref<'_, T> {
        self.sender.borrow()
    }

    fn subscribe(&self) -> OrderedReceiver<T> {
        OrderedReceiver { receiver: self.sender.subscribe(), order: self.order.clone() }
    }
}

/// Whether there is a change by now.
fn look<T>(receiver: &mut watch::Receiver<T>) -> Poll<Result<(), watch::error::RecvError>> {
    let changed = pin!(tokio::task::unconstrained(receiver.changed()));
    changed.poll(&mut Context::from_waker(Waker::noop()))
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<OrderedWatch, T> for OrderedReceiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        let Some(order) = self.order.clone() else {
            return self.receiver.changed().await.map_err(|_| RecvError(()));
        };
        loop {
            let mut woken = pin!(order.notified());
            // In line from here on, so that no change falls between the look and the wait.
            woken.as_mut().enable();
            let looked = look(&mut self.receiver);
            if let Poll::Ready(changed) = looked {
                tokio::task::coop::consume_budget().await;
                return changed.map_err(|_| RecvError(()));
            }
            woken.await;
        }
    }

    fn borrow_watched(&self) -> watch::Ref<'_, T> {
        self.receiver.borrow()
    }

    fn borrow_and_update(&mut self) -> watch::Ref<'_, T> {
        self.receiver.borrow_and_update()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn waiters_are_woken_in_their_order() {
        crate::seed_random(Some(1));
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
        crate::seed_random(None);
    }
}
