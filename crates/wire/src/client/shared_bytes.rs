//! A bound on the bytes that connections keep: of all together, and of each address.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};

/// Bytes that each connection may keep without being counted. Requests with short answers need no
/// more, and go on at the bound.
pub(crate) const UNCOUNTED_BYTES_MAX: usize = 16 << 10;
/// The longest answer is this part of the bound ...
const ANSWER_PART: usize = 2;
/// ... and what one address may have is this part, or one answer that is longer.
const ADDRESS_PART: usize = 4;
/// A place for the answer of a short read is this part: a packet, with the defaults.
const TURN_PART: usize = 64;

/// Bytes that the connections of a door keep, in all and for each address. There is one of answers
/// and events that clients have not taken yet, and one of requests that are not answered yet.
///
/// At either bound, reads wait for a place in the order in which they came; pings, writes and
/// whatever else has a short answer go on. Those who wait for their own address let others pass.
/// Events cannot wait: where they have filled twice the bound, or an address three quarters of it,
/// a client that has something to read is closed with the next of them.
pub(crate) struct SharedBytes {
    bytes_max: usize,
    /// A copy for those who ask, which spares them the guard.
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
    /// The share of an address was full and is not any more.
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

/// Bytes, accounts and waiters of one address.
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
    /// The address; `None` for one that stands for many clients.
    source: Option<IpAddr>,
    is_full: Arc<AtomicBool>,
}

/// Bytes of one connection that count until this is dropped.
pub(crate) struct Charge {
    account: Account,
    bytes: usize,
}

/// A place for an answer that is being made.
pub(crate) struct AnswerPlace {
    all: Arc<SharedBytes>,
    source: Option<IpAddr>,
    bytes: usize,
}

/// A client's wait for a place, which is lost when this is dropped.
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

    /// The longest answer that there can be a place for.
    pub(crate) fn answer_bytes_max(&self) -> usize {
        self.bytes_max / ANSWER_PART
    }

    /// Bytes that are kept now, and the most that were.
    pub(crate) fn look(&self) -> (usize, usize) {
        let ledger = self.lock();
        (ledger.bytes, ledger.peak)
    }

    /// Forgets the most that there was.
    pub(crate) fn reset_peak(&self) {
        let mut ledger = self.lock();
        ledger.peak = ledger.bytes;
    }

    /// The account of a connection from `source`; `None` stands for an address without a bound of
    /// its own.
    pub(crate) fn account(self: &Arc<SharedBytes>, source: Option<IpAddr>) -> Account {
        let is_full = source.map_or_else(Arc::default, |source| {
            let mut ledger = self.lock();
            let share = ledger.shares.entry(source).or_default();
            share.accounts += 1;
            Arc::clone(&share.is_full)
        });
        Account { all: Arc::clone(self), source, is_full }
    }

    /// Resolves when a bound that was reached is not any more, from this call on.
    pub(crate) fn eased(&self) -> Notified<'_> {
        self.eased.notified()
    }

    /// Resolves when a client has begun to wait since the last call.
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

    /// Gives places to those whose turn has come, and lets go of the guard.
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
            // One that is not wanted any more is given back at once.
            let _ = tell.send(AnswerPlace { all: Arc::clone(self), source, bytes });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nothing panics under this guard")
    }
}

impl Account {
    /// The address whose share this counts in.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Tells whether another answer may be made, and none waits to be made.
    pub(crate) fn has_room(&self) -> bool {
        !self.all.is_full.load(Ordering::Relaxed) && !self.is_full.load(Ordering::Relaxed)
    }

    /// Counts bytes of the connection here.
    pub(crate) fn charge(self) -> Charge {
        Charge { account: self, bytes: 0 }
    }

    /// Tells whether events have filled twice the bound, or the address three quarters of it.
    pub(crate) fn overflows(&self) -> bool {
        if self.has_room() {
            return false;
        }
        let (ledger, max) = (self.all.lock(), self.all.bytes_max);
        let share = self.source.and_then(|source| ledger.shares.get(&source));
        ledger.bytes > max.saturating_mul(2) || share.is_some_and(|share| share.bytes > max - max / ADDRESS_PART)
    }

    /// The connection keeps that many bytes now, which were counted as `before`.
    pub(crate) fn recount(&self, before: usize, now: usize) {
        self.all.recount(self.source, before, now);
    }

    /// Waits for a place, behind those who came before. The first of all, or of its address, gets
    /// one of any size.
    pub(crate) async fn place(&self, bytes: usize) -> AnswerPlace {
        self.queue_up(bytes).place().await
    }

    /// Queues up for the answer of a short read.
    pub(crate) fn turn(&self) -> PlaceWait {
        self.queue_up(self.all.bytes_max / TURN_PART)
    }

    /// Queues up for a place.
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

    /// Does the same as [`SharedBytes::eased`].
    pub(crate) fn eased(&self) -> Notified<'_> {
        self.all.eased()
    }
}

impl Charge {
    /// The connection keeps so many bytes now.
    pub(crate) fn set(&mut self, bytes: usize) {
        let now = bytes.saturating_sub(UNCOUNTED_BYTES_MAX);
        self.account.recount(std::mem::replace(&mut self.bytes, now), now);
    }

    /// Tells whether there is room below both bounds.
    pub(crate) fn has_room(&self) -> bool {
        self.account.has_room()
    }

    /// Tells whether the connection may keep so many bytes.
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

    /// Takes out those whose turn has come.
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

    /// Takes out the share of an address that has nothing.
    fn forget(&mut self, source: IpAddr) {
        let is_over = |share: &AddressShare| share.accounts == 0 && share.bytes == 0 && share.queue.waiting.is_empty();
        if self.shares.get(&source).is_some_and(is_over) {
            self.shares.remove(&source);
        }
    }

    /// Takes out those of an address that do not wait any more.
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

    /// Says whether it is full; true when it was and is not any more.
    fn update(&self, max: usize) -> bool {
        let is_full = !self.queue.waiting.is_empty() || self.bytes >= (max / ADDRESS_PART).max(1);
        self.is_full.swap(is_full, Ordering::Relaxed) && !is_full
    }
}

impl AnswerPlace {
    /// The bytes, which the caller counts as its own from here on.
    pub(crate) fn keep(mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }

    /// The length of the answer that it is for.
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
    /// The place, when its turn has come. The wait goes on where it was when this is called again.
    pub(crate) async fn place(&mut self) -> AnswerPlace {
        let place = (&mut self.place).await.expect("those who wait are told for as long as there is this");
        self.is_over = true;
        place
    }

    /// The place, if its turn has come already.
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
        // It may have been given meanwhile, and is given back by this.
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
