//! Bounds on the work of one log entry, for requests that ask for too much.

use znode::lock::{self, LockStatus};
use znode::{
    Acl, Acquire, AcquireAll, Attempt, Create, CreateMode, Credential, Error, EventKind, Limits, LockMode, LogPosition,
    Op, Refusal, Reply, Request, RequestKey, SessionId, State, StateBuilder, Term, Txn, TxnOutcome, WriteTurn, ZPath,
    ZnodeOp, Zxid,
};

/// Bound on the znodes that one entry may make, remove or grant a lock to, in these tests.
const COST_MAX: u32 = 100;

struct World {
    state: State,
    keys: u128,
}

impl World {
    fn new() -> World {
        World { state: State::new(Limits { entry_cost_max: COST_MAX, ..Limits::default() }), keys: 0 }
    }

    fn apply(&mut self, session: Option<SessionId>, op: Op) -> TxnOutcome {
        let request = self.request(session, op);
        self.apply_request(request)
    }

    /// Makes this number of ephemeral znodes in a session.
    fn give(&mut self, session: SessionId, ephemerals: u32) {
        for number in 0..ephemerals {
            let op = create(&format!("{session}-{number}"), CreateMode::Ephemeral);
            assert!(self.apply(Some(session), Op::Znode(op)).reply.is_ok());
        }
    }

    /// Makes a request, with a new idempotency key if it has a session.
    fn request(&mut self, session: Option<SessionId>, op: Op) -> Request {
        self.keys += 1;
        let key = session.map(|_| RequestKey(self.keys.to_be_bytes()));
        let credential = session.map(|session| Credential { session, secret_hash: [0; 16] });
        Request { credential, key, attempt: Attempt(1), ..Request::new(op) }
    }

    fn apply_request(&mut self, request: Request) -> TxnOutcome {
        let at = LogPosition { term: Term(1), zxid: Zxid(self.state.last_zxid().0 + 1) };
        self.state.apply(at, Txn { proven: false, time_ms: 1, request })
    }

    fn open(&mut self) -> SessionId {
        let open = Op::OpenSession {
            secret_hash: [0; 16],
            timeout_ms: 10_000,
            label: String::new(),
            address: None,
            client: znode::ClientInfo::default(),
        };
        let Ok(Reply::SessionOpened { session, .. }) = self.apply(None, open).reply else { panic!("no session") };
        session
    }

    fn acquire(&mut self, session: SessionId, lock: &str, mode: LockMode) -> ZPath {
        self.acquire_with_delay(session, lock, mode, 0)
    }

    fn acquire_with_delay(&mut self, session: SessionId, lock: &str, mode: LockMode, lock_delay_ms: u32) -> ZPath {
        let acquire = Acquire { lock_delay_ms, ..Acquire::new(path(lock), mode) };
        match self.apply(Some(session), Op::Acquire(acquire)).reply {
            Ok(Reply::Acquired { ticket, .. }) => ticket,
            other => panic!("no ticket: {other:?}"),
        }
    }

    /// Acquires a multi-lock of `parts` locks, which are new.
    fn acquire_all(&mut self, session: SessionId, name: &str, parts: u32) -> ZPath {
        let parts = (0..parts).map(|part| (path(&format!("/{name}/{part}")), LockMode::Exclusive)).collect();
        self.acquire_parts(session, parts)
    }

    fn acquire_parts(&mut self, session: SessionId, parts: Vec<(ZPath, LockMode)>) -> ZPath {
        match self.apply(Some(session), Op::AcquireAll(AcquireAll::new(parts))).reply {
            Ok(Reply::Acquired { ticket, .. }) => ticket,
            other => panic!("no ticket: {other:?}"),
        }
    }

    fn check(&self) {
        self.state.check_invariants().unwrap();
        // A replica that is read from a snapshot must give the same answers from here on.
        let mut builder = StateBuilder::new();
        let records: Vec<_> = self.state.records().collect();
        records.iter().for_each(|record| builder.push(record).unwrap());
        let back = builder.finish().unwrap();
        assert!(records.iter().eq(&back.records().collect::<Vec<_>>()));
        assert_eq!(back.is_unsettled(), self.state.is_unsettled());
    }

    fn held(&self, tickets: &[ZPath]) -> usize {
        let holds = |ticket: &&ZPath| matches!(lock::status(&self.state, ticket), Ok(LockStatus::Held { .. }));
        tickets.iter().filter(holds).count()
    }

    fn written_down(&self, tickets: &[ZPath]) -> usize {
        tickets.iter().filter(|ticket| lock::grant(&self.state, ticket).is_some()).count()
    }
}

fn path(path: &str) -> ZPath {
    ZPath::parse(path).unwrap()
}

fn create(name: &str, mode: CreateMode) -> ZnodeOp {
    ZnodeOp::Create(Create { mode, ..Create::new(ZPath::root(), name) })
}

/// Number of znodes that an entry created, deleted, wrote or granted a lock to, by its events.
fn touched(applied: &TxnOutcome) -> usize {
    applied.events.iter().filter(|event| event.kind != EventKind::ChildrenChanged).count()
}

fn too_many(applied: &TxnOutcome) -> bool {
    matches!(applied.reply, Err(Refusal { error: Error::TooManyOps, .. })) && applied.events.is_empty()
}

#[test]
fn sessions_with_many_ephemerals_expire_in_several_entries() {
    let mut world = World::new();
    let mut sessions = Vec::new();
    for ephemerals in [40, 40, 40, 0, 0, 150, 150, 99] {
        let session = world.open();
        world.give(session, ephemerals);
        sessions.push(session);
    }
    let mut ended = Vec::new();
    while world.state.session_count() > 0 {
        let applied = world.apply(None, Op::ExpireSessions { sessions: sessions.clone(), term: Term(1) });
        let Ok(Reply::Removed { count }) = applied.reply else { panic!("{applied:?}") };
        // The end of one session is never divided between entries, so it may exceed the bound.
        assert!(touched(&applied) <= COST_MAX as usize || count == 1, "{count}");
        ended.push(count);
        sessions.retain(|session| world.state.session(*session).is_some());
        world.check();
    }
    assert_eq!(ended, [2, 3, 1, 1, 1]);
}

#[test]
fn a_multi_that_would_remove_too_much_is_refused_whole_and_before_it_is_proposed() {
    let mut world = World::new();
    let session = world.open();
    let tickets: Vec<ZPath> = (0..3).map(|number| world.acquire_all(session, &format!("m{number}"), 40)).collect();
    let delete = |path: &ZPath| ZnodeOp::Delete { path: path.clone(), version: -1 };
    let znodes = world.state.znode_count();
    let three = Op::Multi(tickets.iter().map(delete).collect());
    assert_eq!(world.state.check_cost(&Request::new(three.clone())), Err(Error::TooManyOps));
    let refused = world.apply(Some(session), three);
    assert!(too_many(&refused), "{refused:?}");
    assert_eq!(refused.reply.unwrap_err().op_index, Some(2));
    assert_eq!(world.state.znode_count(), znodes);
    world.check();
    let two = Op::Multi(tickets[..2].iter().map(delete).collect());
    assert_eq!(world.state.check_cost(&Request::new(two.clone())), Ok(()));
    let done = world.apply(Some(session), two);
    assert_eq!((done.reply.is_ok(), touched(&done)), (true, 80));
    world.check();
}

/// A refused request changes nothing, so a client can send it again and again. So it must be
/// refused before its work is done, not done and then undone.
#[test]
fn a_multi_is_refused_for_its_cost_before_any_of_it_is_done() {
    let mut world = World::new();
    let session = world.open();
    let tickets: Vec<ZPath> = (0..3).map(|number| world.acquire_all(session, &format!("m{number}"), 40)).collect();
    let delete = |path: &ZPath| ZnodeOp::Delete { path: path.clone(), version: -1 };
    let reply = |world: &mut World, first: Vec<ZnodeOp>| {
        let refused =
            world.apply(Some(session), Op::Multi(first.into_iter().chain(tickets.iter().map(delete)).collect()));
        let Refusal { error, op_index, .. } = refused.reply.unwrap_err();
        (error, op_index)
    };
    assert_eq!(reply(&mut world, vec![delete(&path("/absent"))]), (Error::TooManyOps, Some(3)), "not tried");
    // A missing permission is reported instead of the cost, as later operations cannot be executed.
    let acl = vec![Acl { perms: znode::READ, scheme: "world".into(), id: "anyone".into() }];
    let made = |name: &str, acl| {
        let path = path(name);
        ZnodeOp::Create(Create { acl, ..Create::new(path.parent().unwrap(), path.name()) })
    };
    assert!(world.apply(None, Op::Znode(made("/shut", acl))).reply.is_ok());
    let inside = || made("/shut/a", Acl::open());
    assert_eq!(reply(&mut world, vec![inside()]), (Error::NoAuth, Some(0)));
    let with_another_acl = vec![delete(&path("/shut")), made("/shut", Acl::open()), inside()];
    assert_eq!(reply(&mut world, with_another_acl), (Error::TooManyOps, Some(5)));
    world.check();
}

#[test]
fn revoking_all_who_hold_is_refused_where_it_would_take_too_much_away() {
    let mut world = World::new();
    let session = world.open();
    let lease = LockMode::Lease { permits: 1, limit: 9 };
    let mut tickets = Vec::new();
    for number in 0..9 {
        let others = (0..19).map(|part| (path(&format!("/m{number}/{part}")), LockMode::Exclusive));
        let parts = others.chain([(path("/s"), lease)]).collect();
        tickets.push(world.acquire_parts(session, parts));
    }
    let all = Op::Revoke { path: path("/s"), deadline_ms: Some(0) };
    assert_eq!(world.state.check_cost(&Request::new(all.clone())), Err(Error::TooManyOps));
    let refused = world.apply(None, all);
    assert!(too_many(&refused), "{refused:?}");
    assert_eq!(world.held(&tickets), 9);
    let nothing = Op::Revoke { path: path("/nothing"), deadline_ms: Some(0) };
    assert_eq!(world.state.check_cost(&Request::new(nothing)), Ok(()), "there is nobody to take it from");
    let one = world.apply(None, Op::Revoke { path: tickets[0].clone(), deadline_ms: Some(0) });
    assert_eq!(touched(&one), 20);
    world.check();
}

#[test]
fn readers_that_a_writer_lets_in_are_granted_entry_by_entry() {
    let mut world = World::new();
    let session = world.open();
    let writer = world.acquire(session, "/l", LockMode::Write);
    let readers: Vec<ZPath> = (0..350).map(|_| world.acquire(session, "/l", LockMode::Read)).collect();
    let mut applied = world.apply(Some(session), Op::Release { ticket: writer.into() });
    let mut entries = 0;
    while world.state.is_unsettled() {
        assert!(touched(&applied) <= COST_MAX as usize + 2, "{}", touched(&applied));
        assert_eq!(world.held(&readers), world.written_down(&readers));
        world.check();
        applied = world.apply(None, Op::Reap { candidates: Vec::new() });
        entries += 1;
    }
    assert_eq!((entries, world.held(&readers), world.written_down(&readers)), (3, 350, 350));
    // Each reader was granted the lock in its turn, so its token is its czxid.
    let czxids = readers.iter().map(|reader| world.state.node(reader).unwrap().stat().czxid.0);
    let tokens = readers.iter().map(|reader| lock::grant(&world.state, reader).unwrap().token.0);
    assert!(czxids.eq(tokens));
    world.check();
}

#[test]
fn leases_that_become_free_are_granted_entry_by_entry() {
    let mut world = World::new();
    let session = world.open();
    let mode = |permits| LockMode::Lease { permits, limit: 350 };
    let all = world.acquire(session, "/s", mode(350));
    let waiters: Vec<ZPath> = (0..350).map(|_| world.acquire(session, "/s", mode(1))).collect();
    let mut applied = world.apply(Some(session), Op::Release { ticket: all.into() });
    let mut entries = 0;
    while world.state.is_unsettled() {
        assert!(touched(&applied) <= COST_MAX as usize + 2, "{}", touched(&applied));
        world.check();
        applied = world.apply(None, Op::Reap { candidates: Vec::new() });
        entries += 1;
    }
    assert_eq!((entries, world.held(&waiters), world.written_down(&waiters)), (3, 350, 350));
    world.check();
}

#[test]
fn a_multi_lock_joins_very_many_readers_at_the_cost_of_its_parts() {
    let mut world = World::new();
    let session = world.open();
    for _ in 0..1_001 {
        world.acquire(session, "/l", LockMode::Read);
    }
    let wish = AcquireAll::new(vec![(path("/m"), LockMode::Read), (path("/l"), LockMode::Read)]);
    let applied = world.apply(Some(session), Op::AcquireAll(wish));
    assert!(matches!(applied.reply, Ok(Reply::Acquired { held: Some(_), .. })), "{applied:?}");
    assert!(touched(&applied) <= 6, "{}", touched(&applied));
    world.check();
}

#[test]
fn a_reader_is_upgraded_while_others_are_still_to_be_granted() {
    let mut world = World::new();
    let session = world.open();
    let writer = world.acquire(session, "/l", LockMode::Write);
    let readers: Vec<ZPath> = (0..250).map(|_| world.acquire(session, "/l", LockMode::Read)).collect();
    world.apply(Some(session), Op::Release { ticket: writer.into() });
    let (ticket, label) = (readers[0].clone(), String::new());
    let upgrade = Op::Upgrade(znode::Upgrade { ticket, label });
    let applied = world.apply(Some(session), upgrade);
    let Ok(Reply::Acquired { ticket: upgraded, held: None }) = applied.reply else { panic!("{applied:?}") };
    // The write ticket stands before the waiting readers, which hold after its release.
    let held = world.held(&readers);
    assert!(held < 250, "{held}");
    for reader in &readers[1..held] {
        world.apply(Some(session), Op::Release { ticket: reader.clone().into() });
    }
    assert!(matches!(lock::status(&world.state, &upgraded), Ok(LockStatus::Held { .. })));
    assert_eq!(world.held(&readers[held..]), 0);
    world.check();
}

/// Makes readers that wait behind an upgrade, whose token is above the readers' czxids. The last
/// log entry grants them the lock with its zxid as token. Returns the readers and its result.
fn readers_behind_an_upgrade(world: &mut World, session: SessionId, count: usize) -> (Vec<ZPath>, TxnOutcome) {
    let reader = world.acquire(session, "/l", LockMode::Read);
    let writer = world.acquire(session, "/l", LockMode::Write);
    let readers: Vec<ZPath> = (0..count).map(|_| world.acquire(session, "/l", LockMode::Read)).collect();
    let (ticket, label) = (reader.clone(), String::new());
    let upgrade = Op::Upgrade(znode::Upgrade { ticket, label });
    let Ok(Reply::Acquired { ticket: upgraded, .. }) = world.apply(Some(session), upgrade).reply else { panic!() };
    for ticket in [upgraded, reader] {
        world.apply(Some(session), Op::Release { ticket: ticket.into() });
    }
    (readers, world.apply(Some(session), Op::Release { ticket: writer.into() }))
}

#[test]
fn readers_behind_an_upgrade_are_granted_entry_by_entry() {
    let mut world = World::new();
    let session = world.open();
    let (readers, mut applied) = readers_behind_an_upgrade(&mut world, session, 350);
    let mut tokens = vec![None; readers.len()];
    for granted in [99, 199, 299, 350] {
        assert!(touched(&applied) <= COST_MAX as usize, "{}", touched(&applied));
        assert_eq!((world.held(&readers), world.written_down(&readers)), (granted, granted));
        for (ticket, known) in readers.iter().zip(&mut tokens) {
            // A token that a client has seen must not change, and must be valid.
            match lock::status(&world.state, ticket).unwrap() {
                LockStatus::Held { token, .. } => {
                    assert_eq!(*known.get_or_insert(token), token);
                    assert!(token.0 >= granted as u64 && lock::is_held_with(&world.state, &path("/l"), token));
                }
                LockStatus::Waiting { .. } => {}
            }
        }
        world.check();
        assert_eq!(world.state.is_unsettled(), granted < 350);
        applied = world.apply(None, Op::Reap { candidates: Vec::new() });
        let heard = applied.events.iter().filter(|event| event.kind == EventKind::Granted).count();
        assert_eq!(heard, (350 - granted).min(COST_MAX as usize), "who waits is told");
    }
}

/// One entry expires the sessions of the holder and of a writer, which waits in front of readers.
/// The budget of this entry is used up before any reader is granted the lock.
#[test]
fn a_reader_that_was_told_its_token_keeps_it_although_others_get_theirs_later() {
    let mut world = World::new();
    let [own, first, second] = [(); 3].map(|()| world.open());
    let reader = world.acquire(own, "/l", LockMode::Read);
    for session in [first, second] {
        world.acquire(session, "/l", LockMode::Write);
    }
    let mut readers: Vec<ZPath> = (0..150).map(|_| world.acquire(own, "/l", LockMode::Read)).collect();
    let upgrade = Op::Upgrade(znode::Upgrade { ticket: reader.clone(), label: String::new() });
    let Ok(Reply::Acquired { ticket: upgraded, .. }) = world.apply(Some(own), upgrade).reply else { panic!() };
    for ticket in [upgraded, reader] {
        world.apply(Some(own), Op::Release { ticket: ticket.into() });
    }
    // These readers entered after the grants to the first readers: their tokens are their czxids.
    readers.extend((0..50).map(|_| world.acquire(own, "/l", LockMode::Read)));
    world.give(first, COST_MAX - 1);
    world.give(second, 2 * COST_MAX);
    world.apply(None, Op::ExpireSessions { sessions: vec![first, second], term: Term(1) });
    assert!(world.state.is_unsettled());
    let mut tokens = vec![None; readers.len()];
    while tokens.contains(&None) {
        for (ticket, known) in readers.iter().zip(&mut tokens) {
            match lock::status(&world.state, ticket).unwrap() {
                LockStatus::Held { token, .. } => assert_eq!(*known.get_or_insert(token), token, "{ticket}"),
                LockStatus::Waiting { .. } => assert_eq!(*known, None, "{ticket} held before"),
            }
        }
        world.check();
        // A reader that enters in between is granted the lock by later entries, too.
        if readers.len() < 205 {
            readers.push(world.acquire(own, "/l", LockMode::Read));
            tokens.push(None);
        } else {
            world.apply(None, Op::Reap { candidates: Vec::new() });
        }
    }
}

#[test]
fn a_refused_multi_takes_nothing_of_the_budget_of_what_its_entry_goes_on_with() {
    let mut world = World::new();
    let session = world.open();
    let writer = world.acquire(session, "/l", LockMode::Write);
    let readers: Vec<ZPath> = (0..350).map(|_| world.acquire(session, "/l", LockMode::Read)).collect();
    world.apply(Some(session), Op::Release { ticket: writer.into() });
    let before = world.written_down(&readers);
    let nothing = ZnodeOp::Delete { path: path("/nothing"), version: -1 };
    let ops = (0..90).map(|number| create(&format!("n{number}"), CreateMode::Persistent)).chain([nothing]);
    let refused = world.apply(None, Op::Multi(ops.collect()));
    assert_eq!(refused.reply.unwrap_err().error, Error::NoNode);
    assert_eq!(world.written_down(&readers), before + COST_MAX as usize);
}

#[test]
fn what_is_far_down_costs_more() {
    let mut world = World::new();
    let session = world.open();
    let mut parent = ZPath::root();
    let at = |parent: &ZPath, name: String, mode| ZnodeOp::Create(Create { mode, ..Create::new(parent.clone(), name) });
    for _ in 0..60 {
        assert!(world.apply(None, Op::Znode(at(&parent, "d".into(), CreateMode::Persistent))).reply.is_ok());
        parent = parent.child("d").unwrap();
    }
    let many =
        |count: u32| Op::Multi((0..count).map(|n| at(&parent, format!("n{n}"), CreateMode::Persistent)).collect());
    // Making a znode changes all its ancestors, and eight changed ancestors count as one znode.
    assert_eq!(world.state.check_cost(&Request::new(many(13))), Err(Error::TooManyOps));
    assert!(too_many(&world.apply(None, many(13))));
    assert_eq!(world.state.check_cost(&Request::new(many(12))), Ok(()));
    assert!(world.apply(None, many(12)).reply.is_ok());
    for op in (0..9).map(|number| at(&parent, format!("e{number}"), CreateMode::Ephemeral)) {
        assert!(world.apply(Some(session), Op::Znode(op)).reply.is_ok());
    }
    assert_eq!(world.state.cost_of_ending(session), 1 + 9 * 8);
}

#[test]
fn a_retry_and_a_request_that_is_not_permitted_are_answered_as_such_whatever_they_would_cost() {
    let mut world = World::new();
    let session = world.open();
    let many = Op::Multi((0..60).map(|number| create(&format!("n{number}"), CreateMode::Persistent)).collect());
    let request = world.request(Some(session), many);
    let done = world.apply_request(request.clone());
    assert!(done.reply.is_ok());
    world.apply(None, Op::SetLimits(Limits { entry_cost_max: 50, ..Limits::default() }));
    assert_eq!(world.state.check_cost(&request), Ok(()), "its answer is kept");
    let again = world.apply_request(request.clone());
    assert_eq!((again.zxid, again.reply), (done.zxid, done.reply));
    let credential = Some(Credential { session, secret_hash: [9; 16] });
    let stranger = Request { credential, key: None, ..request };
    assert_eq!(world.state.check_cost(&stranger), Ok(()), "it is not the session's");
    assert_eq!(world.apply_request(stranger).reply.unwrap_err().error, Error::AuthFailed);

    world.apply(None, Op::SetLimits(Limits { entry_cost_max: COST_MAX, ..Limits::default() }));
    let acl = vec![Acl { perms: znode::READ | znode::CREATE, scheme: "world".into(), id: "anyone".into() }];
    let directory = Create { acl, ..Create::new(ZPath::root(), "s") };
    assert!(world.apply(None, Op::Znode(ZnodeOp::Create(directory))).reply.is_ok());
    let lease = LockMode::Lease { permits: 1, limit: 9 };
    for number in 0..9 {
        let others = (0..19).map(|part| (path(&format!("/m{number}/{part}")), LockMode::Exclusive));
        world.acquire_parts(session, others.chain([(path("/s"), lease)]).collect());
    }
    let all = Request::new(Op::Revoke { path: path("/s"), deadline_ms: Some(0) });
    assert_eq!(world.state.check_cost(&all), Ok(()), "it may not");
    assert_eq!(world.apply_request(all).reply.unwrap_err().error, Error::NoAuth);
}

/// A connection's write exceeds the budget of its entry and is refused. The entry must count the
/// write nevertheless, because the connection's later writes wait until it is counted.
#[test]
fn a_write_in_its_turn_that_costs_too_much_is_refused_by_its_entry() {
    let mut world = World::new();
    let session = world.open();
    assert!(world.apply(Some(session), Op::AttachSession { connection: 7, timeout_ms: 10_000 }).reply.is_ok());
    let in_turn = |number, op| {
        let credential = Some(Credential { session, secret_hash: [0; 16] });
        Request { credential, turn: Some(WriteTurn { connection: 7, number }), ..Request::new(op) }
    };
    let many = (0..=COST_MAX).map(|number| create(&format!("n{number}"), CreateMode::Persistent)).collect();
    let many = in_turn(1, Op::Multi(many));
    assert_eq!(world.state.check_cost(&many), Ok(()), "it takes its turn");
    assert!(too_many(&world.apply_request(many)));
    let next = in_turn(2, Op::Znode(create("next", CreateMode::Persistent)));
    assert!(world.apply_request(next).reply.is_ok());
}

#[test]
fn a_waiter_that_expires_with_the_holder_is_not_granted_the_lock_between_the_entries() {
    let mut world = World::new();
    let [holder, waiter, alive] = [(); 3].map(|()| world.open());
    world.give(holder, 150);
    let lease = LockMode::Lease { permits: 1, limit: 1 };
    let tickets = ["/l", "/s"].map(|lock| {
        let mode = if lock == "/s" { lease } else { LockMode::Exclusive };
        [holder, waiter, alive].map(|session| world.acquire_with_delay(session, lock, mode, 5_000))
    });
    let expire = Op::ExpireSessions { sessions: vec![holder, waiter], term: Term(1) };
    let first = world.apply(None, expire.clone());
    assert_eq!(first.reply, Ok(Reply::Removed { count: 1 }), "there is no room for both");
    world.check();
    // The holder's lock nodes are kept for their lock-delay. The client of the other session learns
    // that it has expired, even while its lock nodes are not all removed.
    let credential = Credential { session: waiter, secret_hash: [0; 16] };
    assert_eq!(world.state.authenticate(&credential).map(drop), Err(Error::SessionExpired));
    for [held, ..] in &tickets {
        let delete = ZnodeOp::Delete { path: held.clone(), version: -1 };
        assert!(world.apply(None, Op::Znode(delete)).reply.is_ok());
    }
    for [_, waited, next] in &tickets {
        assert!(world.state.node(waited).is_none(), "it was next, and dead");
        assert!(matches!(lock::status(&world.state, next), Ok(LockStatus::Held { .. })));
        let past = lock::history(&world.state, &waited.parent().unwrap(), 9);
        let ended = past.iter().find(|past| past.name == waited.name()).unwrap();
        assert_eq!((ended.grant, ended.end), (None, lock::TicketEnd::Expired));
    }
    assert_eq!(world.apply(None, expire).reply, Ok(Reply::Removed { count: 1 }));
    assert!(world.state.session(waiter).is_none());
    world.check();
}
