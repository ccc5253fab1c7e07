//! Bounds on the bytes that connections keep: one bound for all connections together, and one for
//! each address.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use accept::Mutex;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};

/// Number of bytes of each connection that do not count against the bounds of [`SharedBytes`]. They
/// suffice for requests with short answers, which therefore go on when a bound is reached.
pub(crate) const UNCOUNTED_BYTES_MAX: usize = 16 << 10;
/// Divisor that gives the size of the longest answer from the bound on the bytes of all
/// connections.
const ANSWER_PART: usize = 2;
/// Divisor that gives the bound of one address from the bound on the bytes of all connections. A
/// single answer may exceed the bound of its address.
const ADDRESS_PART: usize = 4;
/// Divisor that gives the reservation for an answer of unknown length from the bound on the bytes
/// of all connections. With the default settings, the reservation has the size of one packet.
const TURN_PART: usize = 64;

/// Numbers of bytes that connections keep, for all connections together and for each address. One
/// instance counts answers and events that clients have not read, another instance counts
/// unanswered requests.
///
/// At a bound, reads wait for memory in the order in which they came; pings, writes and other
/// requests with short answers go on. Clients that wait at the bound of their address do not delay
/// other addresses. Events cannot wait. At twice the bound on all connections, or three quarters of
/// that bound for one address, a client with unread bytes is closed when it gets an event.
pub(crate) struct SharedBytes {
    bytes_max: usize,
    /// True if the bound on all connections is reached, or clients wait for room under it. The flag
    /// can be read without locking `ledger`.
    is_full: AtomicBool,
    ledger: Mutex<Ledger>,
    pressed: Notify,
    eased: Notify,
}

/// Counted bytes and waiting clients, of all connections and of each address.
#[derive(Default)]
struct Ledger {
    bytes: usize,
    peak: usize,
    /// Queue of clients that wait for room under the bound on all connections. Their bytes already
    /// count in the share of their address.
    queue: WaitQueue,
    shares: HashMap<IpAddr, AddressShare>,
    /// True if a full share of an address has room again, and the waiting clients have not been
    /// woken yet.
    has_eased: bool,
}

/// Queue of clients that wait for room under one bound.
#[derive(Default)]
struct WaitQueue {
    waiting: VecDeque<Waiter>,
    /// Number of clients that have left the queue because there was room for their answers.
    served: u64,
}

struct Waiter {
    source: Option<IpAddr>,
    bytes: usize,
    tell: oneshot::Sender<AnswerPlace>,
}

/// Counted bytes, number of connections, and queue of one address.
#[derive(Default)]
struct AddressShare {
    bytes: usize,
    accounts: usize,
    is_full: Arc<AtomicBool>,
    queue: WaitQueue,
}

/// One connection's access to [`SharedBytes`].
pub(crate) struct Account {
    all: Arc<SharedBytes>,
    /// The client's address; `None` for an exempt address, which has no bound of its own.
    source: Option<IpAddr>,
    is_full: Arc<AtomicBool>,
}

/// Bytes of one connection, which count against the bounds until this is dropped.
pub(crate) struct Charge {
    account: Account,
    bytes: usize,
}

/// Memory reserved for an answer that is being made. Dropping it frees the memory.
pub(crate) struct AnswerPlace {
    all: Arc<SharedBytes>,
    source: Option<IpAddr>,
    bytes: usize,
}

/// Position of a client in a queue for an [`AnswerPlace`]. Dropping it gives the position up.
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

    /// Returns the size in bytes of the longest allowed answer.
    pub(crate) fn answer_bytes_max(&self) -> usize {
        self.bytes_max / ANSWER_PART
    }

    /// Returns the number of bytes that are counted at present, and the highest number since the
    /// last [`SharedBytes::reset_peak`].
    pub(crate) fn look(&self) -> (usize, usize) {
        let ledger = self.ledger.lock();
        (ledger.bytes, ledger.peak)
    }

    /// Sets the recorded highest number of bytes to the present number.
    pub(crate) fn reset_peak(&self) {
        let mut ledger = self.ledger.lock();
        ledger.peak = ledger.bytes;
    }

    /// Makes an [`Account`] (access to these bytes) for a connection from `source`; `None` for an
    /// address without its own bound.
    pub(crate) fn account(self: &Arc<SharedBytes>, source: Option<IpAddr>) -> Account {
        let is_full = source.map_or_else(Arc::default, |source| {
            let mut ledger = self.ledger.lock();
            let share = ledger.shares.entry(source).or_default();
            share.accounts += 1;
            Arc::clone(&share.is_full)
        });
        Account { all: Arc::clone(self), source, is_full }
    }

    /// Resolves when a bound that was reached has room again. Only changes after this call count.
    pub(crate) fn eased(&self) -> Notified<'_> {
        self.eased.notified()
    }

    /// Resolves when a client joins a queue because a bound is reached; at once if that happened
    /// since the last call.
    pub(crate) async fn pressed(&self) {
        self.pressed.notified().await;
    }

    /// Returns the number of clients served so far in each queue in which clients wait. The key is
    /// the queue's address; `None` stands for the queue of the bound on all connections.
    pub(crate) fn queues(&self) -> HashMap<Option<IpAddr>, u64> {
        let ledger = self.ledger.lock();
        let shares = ledger.shares.iter().map(|(source, share)| (Some(*source), &share.queue));
        let queues = std::iter::once((None, &ledger.queue)).chain(shares);
        queues.filter(|(_, queue)| !queue.is_empty()).map(|(source, queue)| (source, queue.served)).collect()
    }

    fn recount(self: &Arc<SharedBytes>, source: Option<IpAddr>, before: usize, now: usize) {
        if before != now {
            let mut ledger = self.ledger.lock();
            ledger.bytes = ledger.bytes.saturating_sub(before).saturating_add(now);
            ledger.peak = ledger.peak.max(ledger.bytes);
            ledger.recount_share(source, before, now, self.bytes_max);
            self.go_on(ledger);
        }
    }

    /// Reserves memory for the clients at the front of the queue, as far as there is room. Unlocks
    /// the ledger, and then tells these clients.
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
            // If the client has given up its wait, dropping the reservation frees the memory.
            let _ = tell.send(AnswerPlace { all: Arc::clone(self), source, bytes });
        }
    }
}

impl Account {
    /// Returns the client's address, against whose bound the bytes count; `None` for an exempt
    /// address.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Tells whether the bound on all connections and the bound of this address have room, and no
    /// client waits for either.
    pub(crate) fn has_room(&self) -> bool {
        !self.all.is_full.load(Ordering::Relaxed) && !self.is_full.load(Ordering::Relaxed)
    }

    /// Makes a counter for bytes of this connection.
    pub(crate) fn charge(self) -> Charge {
        Charge { account: self, bytes: 0 }
    }

    /// Tells whether more than twice the bound on all connections is counted, or more than three
    /// quarters of that bound for this address.
    pub(crate) fn overflows(&self) -> bool {
        if self.has_room() {
            return false;
        }
        let (ledger, max) = (self.all.ledger.lock(), self.all.bytes_max);
        let share = self.source.and_then(|source| ledger.shares.get(&source));
        ledger.bytes > max.saturating_mul(2) || share.is_some_and(|share| share.bytes > max - max / ADDRESS_PART)
    }

    /// Counts `now` bytes for the connection instead of `before`.
    pub(crate) fn recount(&self, before: usize, now: usize) {
        self.all.recount(self.source, before, now);
    }

    /// Waits in the queue until `bytes` bytes are reserved. A reservation that exceeds a bound is
    /// made when nothing else counts against this bound.
    pub(crate) async fn place(&self, bytes: usize) -> AnswerPlace {
        self.queue_up(bytes).place().await
    }

    /// Joins the queue for the number of bytes that is reserved for an answer of unknown length.
    pub(crate) fn turn(&self) -> PlaceWait {
        self.queue_up(self.all.bytes_max / TURN_PART)
    }

    /// Joins the queue for a reservation of `bytes` bytes.
    pub(crate) fn queue_up(&self, bytes: usize) -> PlaceWait {
        let (tell, place) = oneshot::channel();
        let mut ledger = self.all.ledger.lock();
        ledger.queue_up(Waiter { source: self.source, bytes, tell }, self.all.bytes_max);
        self.all.go_on(ledger);
        if !self.has_room() {
            self.all.pressed.notify_one();
        }
        PlaceWait { all: Arc::clone(&self.all), source: self.source, place, is_over: false }
    }

    /// Resolves when a bound that was reached has room again, as [`SharedBytes::eased`] does.
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

    /// Tells whether the bound on all connections and the bound of this address have room.
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
        let mut ledger = self.all.ledger.lock();
        if let Some(share) = ledger.shares.get_mut(&source) {
            share.accounts -= 1;
        }
        ledger.forget(source);
    }
}

impl Ledger {
    /// Puts a waiting client into the queue of its address. When the address has room, the client
    /// moves on to the queue for the bound on all connections.
    fn queue_up(&mut self, waiter: Waiter, max: usize) {
        let share = waiter.source.and_then(|source| self.shares.get_mut(&source));
        let Some(share) = share else { return self.queue.waiting.push_back(waiter) };
        share.queue.waiting.push_back(waiter);
        self.queue.waiting.extend(share.serve(max));
        self.has_eased |= share.update(max);
    }

    /// Removes clients from the front of the queue for the bound on all connections while there is
    /// room for them, and counts their bytes. Returns these clients.
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

    /// Removes the share of an address that has no connections, bytes and waiters.
    fn forget(&mut self, source: IpAddr) {
        let is_over = |share: &AddressShare| share.accounts == 0 && share.bytes == 0 && share.queue.waiting.is_empty();
        if self.shares.get(&source).is_some_and(is_over) {
            self.shares.remove(&source);
        }
    }

    /// Removes the clients of an address that have given their positions up, and stops counting
    /// their bytes.
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
    /// Removes clients from the front of the address's queue while the address has room for them,
    /// and counts their bytes for the address. The caller puts them into the queue for the bound on
    /// all connections.
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

    /// Updates the flag `is_full`. True if the address's share was full before and has room now.
    fn update(&self, max: usize) -> bool {
        let is_full = !self.queue.waiting.is_empty() || self.bytes >= (max / ADDRESS_PART).max(1);
        self.is_full.swap(is_full, Ordering::Relaxed) && !is_full
    }
}

impl AnswerPlace {
    /// Returns the number of reserved bytes, which the caller must count from now on.
    pub(crate) fn keep(mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }

    /// Returns the number of reserved bytes.
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
    /// Waits until the memory is reserved. If a call is dropped, the next call keeps the position
    /// in the queue.
    pub(crate) async fn place(&mut self) -> AnswerPlace {
        let place = (&mut self.place).await.expect("those who wait are told for as long as there is this");
        self.is_over = true;
        place
    }

    /// Returns the reserved memory if it has been given already, else `None`.
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
        // If memory was reserved meanwhile, dropping the channel frees it.
        if self.place.try_recv().is_err() {
            let mut ledger = self.all.ledger.lock();
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
        // The short one would fit, but it came later, and the long one must not wait forever.
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
        assert_eq!((all.look().0, all.ledger.lock().shares.len()), (0, 0));
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
