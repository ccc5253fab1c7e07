//! A bound on the bytes that connections keep: of all connections together, and of each address.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};

/// Bytes of each connection that are not counted. Requests with short answers need no more, so they
/// go on when the bound is reached.
pub(crate) const UNCOUNTED_BYTES_MAX: usize = 16 << 10;
/// Divisor of the bound: one answer has at most half of it.
const ANSWER_PART: usize = 2;
/// Divisor of the bound: one address has at most a quarter, or one answer that is longer.
const ADDRESS_PART: usize = 4;
/// Divisor of the bound: the place for the answer of a short read. With the defaults it is one
/// packet.
const TURN_PART: usize = 64;

/// Bytes that the connections of a door keep, of all connections together and of each address. One
/// instance counts answers and events that clients have not taken, another one requests that are
/// not answered.
///
/// At either bound, reads wait for a place in the order in which they came. Pings, writes and other
/// requests with short answers go on. Clients that wait for the bound of their address let other
/// addresses pass. Events cannot wait: if they fill twice the bound, or three quarters of it for
/// one address, a client is closed when the next event for it comes while it has bytes to read.
pub(crate) struct SharedBytes {
    bytes_max: usize,
    /// A copy that can be read without the guard: true if the bound is reached, or clients wait.
    is_full: AtomicBool,
    ledger: Mutex<Ledger>,
    pressed: Notify,
    eased: Notify,
}

/// Bytes and waiters of all connections, and of each address.
#[derive(Default)]
struct Ledger {
    bytes: usize,
    peak: usize,
    /// The queue of those whose address has room for them. The address counts them already.
    queue: WaitQueue,
    shares: HashMap<IpAddr, AddressShare>,
    /// True if the share of an address was full, and has room again.
    has_eased: bool,
}

/// The queue of clients that wait for the same bound.
#[derive(Default)]
struct WaitQueue {
    waiting: VecDeque<Waiter>,
    /// Number of clients that have left the queue with what they waited for.
    served: u64,
}

struct Waiter {
    source: Option<IpAddr>,
    bytes: usize,
    tell: oneshot::Sender<AnswerPlace>,
}

/// Counted bytes, number of accounts, and line of one address.
#[derive(Default)]
struct AddressShare {
    bytes: usize,
    accounts: usize,
    is_full: Arc<AtomicBool>,
    queue: WaitQueue,
}

/// One connection's access to the shared bytes.
pub(crate) struct Account {
    all: Arc<SharedBytes>,
    /// The client's address; `None` if it stands for many clients, and has no share.
    source: Option<IpAddr>,
    is_full: Arc<AtomicBool>,
}

/// Bytes of one connection that are counted until this is dropped.
pub(crate) struct Charge {
    account: Account,
    bytes: usize,
}

/// Bytes that are reserved for an answer while it is made. Dropping it gives them back.
pub(crate) struct AnswerPlace {
    all: Arc<SharedBytes>,
    source: Option<IpAddr>,
    bytes: usize,
}

/// A client's wait in a line for a [`Place`]. Dropping it gives up the wait.
pub(crate) struct PlaceWait {
    all: Arc<SharedBytes>,
    source: Option<IpAddr>,
    place: oneshot::Receiver<AnswerPlace>,
    is_over: bool,
}

impl SharedBytes {
    pub(crate) fn new(bytes_max: usize) -> SharedBytes {
        let (pressed, eased) = (Notify::new(), Notify::new());
        SharedBytes { bytes_max, is_full: AtomicBool::new(false), ledger: Mutex::default(), pressed, eased }
    }

    /// The longest answer, in bytes.
    pub(crate) fn answer_bytes_max(&self) -> usize {
        self.bytes_max / ANSWER_PART
    }

    /// Bytes that are counted now, and the highest number so far.
    pub(crate) fn look(&self) -> (usize, usize) {
        let ledger = self.lock();
        (ledger.bytes, ledger.peak)
    }

    /// Sets the highest number of bytes to the present one.
    pub(crate) fn reset_peak(&self) {
        let mut ledger = self.lock();
        ledger.peak = ledger.bytes;
    }

    /// An account for a connection from `source`; `None` for an address without a bound.
    pub(crate) fn account(self: &Arc<SharedBytes>, source: Option<IpAddr>) -> Account {
        let is_full = source.map_or_else(Arc::default, |source| {
            let mut ledger = self.lock();
            let share = ledger.shares.entry(source).or_default();
            share.accounts += 1;
            Arc::clone(&share.is_full)
        });
        Account { all: Arc::clone(self), source, is_full }
    }

    /// Resolves when a bound that was reached has room again. Changes count from this call on.
    pub(crate) fn eased(&self) -> Notified<'_> {
        self.eased.notified()
    }

    /// Resolves when a client begins to wait, or has begun since the last call.
    pub(crate) async fn pressed(&self) {
        self.pressed.notified().await;
    }

    /// Queues in which clients wait, for all or for an address, and the number that had been served
    /// in each.
    pub(crate) fn queues(&self) -> HashMap<Option<IpAddr>, u64> {
        let ledger = self.lock();
        let shares = ledger.shares.iter().map(|(source, share)| (Some(*source), &share.queue));
        let queues = std::iter::once((None, &ledger.queue)).chain(shares);
        queues.filter(|(_, queue)| !queue.is_empty()).map(|(source, queue)| (source, queue.served)).collect()
    }

    fn recount(self: &Arc<SharedBytes>, source: Option<IpAddr>, before: usize, now: usize) {
        if before != now {
            let mut ledger = self.lock();
            ledger.bytes = ledger.bytes.saturating_sub(before).saturating_add(now);
            ledger.peak = ledger.peak.max(ledger.bytes);
            ledger.recount_share(source, before, now, self.bytes_max);
            self.go_on(ledger);
        }
    }

    /// Gives places to the clients whose turn has come, and releases the guard.
    fn go_on(self: &Arc<SharedBytes>, mut ledger: MutexGuard<'_, Ledger>) {
        let given = ledger.serve(self.bytes_max);
        let is_full = !ledger.queue.waiting.is_empty() || ledger.bytes >= self.bytes_max;
        let has_eased = self.is_full.swap(is_full, Ordering::Relaxed) && !is_full;
        let has_eased = std::mem::take(&mut ledger.has_eased) || has_eased;
        drop(ledger);
        if has_eased {
            self.eased.notify_waiters();
        }
        for Waiter { source, bytes, tell } in given {
            // A place that the client does not want any more is dropped at once.
            let _ = tell.send(AnswerPlace { all: Arc::clone(self), source, bytes });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nothing panics under this guard")
    }
}

impl Account {
    /// The address whose share this account counts in; `None` without a share.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Tells whether both bounds have room, and no client waits for them.
    pub(crate) fn has_room(&self) -> bool {
        !self.all.is_full.load(Ordering::Relaxed) && !self.is_full.load(Ordering::Relaxed)
    }

    /// A counter for bytes of the connection.
    pub(crate) fn charge(self) -> Charge {
        Charge { account: self, bytes: 0 }
    }

    /// Tells whether events have filled twice the bound, or three quarters of it for this address.
    pub(crate) fn overflows(&self) -> bool {
        if self.has_room() {
            return false;
        }
        let (ledger, max) = (self.all.lock(), self.all.bytes_max);
        let share = self.source.and_then(|source| ledger.shares.get(&source));
        ledger.bytes > max.saturating_mul(2) || share.is_some_and(|share| share.bytes > max - max / ADDRESS_PART)
    }

    /// Counts `now` bytes for the connection, in place of `before`.
    pub(crate) fn recount(&self, before: usize, now: usize) {
        self.all.recount(self.source, before, now);
    }

    /// Waits in line for a place. Each bound lets a place of any size pass while no bytes are
    /// counted under it.
    pub(crate) async fn place(&self, bytes: usize) -> AnswerPlace {
        self.queue_up(bytes).place().await
    }

    /// Joins the line for a place of the size of a short read's answer.
    pub(crate) fn turn(&self) -> PlaceWait {
        self.queue_up(self.all.bytes_max / TURN_PART)
    }

    /// Joins the line for a place of this size.
    pub(crate) fn queue_up(&self, bytes: usize) -> PlaceWait {
        let (tell, place) = oneshot::channel();
        let mut ledger = self.all.lock();
        ledger.queue_up(Waiter { source: self.source, bytes, tell }, self.all.bytes_max);
        self.all.go_on(ledger);
        if !self.has_room() {
            self.all.pressed.notify_one();
        }
        PlaceWait { all: Arc::clone(&self.all), source: self.source, place, is_over: false }
    }

    /// As [`SharedBytes::eased`].
    pub(crate) fn eased(&self) -> Notified<'_> {
        self.all.eased()
    }
}

impl Charge {
    /// Sets the number of bytes that the connection keeps.
    pub(crate) fn set(&mut self, bytes: usize) {
        let now = bytes.saturating_sub(UNCOUNTED_BYTES_MAX);
        self.account.recount(std::mem::replace(&mut self.bytes, now), now);
    }

    /// Tells whether both bounds have room.
    pub(crate) fn has_room(&self) -> bool {
        self.account.has_room()
    }

    /// Tells whether the connection may keep `bytes` bytes.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        bytes <= UNCOUNTED_BYTES_MAX || self.has_room()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let Some(source) = self.source else { return };
        let mut ledger = self.all.lock();
        if let Some(share) = ledger.shares.get_mut(&source) {
            share.accounts -= 1;
        }
        ledger.forget(source);
    }
}

impl Ledger {
    /// Puts a waiter into the queue of its address. It goes to the queue for all once its address
    /// has room for it.
    fn queue_up(&mut self, waiter: Waiter, max: usize) {
        let share = waiter.source.and_then(|source| self.shares.get_mut(&source));
        let Some(share) = share else { return self.queue.waiting.push_back(waiter) };
        share.queue.waiting.push_back(waiter);
        self.queue.waiting.extend(share.serve(max));
        self.has_eased |= share.update(max);
    }

    /// Takes clients whose turn has come out of the line of all connections.
    fn serve(&mut self, max: usize) -> Vec<Waiter> {
        let mut given = Vec::new();
        while let Some(first) = self.queue.waiting.front() {
            let is_gone = first.tell.is_closed();
            if !is_gone && self.bytes > 0 && self.bytes.saturating_add(first.bytes) > max {
                break;
            }
            let Some(first) = self.queue.waiting.pop_front() else { break };
            if is_gone {
                self.recount_share(first.source, first.bytes, 0, max);
                continue;
            }
            self.queue.served += 1;
            self.bytes += first.bytes;
            self.peak = self.peak.max(self.bytes);
            given.push(first);
        }
        given
    }

    fn recount_share(&mut self, source: Option<IpAddr>, before: usize, now: usize, max: usize) {
        let Some(source) = source else { return };
        let Some(share) = self.shares.get_mut(&source) else { return };
        share.bytes = share.bytes.saturating_sub(before).saturating_add(now);
        self.queue.waiting.extend(share.serve(max));
        self.has_eased |= share.update(max);
        self.forget(source);
    }

    /// Removes the share of an address that has neither accounts, bytes nor waiters.
    fn forget(&mut self, source: IpAddr) {
        let is_over = |share: &AddressShare| share.accounts == 0 && share.bytes == 0 && share.queue.waiting.is_empty();
        if self.shares.get(&source).is_some_and(is_over) {
            self.shares.remove(&source);
        }
    }

    /// Removes waiters of an address that have given up.
    fn forget_gone(&mut self, source: Option<IpAddr>, max: usize) {
        let mut bytes = 0;
        self.queue.waiting.retain(|waiter| {
            let is_gone = waiter.source == source && waiter.tell.is_closed();
            bytes += if is_gone { waiter.bytes } else { 0 };
            !is_gone
        });
        if let Some(share) = source.and_then(|source| self.shares.get_mut(&source)) {
            share.queue.waiting.retain(|waiter| !waiter.tell.is_closed());
            self.recount_share(source, bytes, 0, max);
        }
    }
}

impl WaitQueue {
    fn is_empty(&self) -> bool {
        self.waiting.iter().all(|waiter| waiter.tell.is_closed())
    }
}

impl AddressShare {
    /// Counts those for whom the address has room; they go on to the queue for all.
    fn serve(&mut self, max: usize) -> Vec<Waiter> {
        let mut ready = Vec::new();
        while let Some(first) = self.queue.waiting.front() {
            let is_gone = first.tell.is_closed();
            if !is_gone && self.bytes > 0 && self.bytes.saturating_add(first.bytes) > max / ADDRESS_PART {
                break;
            }
            let Some(first) = self.queue.waiting.pop_front() else { break };
            if !is_gone {
                self.queue.served += 1;
                self.bytes += first.bytes;
                ready.push(first);
            }
        }
        ready
    }

    /// Updates whether the share is full. True if it was full, and has room now.
    fn update(&self, max: usize) -> bool {
        let is_full = !self.queue.waiting.is_empty() || self.bytes >= (max / ADDRESS_PART).max(1);
        self.is_full.swap(is_full, Ordering::Relaxed) && !is_full
    }
}

impl AnswerPlace {
    /// Returns the number of bytes, which the caller counts from now on.
    pub(crate) fn keep(mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }

    /// The number of bytes that are reserved.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for AnswerPlace {
    fn drop(&mut self) {
        self.all.recount(self.source, self.bytes, 0);
    }
}

impl PlaceWait {
    /// Waits until the place is given. A call that was dropped loses nothing: the next one goes on
    /// waiting.
    pub(crate) async fn place(&mut self) -> AnswerPlace {
        let place = (&mut self.place).await.expect("those who wait are told for as long as there is this");
        self.is_over = true;
        place
    }

    /// The place, if it has been given already.
    pub(crate) fn place_now(&mut self) -> Option<AnswerPlace> {
        let place = self.place.try_recv().ok()?;
        self.is_over = true;
        Some(place)
    }
}

impl Drop for PlaceWait {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.place.close();
        // The place may have been given meanwhile; then dropping the channel gives it back.
        if self.place.try_recv().is_err() {
            let mut ledger = self.all.lock();
            ledger.forget_gone(self.source, self.all.bytes_max);
            self.all.go_on(ledger);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn now(waiting: &mut PlaceWait) -> Option<AnswerPlace> {
        waiting.place().now_or_never()
    }

    #[test]
    fn places_are_given_in_order_and_never_beyond_the_bound() {
        let all = Arc::new(SharedBytes::new(100));
        let account = all.account(None);
        let first = account.place(90).now_or_never().unwrap();
        let (mut long, mut short) = (account.queue_up(60), account.queue_up(5));
        assert!(now(&mut long).is_none() && !account.has_room());
        // It would fit, but the long one came first and must not wait for ever.
        assert!(now(&mut short).is_none());
        drop(first);
        let (long, short) = (now(&mut long).unwrap(), now(&mut short).unwrap());
        assert_eq!(all.look(), (65, 90));
        let mut given_up = account.queue_up(50);
        assert!(now(&mut given_up).is_none());
        drop(given_up);
        assert!(account.has_room(), "no client waits any more");
        drop((long, short));
        assert_eq!((all.look().0, account.has_room()), (0, true));
    }

    #[test]
    fn one_that_is_longer_than_the_bound_is_alone() {
        let all = Arc::new(SharedBytes::new(100));
        let account = all.account(None);
        let first = account.place(1).now_or_never().unwrap();
        let mut long = account.queue_up(1_000);
        assert!(now(&mut long).is_none());
        drop(first);
        assert_eq!(now(&mut long).unwrap().keep(), 1_000);
        assert_eq!(all.look().0, 1_000);
        account.recount(1_000, 0);
        assert!(account.has_room());
    }

    #[test]
    fn one_address_has_a_part_of_the_bound_and_those_who_wait_for_it_let_others_pass() {
        let all = Arc::new(SharedBytes::new(100));
        let (greedy, second) = (all.account(Some([192, 0, 2, 1].into())), all.account(Some([192, 0, 2, 1].into())));
        let other = all.account(Some([192, 0, 2, 2].into()));
        let long = greedy.place(40).now_or_never().unwrap();
        let (mut waiting, mut behind) = (second.queue_up(20), greedy.queue_up(1));
        assert!(now(&mut waiting).is_none() && now(&mut behind).is_none(), "an address has a quarter, or one answer");
        assert!(!greedy.has_room() && !second.has_room() && other.has_room());
        assert_eq!(all.queues().into_keys().collect::<Vec<_>>(), [greedy.source()]);
        let others = other.place(25).now_or_never().unwrap();
        drop(long);
        assert_eq!((now(&mut waiting).unwrap().keep(), now(&mut behind).unwrap().keep()), (20, 1));
        assert!(all.queues().is_empty() && greedy.has_room() && !other.has_room());
        second.recount(20, 80);
        assert!(greedy.overflows() && !other.overflows(), "81 of 100 are events that one address does not take");
        second.recount(81, 0);
        drop((others, greedy, second, other));
        assert_eq!((all.look().0, all.lock().shares.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_bound_that_is_not_reached_any_more_is_told() {
        let all = Arc::new(SharedBytes::new(100));
        let source = Some([192, 0, 2, 1].into());
        for (account, bytes) in [(all.account(None), 100), (all.account(source), 25)] {
            let place = account.place(bytes).await;
            assert!(!account.has_room());
            let mut eased = std::pin::pin!(account.eased());
            assert!(eased.as_mut().now_or_never().is_none());
            drop(place);
            assert!(eased.now_or_never().is_some() && account.has_room());
        }
    }
}
