//! Windows: bounds on what one address has under way at once.
//!
//! What is beyond the window of an address waits behind what the address has under way, in the
//! order in which it came. Other addresses do not wait for it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::networks::source;

/// Window of one address for writes, in units: 1 MiB, or 512 short ones.
pub const WRITE_WINDOW: u32 = 1_024;
/// Bytes of a write that are a unit.
const UNIT_BYTES: usize = 1_024;
/// Units of a write besides those of its bytes.
const UNITS_OF_EACH: usize = 2;

/// Windows of all addresses that have anything under way.
#[derive(Debug)]
pub struct Windows {
    units: u32,
    of: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// A place in a window, or none where the address has no window.
#[derive(Debug)]
pub struct Pass {
    _taken: Option<Taken>,
}

#[derive(Debug)]
struct Taken {
    windows: Arc<Windows>,
    source: IpAddr,
    window: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Windows {
    /// Windows of so many units for each address.
    pub fn new(units: u32) -> Arc<Windows> {
        Arc::new(Windows { units, of: Mutex::default() })
    }

    /// Waits for the place of a write, as [`Windows::enter`] does.
    pub async fn enter_write(self: &Arc<Windows>, addr: Option<IpAddr>, bytes: usize) -> Pass {
        self.enter(addr, u32::try_from(UNITS_OF_EACH + bytes / UNIT_BYTES).unwrap_or(u32::MAX)).await
    }

    /// Waits for a place, behind all that came before from the same address. What is larger than
    /// the window takes it all. Without an address, which is one that stands for many clients,
    /// there is no bound.
    pub async fn enter(self: &Arc<Windows>, addr: Option<IpAddr>, units: u32) -> Pass {
        let Some(addr) = addr else { return Pass { _taken: None } };
        let source = source(addr);
        let mut taken = Taken { windows: Arc::clone(self), source, window: self.window(source), permit: None };
        // The semaphore is never closed.
        taken.permit = Arc::clone(&taken.window).acquire_many_owned(units.min(self.units)).await.ok();
        Pass { _taken: Some(taken) }
    }

    fn window(&self, source: IpAddr) -> Arc<Semaphore> {
        let mut windows = self.of.lock().expect("nothing panics under this guard");
        Arc::clone(windows.entry(source).or_insert_with(|| Arc::new(Semaphore::new(self.units as usize))))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut windows = self.windows.of.lock().expect("nothing panics under this guard");
        // The map has one, and this has one: nothing else is on its way.
        if Arc::strong_count(&self.window) == 2 {
            windows.remove(&self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn an_address_beyond_its_window_waits_in_order_and_others_do_not() {
        let windows = Windows::new(WRITE_WINDOW);
        let [one, other] = [1, 2].map(|last| Some(IpAddr::from([192, 0, 2, last])));
        let all = windows.enter_write(one, 8 << 20).await;
        let mut large = Box::pin(windows.enter_write(one, 8 << 20));
        let mut small = Box::pin(windows.enter_write(one, 1));
        assert!(large.as_mut().now_or_never().is_none() && small.as_mut().now_or_never().is_none());
        let _other = windows.enter_write(other, 1 << 20).now_or_never().expect("another address does not wait");
        let _many =
            windows.enter_write(None, 8 << 20).now_or_never().expect("an address of many clients does not wait");
        drop(all);
        assert!(small.as_mut().now_or_never().is_none(), "it came behind the large one");
        drop(large.now_or_never().expect("there is room"));
        let small = small.now_or_never().expect("there is room");
        assert_eq!(windows.of.lock().unwrap().len(), 2);
        drop(small);
        assert_eq!(windows.of.lock().unwrap().len(), 1, "nothing is kept of an address that has nothing on its way");
    }

    #[tokio::test]
    async fn one_that_gave_up_waiting_leaves_nothing() {
        let windows = Windows::new(WRITE_WINDOW);
        let one = Some(IpAddr::from([192, 0, 2, 1]));
        let all = windows.enter_write(one, 8 << 20).await;
        assert!(windows.enter_write(one, 1).now_or_never().is_none());
        drop(all);
        assert!(windows.of.lock().unwrap().is_empty());
    }
}
