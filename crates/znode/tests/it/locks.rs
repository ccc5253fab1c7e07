//! What a lock guarantees to clients that arrive, wait, give up, fail and release at random; and
//! the cost of its operations.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use rustix::time::{ClockId, clock_gettime};
use znode::lock::{self, LockStatus};
use znode::{
    Acquire, Attempt, Credential, Error, Limits, LockMode, LockSettings, LogPosition, Op, Reply, Request, RequestKey,
    SessionId, State, Term, Txn, ZPath, Zxid,
};

/// A state, with the clock of its clients and the counter of their idempotency keys.
struct World {
    state: State,
    time_ms: u64,
    keys: u128,
}

impl World {
    fn new() -> World {
        World { state: State::new(Limits { lock_delay_max_ms: 2000, ..Limits::default() }), time_ms: 0, keys: 0 }
    }

    fn apply(&mut self, session: Option<SessionId>, op: Op) -> Result<Reply, znode::Refusal> {
        let mut request = Request::new(op);
        request.credential = session.map(|session| Credential { session, secret_hash: [0; 16] });
        if matches!(request.op, Op::Acquire(_)) {
            self.keys += 1;
            (request.key, request.attempt) = (Some(RequestKey(self.keys.to_be_bytes())), Attempt(1));
        }
        let at = LogPosition { term: Term(1), zxid: Zxid(self.state.last_zxid().0 + 1) };
        self.state.apply(at, Txn { proven: false, time_ms: self.time_ms, request }).reply
    }

    fn open(&mut self) -> SessionId {
        let open = Op::OpenSession {
            secret_hash: [0; 16],
            timeout_ms: 10_000,
            label: String::new(),
            address: None,
            client: znode::ClientInfo::default(),
        };
        match self.apply(None, open) {
            Ok(Reply::SessionOpened { session, .. }) => session,
            other => panic!("no session: {other:?}"),
        }
    }

    fn acquire(&mut self, session: SessionId, mode: LockMode, lock_delay_ms: u32) -> ZPath {
        let acquire = Acquire { lock_delay_ms, ..Acquire::new(lock_path(), mode) };
        match self.apply(Some(session), Op::Acquire(acquire)) {
            Ok(Reply::Acquired { ticket, .. }) => ticket,
            other => panic!("no ticket: {other:?}"),
        }
    }

    fn acquire_with(&mut self, session: SessionId, priority: u32) {
        let acquire = Acquire { priority, ..Acquire::new(lock_path(), LockMode::Exclusive) };
        self.apply(Some(session), Op::Acquire(acquire)).unwrap();
    }

    fn release(&mut self, session: SessionId, ticket: &ZPath) {
        let released = self.apply(Some(session), Op::Release { ticket: ticket.clone().into() });
        assert_eq!(released, Ok(Reply::Released { holds: 0 }));
    }

    fn expire(&mut self, session: SessionId) {
        let expired = self.apply(None, Op::ExpireSessions { sessions: vec![session], term: Term(1) });
        assert_eq!(expired, Ok(Reply::Removed { count: 1 }));
    }

    fn reap(&mut self) {
        let candidates = self.state.reap_candidates(self.time_ms, 10);
        self.apply(None, Op::Reap { candidates }).unwrap();
    }

    /// Tokens of the holders, by ticket.
    fn holders(&self, tickets: &BTreeMap<ZPath, SessionId>) -> BTreeMap<ZPath, u64> {
        let token = |ticket: &ZPath| match lock::status(&self.state, ticket) {
            Ok(LockStatus::Held { token, .. }) => Some((ticket.clone(), token.0)),
            _ => None,
        };
        tickets.keys().filter_map(token).collect()
    }
}

fn lock_path() -> ZPath {
    ZPath::parse("/locks/l").unwrap()
}

fn a_ticket(rng: &mut Rng, tickets: &BTreeMap<ZPath, SessionId>) -> Option<(ZPath, SessionId)> {
    let index = rng.usize(..tickets.len().max(1));
    tickets.iter().nth(index).map(|(ticket, session)| (ticket.clone(), *session))
}

#[test]
fn every_waiter_gets_the_lock_once_and_alone() {
    for seed in 0..300 {
        let (mut rng, mut world) = (Rng::with_seed(seed), World::new());
        let mut sessions: Vec<SessionId> = (0..4).map(|_| world.open()).collect();
        let mut tickets = BTreeMap::new();
        let (mut granted, mut last) = (BTreeSet::new(), 0);
        // The last steps only release holders, until the queue is empty.
        for step in 0.. {
            world.time_ms += rng.u64(0..500);
            let draining = step > 80;
            if draining && tickets.is_empty() && lock::queue(&world.state, &lock_path(), 0, 1).unwrap().contenders == 0
            {
                break;
            }
            assert!(step < 1000, "seed {seed}: a ticket stays in the queue");
            match rng.u8(..10) {
                0..4 if !draining => {
                    let session = sessions[rng.usize(..sessions.len())];
                    let delay_ms = if rng.bool() { 0 } else { 1000 };
                    tickets.insert(world.acquire(session, LockMode::Exclusive, delay_ms), session);
                }
                0..7 => {
                    if let Some((ticket, session)) = a_ticket(&mut rng, &tickets) {
                        world.release(session, &ticket);
                        tickets.remove(&ticket);
                    }
                }
                7 if !draining => {
                    let dead = sessions.swap_remove(rng.usize(..sessions.len()));
                    world.expire(dead);
                    tickets.retain(|_, session| *session != dead);
                    sessions.push(world.open());
                }
                _ => world.reap(),
            }
            let holders = world.holders(&tickets);
            assert!(holders.len() <= 1, "seed {seed} step {step}: {holders:?} hold together");
            for (ticket, token) in holders {
                if granted.insert(ticket.clone()) {
                    assert!(token > last, "seed {seed} step {step}: token {token} of {ticket} after {last}");
                    last = token;
                }
                assert_eq!(token, last, "seed {seed} step {step}: {ticket} holds again");
            }
            world.state.check_invariants().unwrap();
        }
    }
}

#[test]
fn a_ticket_holds_whenever_one_waits() {
    for seed in 0..200 {
        let (mut rng, mut world) = (Rng::with_seed(seed), World::new());
        let sessions: Vec<SessionId> = (0..4).map(|_| world.open()).collect();
        let mut tickets = BTreeMap::new();
        for step in 0..80 {
            if rng.u8(..5) < 3 {
                let session = sessions[rng.usize(..sessions.len())];
                let mode = [LockMode::Exclusive, LockMode::Read, LockMode::Write][rng.usize(..3)];
                tickets.insert(world.acquire(session, mode, 0), session);
            } else if let Some((ticket, session)) = a_ticket(&mut rng, &tickets) {
                world.release(session, &ticket);
                tickets.remove(&ticket);
            }
            let holders = world.holders(&tickets);
            assert_eq!(
                holders.is_empty(),
                tickets.is_empty(),
                "seed {seed} step {step}: nobody holds, {tickets:?} wait"
            );
            let writer = holders.keys().any(|ticket| !ticket.name().contains("__rlock__"));
            assert!(!writer || holders.len() == 1, "seed {seed} step {step}: {holders:?} hold beside a writer");
        }
    }
}

#[test]
fn a_release_wakes_one_waiter() {
    let mut world = World::new();
    let session = world.open();
    let mut tickets: Vec<ZPath> = (0..1000).map(|_| world.acquire(session, LockMode::Exclusive, 0)).collect();
    let first = tickets.remove(0);
    let waits_for = |state: &State, ticket: &ZPath| match lock::status(state, ticket) {
        Ok(LockStatus::Waiting { predecessor }) => Some(predecessor),
        _ => None,
    };
    let before = world.state.clone();
    let woken = tickets.iter().filter(|ticket| waits_for(&before, ticket).as_ref() == Some(&first)).count();
    world.release(session, &first);
    let changed = tickets.iter().filter(|ticket| waits_for(&before, ticket) != waits_for(&world.state, ticket)).count();
    assert_eq!((woken, changed), (1, 1));
}

/// Lowest cost of `tries` runs of `work`, in nanoseconds of this thread's processor time, so that
/// other load on the machine has little effect.
fn cost(tries: usize, mut work: impl FnMut()) -> u128 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        u128::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u128::try_from(time.tv_nsec).unwrap()
    };
    let one = |work: &mut dyn FnMut()| {
        let start = now();
        work();
        (now() - start).max(1)
    };
    (0..tries).map(|_| one(&mut work)).min().unwrap()
}

/// Checks that with `times` as many waiters the cost grows by a factor below `times / 2`, and below
/// 10. Some growth is allowed, because a larger tree is deeper, and less of it is in the cache.
#[track_caller]
fn check_growth(what: &str, times: u128, (small, large): (u128, u128)) {
    let most = small * (times / 2).min(10);
    assert!(large < most, "{what}: {small} ns with 1,000 waiters, {large} ns with {times} times as many");
}

#[test]
fn a_revocation_asks_at_most_a_thousand_holders() {
    let mut world = World::new();
    let session = world.open();
    let ask = || Op::Revoke { path: lock_path(), deadline_ms: None };
    for _ in 0..1_000 {
        world.acquire(session, LockMode::Read, 0);
    }
    let Ok(Reply::Revoking { tickets }) = world.apply(None, ask()) else { panic!("all may be asked") };
    assert_eq!(tickets.len(), 1_000);
    world.acquire(session, LockMode::Read, 0);
    assert_eq!(world.apply(None, ask()), Err(znode::Refusal::at(Error::TooManyHolders, &lock_path())));
}

#[test]
fn a_queue_of_100_000_costs_little_more_than_one_of_1_000() {
    let measure = |waiters: usize| {
        let mut world = World::new();
        let sessions: Vec<SessionId> = (0..=waiters / 5000).map(|_| world.open()).collect();
        let take = |world: &mut World, index: usize| {
            let session = sessions[index % sessions.len()];
            (session, world.acquire(session, LockMode::Exclusive, 0))
        };
        let mut tickets: std::collections::VecDeque<_> = (0..waiters).map(|index| take(&mut world, index)).collect();
        let cycle = cost(40, || {
            // A new ticket enters, the holder releases, and a waiter in the middle gives up.
            tickets.push_back(take(&mut world, tickets.len()));
            let (session, holder) = tickets.pop_front().unwrap();
            world.release(session, &holder);
            let (session, waiter) = tickets.remove(tickets.len() / 2).unwrap();
            world.release(session, &waiter);
            tickets.push_back(take(&mut world, tickets.len()));
        });
        let state = world.state.clone();
        let looks = cost(40, || {
            for (_, ticket) in tickets.iter().step_by(waiters / 20) {
                lock::status(&state, ticket).unwrap();
                let token = znode::FencingToken(state.node(ticket).unwrap().stat().czxid.0);
                lock::is_held_with(&state, &lock_path(), token);
            }
            // Positions are asked for most by a ticket that has just entered, and by the next one
            // to be granted the lock.
            for (_, ticket) in [tickets.back(), tickets.get(1)].into_iter().flatten() {
                lock::position(&state, ticket).unwrap();
            }
            lock::queue(&state, &lock_path(), 0, 20).unwrap();
            lock::list(&state, &ZPath::root(), None, 20).unwrap();
        });
        (cycle, looks)
    };
    let small = measure(1_000);
    // Tenfold comes before hundredfold, so that code that walks the whole queue fails before it
    // takes too long.
    for times in [10, 100] {
        let large = measure(1_000 * times);
        check_growth("enqueue and release", times as u128, (small.0, large.0));
        check_growth("status, token, position, queue and list", times as u128, (small.1, large.1));
    }
}

/// A request may name a lock with a path of some MiB. Every replica pays the cost of such an entry,
/// and pays it again at each start.
#[test]
fn a_lock_that_is_too_deep_is_refused_before_its_way_is_walked() {
    let measure = |depth: usize| {
        let mut world = World::new();
        let session = world.open();
        let lock = ZPath::parse(&"/a".repeat(depth)).unwrap();
        let acquire = Op::Acquire(Acquire::new(lock.clone(), LockMode::Exclusive));
        let set = Op::SetLock { lock, settings: LockSettings { managed: true, ..LockSettings::default() } };
        cost(3, || {
            for op in [&acquire, &set] {
                let refused = world.apply(Some(session), op.clone()).unwrap_err();
                assert_eq!(refused.error, Error::PathTooLong);
            }
        })
    };
    let (small, large) = (measure(600), measure(6_000));
    assert!(large < 20 * small, "{small} ns for 600 names, {large} ns for 6,000");
}

#[test]
fn a_dying_session_costs_as_much_for_each_lock_however_many_it_holds() {
    let measure = |locks: u32| {
        let mut world = World::new();
        let session = world.open();
        for index in 0..locks {
            let lock = ZPath::parse(&format!("/locks/{index}x")).unwrap();
            let acquire = Acquire { lock_delay_ms: 1000, ..Acquire::new(lock, LockMode::Exclusive) };
            world.apply(Some(session), Op::Acquire(acquire)).unwrap();
        }
        let before = world.state.clone();
        let tries = if locks > 1000 { 3 } else { 30 };
        let all = cost(tries, || {
            world.state = before.clone();
            world.expire(session);
        });
        all / u128::from(locks)
    };
    let (small, large) = (measure(100), measure(10_000));
    assert!(large < 10 * small, "{small} ns for each of 100 locks, {large} ns for each of 10,000");
}

/// Measures `status`, which finds the predecessor (the waiter just before). The measured ticket has
/// priority 0 and waits in a managed lock behind many tickets with priority 1.
#[test]
fn where_an_ordinary_waiter_stands_costs_little_more_behind_many_urgent_ones() {
    let measure = |urgent: usize| {
        let mut world = World::new();
        let sessions: Vec<SessionId> = (0..=urgent / 5000).map(|_| world.open()).collect();
        let settings = LockSettings { managed: true, ..LockSettings::default() };
        world.apply(None, Op::SetLock { lock: lock_path(), settings }).unwrap();
        world.acquire(sessions[0], LockMode::Exclusive, 0);
        for index in 0..urgent {
            world.acquire_with(sessions[index % sessions.len()], 1);
        }
        let ordinary = world.acquire(sessions[0], LockMode::Exclusive, 0);
        let state = world.state.clone();
        cost(40, || {
            lock::status(&state, &ordinary).unwrap();
        })
    };
    let small = measure(1_000);
    check_growth("status behind urgent waiters", 30, (small, measure(30_000)));
}

/// Plain creates make many readers with the sequence number of the holder's write ticket. Such a
/// reader is granted the lock at once, as a downgrade, only if it belongs to the holder's session.
#[test]
fn readers_by_hand_under_a_holders_number_cost_little() {
    let measure = |readers: usize| {
        let mut world = World::new();
        let session = world.open();
        let settings = LockSettings { waiters_max: Some(1_000_000), ..LockSettings::default() };
        world.apply(None, Op::SetLock { lock: lock_path(), settings }).unwrap();
        world.acquire(session, LockMode::Write, 0);
        for index in 0..readers {
            let name = format!("{index}-__READ__0000000000");
            let create = znode::Create::new(lock_path(), name);
            world.apply(None, Op::Znode(znode::ZnodeOp::Create(create))).unwrap();
        }
        cost(10, || {
            let ticket = world.acquire(session, LockMode::Exclusive, 0);
            world.release(session, &ticket);
        })
    };
    let small = measure(1_000);
    check_growth("a cycle beside readers by hand", 10, (small, measure(10_000)));
}

/// An owner (a user of locks within a session) that holds another lock acquires a read lock. The
/// search for a deadlock must examine the waiting tickets of multi-locks, but not all waiting
/// readers.
#[test]
fn a_search_for_a_deadlock_costs_little_more_behind_many_readers() {
    let measure = |readers: usize| {
        let mut world = World::new();
        let [holder, waiters, asker] = [(); 3].map(|()| world.open());
        world.acquire(holder, LockMode::Exclusive, 0);
        let other = ZPath::parse("/locks/other").unwrap();
        let acquire = |lock: ZPath| Op::Acquire(Acquire { owner: "o".into(), ..Acquire::new(lock, LockMode::Read) });
        let at = LogPosition { term: Term(1), zxid: Zxid(world.state.last_zxid().0 + 1) };
        let wish = znode::AcquireAll::new(vec![(lock_path(), LockMode::Read)]);
        let request = Request {
            credential: Some(Credential { session: waiters, secret_hash: [0; 16] }),
            key: Some(RequestKey([9; 16])),
            attempt: Attempt(1),
            ..Request::new(Op::AcquireAll(wish))
        };
        world.state.apply(at, Txn { proven: false, time_ms: 0, request }).reply.unwrap();
        // A session may own at most 10,000 ephemeral znodes.
        let sessions: Vec<SessionId> = (0..=readers / 9_000).map(|_| world.open()).collect();
        (0..readers).for_each(|number| drop(world.acquire(sessions[number / 9_000], LockMode::Read, 0)));
        world.apply(Some(asker), acquire(other)).unwrap();
        cost(20, || match world.apply(Some(asker), acquire(lock_path())) {
            Ok(Reply::Acquired { ticket, .. }) => drop(world.apply(Some(asker), Op::Release { ticket: ticket.into() })),
            other => panic!("no ticket: {other:?}"),
        })
    };
    // A search that walks the readers ends at its bound of steps, and takes five times as long.
    let (few, many) = (measure(10), measure(90_000));
    assert!(many < few * 3, "an acquire takes {few} ns behind 10 readers, and {many} ns behind 90,000");
}
