//! Windows: bounds on the concurrent requests of one address. A request takes a number of units
//! from the window of its address.
//!
//! A request for which the window has too few free units waits, in order of arrival. It does not
//! delay requests of other addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use crate::mutex::Mutex;
use crate::networks::source;

/// Size of an address's window for concurrent writes, in units: enough for one long write, for 1
/// MiB of shorter writes, or for 512 writes of a few bytes.
const WRITE_WINDOW: u32 = 512;
/// Number of bytes of a write that take one unit of a window. Each write takes one more unit.
const UNIT_BYTES: usize = 2 << 10;
/// Size in bytes above which a write is *long*. A long write takes all units of its address's
/// window.
const LONG_BYTES: usize = 64 << 10;
/// Size of the window that the long writes of all addresses share, in units.
const LONG_WINDOW: usize = 512;
/// Pause after a long write before its units are free again, as a multiple of the time that the
/// write took. The pause is made only while other addresses write. Each unit is then in use for at
/// most an eighth of the time, unless [`PAUSE_MAX`] shortens the pause. So the long writes of three
/// nodes take less than half of the leader's time.
const PAUSE: u32 = 7;
/// Longest pause after a long write.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time for which an address counts as one that writes, after it has begun a write.
const RECENT: Duration = Duration::from_secs(1);

/// Windows for the writes of a server: one for each address, and one for the long writes of all
/// addresses.
#[derive(Debug)]
pub struct WriteWindows {
    windows: Arc<Windows>,
    long: Arc<Semaphore>,
    latest: Arc<Mutex<LatestWrites>>,
}

/// Times of the latest writes. They tell for each address when another address wrote last.
#[derive(Debug, Default)]
struct LatestWrites {
    /// Address and time of the latest write. The address is `None` for all exempt addresses.
    newest: Option<(Option<IpAddr>, Instant)>,
    /// Time of the latest write of all addresses but that of `newest`.
    of_others: Option<Instant>,
}

/// Permission for one write: its units in the window of its address and, for a long write, in the
/// window for all long writes. A drop frees them.
#[derive(Debug)]
pub struct WritePass {
    _of_address: Pass,
    /// Share of a long write in the window for all addresses; `None` for a short write.
    _long: Option<LongPass>,
}

/// Units of a long write in the window for all long writes. While other addresses write, the drop
/// frees them only after a pause.
#[derive(Debug)]
struct LongPass {
    latest: Arc<Mutex<LatestWrites>>,
    addr: Option<IpAddr>,
    began: Instant,
    permit: Option<OwnedSemaphorePermit>,
}

/// Windows (bounds on concurrent requests) of all addresses that have requests under way.
#[derive(Debug)]
pub struct Windows {
    units: u32,
    of: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// Permission for one request: its units in a window, which the drop frees. Empty for an exempt
/// address, which has no window.
#[derive(Debug)]
pub struct Pass {
    _taken: Option<Taken>,
}

#[derive(Debug)]
struct Taken {
    windows: Arc<Windows>,
    source: IpAddr,
    /// Window of the address; `None` only during the drop.
    window: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Default for WriteWindows {
    fn default() -> WriteWindows {
        let long = Arc::new(Semaphore::new(LONG_WINDOW));
        WriteWindows { windows: Windows::new(WRITE_WINDOW), long, latest: Arc::default() }
    }
}

impl WriteWindows {
    /// Waits until the windows have room for a write of `bytes` bytes, behind earlier writes of the
    /// same address. A long write also waits for room in the window for all long writes, where each
    /// address has at most one write. `None` stands for an exempt address.
    pub async fn enter(&self, addr: Option<IpAddr>, bytes: usize) -> WritePass {
        let addr = addr.map(source);
        self.latest.lock().note(addr, Instant::now());
        let units = u32::try_from(1 + bytes / UNIT_BYTES).unwrap_or(u32::MAX);
        let is_long = bytes > LONG_BYTES;
        let of_address = self.windows.enter(addr, if is_long { u32::MAX } else { units }).await;
        let long = if is_long {
            let units = units.min(u32::try_from(LONG_WINDOW).unwrap_or(u32::MAX));
            // The semaphore is never closed.
            let permit = Arc::clone(&self.long).acquire_many_owned(units).await.ok();
            Some(LongPass { latest: Arc::clone(&self.latest), addr, began: Instant::now(), permit })
        } else {
            None
        };
        WritePass { _of_address: of_address, _long: long }
    }
}

impl LatestWrites {
    fn note(&mut self, addr: Option<IpAddr>, now: Instant) {
        if let Some((newest, at)) = self.newest
            && newest != addr
        {
            self.of_others = Some(at);
        }
        self.newest = Some((addr, now));
    }

    /// Tells whether another address than `addr` has begun a write in the last [`RECENT`].
    fn others_write(&self, addr: Option<IpAddr>, now: Instant) -> bool {
        let of_others = self.newest.and_then(|(newest, at)| if newest == addr { self.of_others } else { Some(at) });
        of_others.is_some_and(|at| now < at + RECENT)
    }
}

impl Windows {
    /// Creates windows that have `units` units for each address.
    pub fn new(units: u32) -> Arc<Windows> {
        Arc::new(Windows { units, of: Mutex::default() })
    }

    /// Waits until the window of `addr` has `units` free units, behind earlier requests of the same
    /// address. A request larger than the window takes all of it. `None` stands for an exempt
    /// address and does not wait.
    pub async fn enter(self: &Arc<Windows>, addr: Option<IpAddr>, units: u32) -> Pass {
        let Some(addr) = addr else { return Pass { _taken: None } };
        let source = source(addr);
        let window = self.window(source);
        let taken = Some(Arc::clone(&window));
        let mut taken = Taken { windows: Arc::clone(self), source, window: taken, permit: None };
        // The semaphore is never closed.
        taken.permit = window.acquire_many_owned(units.min(self.units)).await.ok();
        Pass { _taken: Some(taken) }
    }

    fn window(&self, source: IpAddr) -> Arc<Semaphore> {
        let mut windows = self.of.lock();
        Arc::clone(windows.entry(source).or_insert_with(|| Arc::new(Semaphore::new(self.units as usize))))
    }
}

impl Drop for LongPass {
    fn drop(&mut self) {
        let pause = (self.began.elapsed() * PAUSE).min(PAUSE_MAX);
        let permit = self.permit.take();
        let others_write = self.latest.lock().others_write(self.addr, Instant::now());
        if others_write && let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                sleep(pause).await;
                drop(permit);
            });
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut windows = self.windows.of.lock();
        // Dropped while the map is locked, so that of several concurrent drops the last removes the
        // window.
        drop(self.window.take());
        if windows.get(&self.source).is_some_and(|window| Arc::strong_count(window) == 1) {
            windows.remove(&self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    const LONG: usize = 1 << 20;

    fn addr(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_beyond_its_window_waits_in_order_and_others_do_not() {
        let writes = WriteWindows::default();
        let long = writes.enter(addr(1), LONG).await;
        let mut short = Box::pin(writes.enter(addr(1), 1));
        let mut next = Box::pin(writes.enter(addr(1), LONG));
        assert!(short.as_mut().now_or_never().is_none() && next.as_mut().now_or_never().is_none());
        let other = writes.enter(addr(2), 1).now_or_never().expect("another address does not wait");
        let many = writes.enter(None, 1).now_or_never().expect("an address of many clients does not wait");
        drop(long);
        let short = short.now_or_never().expect("it came behind the long one");
        assert!(next.as_mut().now_or_never().is_none(), "a long one takes the whole window");
        drop(short);
        let next = next.await;
        assert_eq!(writes.windows.of.lock().len(), 2);
        drop((next, other, many));
        assert!(writes.windows.of.lock().is_empty(), "nothing is kept of addresses with nothing on its way");
    }

    #[tokio::test(start_paused = true)]
    async fn long_writes_pause_while_another_address_writes() {
        let writes = WriteWindows::default();
        let took = Duration::from_millis(20);
        let first = writes.enter(addr(1), LONG).await;
        let other = writes.enter(addr(2), 1).await;
        advance(took).await;
        drop(first);
        let ended = Instant::now();
        writes.enter(addr(1), 1).now_or_never().expect("short ones do not pause");
        let second = writes.enter(addr(1), LONG).await;
        assert!(ended.elapsed() >= PAUSE * took, "{:?}", ended.elapsed());
        drop(other);
        advance(RECENT).await;
        drop(second);
        writes.enter(addr(1), LONG).now_or_never().expect("no other address has written for a while");
    }

    /// Short writes of another address may begin and end while a long write is under way.
    #[tokio::test(start_paused = true)]
    async fn long_writes_pause_for_an_address_that_wrote_a_moment_ago() {
        let writes = WriteWindows::default();
        for other in [addr(2), None] {
            drop(writes.enter(other, 1).await);
            for _ in 0..2 {
                let long = writes.enter(addr(1), LONG).await;
                advance(Duration::from_millis(20)).await;
                drop(long);
                assert!(writes.enter(addr(1), LONG).now_or_never().is_none());
            }
            advance(RECENT).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn long_writes_of_all_addresses_take_turns() {
        let writes = WriteWindows::default();
        let first = writes.enter(addr(1), LONG).await;
        let mut second = Box::pin(writes.enter(addr(2), LONG));
        let mut third = Box::pin(writes.enter(None, LONG));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        let _short = writes.enter(addr(3), LONG_BYTES).now_or_never().expect("others do not wait for them");
        drop(first);
        let second = second.await;
        assert!(third.as_mut().now_or_never().is_none());
        drop(second);
        third.await;
    }

    /// Two requests of one address end at the same time. The address's window must then be removed.
    /// If the drop of each request counted the other request as still under way, the window would
    /// stay in the map for ever.
    #[test]
    fn places_that_are_given_back_together_leave_nothing() {
        let windows = Windows::new(WRITE_WINDOW);
        for round in 0..2_000 {
            let passes = [0, 1].map(|_| windows.enter(addr(1), 1).now_or_never().expect("there is room"));
            let barrier = std::sync::Barrier::new(passes.len());
            std::thread::scope(|scope| {
                for pass in passes {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        drop(pass);
                    });
                }
            });
            assert!(windows.of.lock().is_empty(), "round {round}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_gave_up_waiting_leaves_nothing() {
        let writes = WriteWindows::default();
        let long = writes.enter(addr(1), LONG).await;
        assert!(writes.enter(addr(1), 1).now_or_never().is_none());
        assert!(writes.enter(addr(2), LONG).now_or_never().is_none());
        drop(long);
        assert!(writes.windows.of.lock().is_empty());
        tokio::time::timeout(PAUSE_MAX, writes.enter(addr(3), LONG)).await.expect("none is before it");
    }
}
