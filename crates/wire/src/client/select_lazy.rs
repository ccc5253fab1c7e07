//! Polling of two futures in one task, each only when it was woken.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Waits for two futures. Returns the result of the future that is ready first.
///
/// `main` is polled whenever the task is woken, and `aside` only when `aside` itself was woken.
/// `select!` would poll both each time, and so examine the timers and signals in `aside` for every
/// request.
pub(crate) async fn beside<T>(
    mut main: Pin<&mut impl Future<Output = T>>,
    mut aside: Pin<&mut impl Future<Output = T>>,
) -> T {
    let call = Arc::new(Call { is_called: AtomicBool::new(true), task: AtomicWaker::new() });
    let waker = Waker::from(Arc::clone(&call));
    let both = poll_fn(|cx| {
        call.task.register(cx.waker());
        if let Poll::Ready(result) = main.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        if call.is_called.swap(false, Ordering::AcqRel) {
            return aside.as_mut().poll(&mut Context::from_waker(&waker));
        }
        Poll::Pending
    });
    both.await
}

/// Waker of the future `aside` of [`beside`]: notes that the future was woken, and wakes the task.
struct Call {
    is_called: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_called.store(true, Ordering::Release);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use tokio::sync::Notify;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn the_one_aside_is_polled_only_when_it_is_woken() {
        let (polls, call) = (Cell::new(0), Notify::new());
        let main = async {
            for _ in 0..3 {
                yield_now().await;
            }
            assert_eq!(polls.get(), 1);
            call.notify_one();
            std::future::pending().await
        };
        let aside = async {
            let mut called = pin!(call.notified());
            poll_fn(|cx| {
                polls.set(polls.get() + 1);
                called.as_mut().poll(cx)
            })
            .await;
            "aside"
        };
        assert_eq!(beside(pin!(main), pin!(aside)).await, "aside");
        assert_eq!(polls.get(), 2);
        assert_eq!(beside(pin!(async { "main" }), pin!(std::future::pending())).await, "main");
    }
}
