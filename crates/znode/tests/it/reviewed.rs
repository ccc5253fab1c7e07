//! Bugs that a review found and the other tests did not: each with the requests that show it.

use znode::lock::{self, LockStatus};
use znode::{
    Acl, Acquire, AcquireAll, Attempt, Create, CreateMode, Credential, Error, Limits, LockMode, LogPosition, Op,
    Policy, Refusal, Reply, Request, RequestKey, SessionId, State, Term, Txn, ZPath, ZnodeOp, Zxid,
};

#[derive(Default)]
struct World {
    state: State,
    keys: u128,
}

impl World {
    fn apply(&mut self, session: Option<SessionId>, op: Op) -> Result<Reply, Refusal> {
        self.keys += 1;
        let mut request = Request { attempt: Attempt(1), ..Request::new(op) };
        request.credential = session.map(|session| Credential { session, secret_hash: [0; 16] });
        request.key = session.map(|_| RequestKey(self.keys.to_be_bytes()));
        let at = LogPosition { term: Term(1), zxid: Zxid(self.state.last_zxid().0 + 1) };
        let reply = self.state.apply(at, Txn { proven: false, time_ms: 1, request }).reply;
        self.state.check_invariants().unwrap();
        reply
    }

    fn open(&mut self) -> SessionId {
        let (secret_hash, timeout_ms, label, address) = ([0; 16], 10_000, String::new(), None);
        let client = znode::ClientInfo::default();
        match self.apply(None, Op::OpenSession { secret_hash, timeout_ms, label, address, client }) {
            Ok(Reply::SessionOpened { session, .. }) => session,
            other => panic!("no session: {other:?}"),
        }
    }

    fn acquire(&mut self, session: SessionId, lock: &str, mode: LockMode, lock_delay_ms: u32) -> ZPath {
        let acquire = Acquire { lock_delay_ms, ..Acquire::new(path(lock), mode) };
        match self.apply(Some(session), Op::Acquire(acquire)) {
            Ok(Reply::Acquired { ticket, .. }) => ticket,
            other => panic!("no ticket: {other:?}"),
        }
    }

    fn token(&self, ticket: &ZPath) -> Option<u64> {
        match lock::status(&self.state, ticket) {
            Ok(LockStatus::Held { token, .. }) => Some(token.0),
            _ => None,
        }
    }
}

fn path(path: &str) -> ZPath {
    ZPath::parse(path).unwrap()
}

fn create(parent: &str, name: &str, mode: CreateMode) -> ZnodeOp {
    ZnodeOp::Create(Create { mode, ..Create::new(path(parent), name) })
}

#[test]
fn where_memory_is_full_a_request_that_gives_nothing_back_leaves_no_trace() {
    let mut world = World::default();
    let session = world.open();
    for number in 0..30 {
        let op = create("/", &format!("n{number}"), CreateMode::Persistent);
        world.apply(Some(session), Op::Znode(op)).unwrap();
    }
    world.apply(None, Op::SetLimits(Limits { state_bytes_max: 1_000, ..Limits::default() })).unwrap();
    let before = world.state.state_bytes();
    let nothing = path("/no/lock-0000000000");
    for _ in 0..100 {
        for op in [
            Op::Release { ticket: nothing.clone().into() },
            Op::Withdraw { ticket: nothing.clone(), attempt: Attempt(9), if_waiting: false },
            Op::Znode(ZnodeOp::Delete { path: nothing.clone(), version: -1 }),
            Op::CloseSession { session: SessionId(9) },
            Op::Multi(Vec::new()),
        ] {
            let _ = world.apply(Some(session), op);
            assert_eq!(world.state.state_bytes(), before);
        }
    }
    // An operation that frees memory is executed, and its answer is kept.
    let delete = Op::Znode(ZnodeOp::Delete { path: path("/n0"), version: -1 });
    assert_eq!(world.apply(Some(session), delete), Ok(Reply::Done));
    let key = RequestKey(world.keys.to_be_bytes());
    assert!(world.state.state_bytes() < before);
    let again = Op::Znode(ZnodeOp::Delete { path: path("/n0"), version: -1 });
    world.keys = u128::from_be_bytes(key.0) - 1;
    assert_eq!(world.apply(Some(session), again), Ok(Reply::Done));
}

/// The limit for names of znodes does not apply to identities in an ACL.
#[test]
fn an_acl_has_entries_as_long_as_identities_may_be_whatever_a_name_may() {
    let mut world = World::default();
    world.apply(None, Op::SetLimits(Limits { name_bytes_max: 4, ..Limits::default() })).unwrap();
    let mut create = |name: &str, scheme: String, id: String| {
        let acl = vec![Acl { perms: znode::ALL, scheme, id }];
        let answer = world.apply(None, Op::Znode(ZnodeOp::Create(Create { acl, ..Create::new(path("/"), name) })));
        answer.map(drop).map_err(|refusal| refusal.error)
    };
    let long = |bytes: usize| "a".repeat(bytes);
    let max = znode::IDENTITY_BYTES_MAX;
    assert_eq!(create("a", "x509".into(), long(max)), Ok(()));
    assert_eq!(create("b", "x509".into(), long(max + 1)), Err(Error::InvalidAcl));
    assert_eq!(create("c", long(max), "b".into()), Ok(()));
    assert_eq!(create("d", long(max + 1), "b".into()), Err(Error::InvalidAcl));
}

#[test]
fn whether_a_waiter_may_overtake_depends_on_its_own_queue_alone() {
    let mut world = World::default();
    let session = world.open();
    world.acquire(session, "/k", LockMode::Exclusive, 0);
    for multi in 0..8 {
        let free = (0..62).map(|lock| path(&format!("/f{multi}-{lock}")));
        let locks = [path("/l")].into_iter().chain(free).chain([path("/k")]);
        let parts = locks.map(|lock| (lock, LockMode::Exclusive)).collect();
        let wish = AcquireAll { policy: Policy::Backfill, ..AcquireAll::new(parts) };
        assert!(matches!(world.apply(Some(session), Op::AcquireAll(wish)), Ok(Reply::Acquired { .. })));
    }
    let waiter = world.acquire(session, "/l", LockMode::Exclusive, 0);
    let before = world.token(&waiter);
    assert!(before.is_none(), "before it stand more parts than may be overtaken");
    // The first multi-lock does not fit, as before. The world of this test checks after each entry
    // that no waiter could hold.
    world.acquire(session, "/f0-0", LockMode::Exclusive, 0);
    assert_eq!(world.token(&waiter), before);
}

#[test]
fn a_multi_lock_overtakes_no_more_parts_than_a_single_ticket() {
    let mut world = World::default();
    let session = world.open();
    let acquire_all = |world: &mut World, locks: Vec<String>| {
        let parts = locks.iter().map(|lock| (path(lock), LockMode::Exclusive)).collect();
        let wish = AcquireAll { policy: Policy::Backfill, ..AcquireAll::new(parts) };
        match world.apply(Some(session), Op::AcquireAll(wish)) {
            Ok(Reply::Acquired { ticket, .. }) => ticket,
            other => panic!("{other:?}"),
        }
    };
    world.acquire(session, "/k", LockMode::Exclusive, 0);
    for multi in 0..3 {
        let free = (0..62).map(|lock| format!("/f{multi}-{lock}"));
        acquire_all(&mut world, ["/k".into(), "/second".into()].into_iter().chain(free).collect());
    }
    let first = world.acquire(session, "/first", LockMode::Exclusive, 0);
    let both = acquire_all(&mut world, vec!["/first".into(), "/second".into()]);
    // Three multi-locks with 192 parts wait before it in the queue of `/second`.
    world.apply(Some(session), Op::Release { ticket: first.into() }).unwrap();
    assert!(world.token(&both).is_none());
}

#[test]
fn a_retry_finds_its_ticket_after_many_releases() {
    let mut world = World::default();
    let session = world.open();
    world.apply(None, Op::SetLimits(Limits { replies_max: 1, used_keys_max: 1, ..Limits::default() })).unwrap();
    let acquire = || Op::Acquire(Acquire { owner: "o".into(), ..Acquire::new(path("/l"), LockMode::Exclusive) });
    let keys_before = world.keys;
    let Ok(Reply::Acquired { ticket, .. }) = world.apply(Some(session), acquire()) else { panic!("no ticket") };
    for _ in 0..65 {
        world.apply(Some(session), acquire()).unwrap();
        world.apply(Some(session), Op::Release { ticket: ticket.clone().into() }).unwrap();
    }
    world.keys = keys_before;
    world.apply(Some(session), acquire()).unwrap();
    assert!(matches!(lock::status(&world.state, &ticket), Ok(LockStatus::Held { holds: 1, .. })));
}

#[test]
fn the_first_who_holds_is_told_though_a_dead_one_lingers_before_it() {
    let mut world = World::default();
    let [dying, living] = [(); 2].map(|()| world.open());
    world.acquire(dying, "/l", LockMode::Read, 60_000);
    let ticket = world.acquire(living, "/l", LockMode::Read, 0);
    world.apply(None, Op::ExpireSessions { sessions: vec![dying], term: Term(1) }).unwrap();
    let holder = lock::holder(&world.state, &path("/l")).unwrap();
    assert_eq!(holder.map(|entry| entry.ticket), Some(ticket));
}

#[test]
fn one_that_holds_alone_has_a_larger_token_than_a_reader_that_came_and_went_in_the_same_entry() {
    let mut world = World::default();
    let [own, other] = [(); 2].map(|()| world.open());
    let writer = world.acquire(own, "/l", LockMode::Write, 0);
    let waiter = world.acquire(other, "/l", LockMode::Exclusive, 0);
    let reader = path("/l/read-0000000000");
    let multi = vec![
        create("/l", "read-0000000000", CreateMode::Ephemeral),
        ZnodeOp::Delete { path: reader, version: -1 },
        ZnodeOp::Delete { path: writer, version: -1 },
    ];
    world.apply(Some(own), Op::Multi(multi)).unwrap();
    let tokens = lock::history(&world.state, &path("/l"), 10).into_iter().filter_map(|past| Some(past.grant?.token.0));
    let largest = tokens.max().unwrap();
    if world.token(&waiter).is_none() {
        assert!(world.state.is_unsettled());
        world.apply(None, Op::Reap { candidates: Vec::new() }).unwrap();
    }
    assert!(world.token(&waiter).unwrap() > largest, "{largest}");
}

#[test]
fn readers_of_ones_own_writer_in_a_semaphore_have_tokens_of_their_own() {
    let mut world = World::default();
    let session = world.open();
    let settings = znode::LockSettings { limit: Some(3), ..Default::default() };
    world.apply(Some(session), Op::Znode(create("/", "s", CreateMode::Persistent))).unwrap();
    world.apply(Some(session), Op::SetLock { lock: path("/s"), settings }).unwrap();
    world.acquire(session, "/s", LockMode::Write, 0);
    let readers = ["read-0000000000", "read-b-0000000000"];
    let multi = readers.map(|name| create("/s", name, CreateMode::Ephemeral));
    world.apply(Some(session), Op::Multi(multi.into())).unwrap();
    let tokens = readers.map(|name| world.token(&path("/s").child(name).unwrap()));
    assert!(tokens[0].is_some() && tokens[0] != tokens[1], "{tokens:?}");
}
