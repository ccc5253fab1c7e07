//! Restores of a backup as the first state of a new cluster: sessions end, znodes stay, and fencing
//! tokens rise across any chain of restores.

use std::collections::{BTreeMap, BTreeSet};

use znode::lock::{self, LockStatus};
use znode::{
    Acquire, Attempt, ClientInfo, ClusterUuid, Create, CreateMode, Credential, Error, Founding, Identity, KEEPER,
    LockMode, LockSettings, LogPosition, Op, RESTORED_INDEX, RESTORING, Reply, Request, RequestKey, Restore,
    RestoreError, SUPER, SessionId, State, StateBuilder, Term, Txn, ZPath, ZXID_BASE_MAX, ZnodeOp,
};

const SECRET: [u8; 16] = [3; 16];

/// A cluster: its state, and the index of its last entry.
#[derive(Clone)]
struct TestCluster {
    state: State,
    index: u64,
    now_ms: u64,
}

fn founding(base: u64) -> Founding {
    Founding { uuid: ClusterUuid([7; 16]), zxid_base: base, group: 0 }
}

impl TestCluster {
    fn founded(now_ms: u64) -> TestCluster {
        let mut cluster = TestCluster { state: State::default(), index: 0, now_ms };
        cluster.apply(Request::new(Op::Found(founding(now_ms << 10)))).unwrap();
        cluster
    }

    /// Applies a request as a leader does. Each request advances the time a little.
    fn apply(&mut self, request: Request) -> Result<Reply, Error> {
        (self.index, self.now_ms) = (self.index + 1, self.now_ms + 1);
        let at = LogPosition { term: Term(2), zxid: self.state.zxid_of(self.index, Some(&request)) };
        let reply = self.state.apply(at, Txn { proven: false, time_ms: self.now_ms, request }).reply;
        reply.map_err(|refusal| refusal.error)
    }

    fn open(&mut self) -> Credential {
        let (label, client) = (String::new(), ClientInfo::default());
        let open = Op::OpenSession { secret_hash: SECRET, timeout_ms: 10_000, label, address: None, client };
        let Ok(Reply::SessionOpened { session, .. }) = self.apply(Request::new(open)) else { panic!("not opened") };
        Credential { session, secret_hash: SECRET }
    }

    /// Acquires a lock. Returns the token if the lock is held at once, `None` if the ticket waits.
    fn acquire(&mut self, who: Credential, name: &str, delay_ms: u32) -> Option<u64> {
        let key = RequestKey(u128::from(self.index).to_le_bytes());
        let acquire = Acquire { lock_delay_ms: delay_ms, ..Acquire::new(path(name), LockMode::Exclusive) };
        let request = Request { key: Some(key), attempt: Attempt(1), ..Request::of(who, Op::Acquire(acquire)) };
        match self.apply(request).unwrap() {
            Reply::Acquired { held: Some(held), .. } => Some(held.token.0),
            _ => None,
        }
    }

    /// A new cluster that is restored at the time `now_ms` from a backup of this cluster.
    fn restored(&self, now_ms: u64, grace_ms: u64) -> TestCluster {
        let mut builder = StateBuilder::new();
        self.state.records().for_each(|record| builder.push(&record).unwrap());
        let mut state = builder.finish().unwrap();
        state.restore(Restore { founding: founding(now_ms << 10), time_ms: now_ms, grace_ms }).unwrap();
        state.check_invariants().unwrap();
        TestCluster { state, index: RESTORED_INDEX, now_ms }
    }
}

fn path(text: &str) -> ZPath {
    ZPath::parse(text).unwrap()
}

/// The former cluster and the restored one never run at the same time: the clock of the restored
/// cluster begins where the former one's ended.
#[test]
fn tokens_rise_across_any_chain_of_backups_and_restores() {
    for seed in 0..50 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut cluster = TestCluster::founded(1_795_000_000_000);
        let mut backups = vec![cluster.clone()];
        let (mut seen, mut shown) = (BTreeMap::<&str, u64>::new(), BTreeSet::new());
        for step in 0..80 {
            match rng.u8(..10) {
                0 => backups.push(cluster.clone()),
                1 => {
                    let from = rng.usize(..backups.len());
                    // Tickets without a session hold in the restored cluster as in the backup.
                    shown = grants_of_no_session(&backups[from].state).collect();
                    cluster = backups[from].restored(cluster.now_ms + 1, 0);
                    assert_eq!(cluster.state.session_count(), 0, "seed {seed} step {step}");
                }
                2 => {
                    let sessions: Vec<SessionId> =
                        cluster.state.sessions_from(SessionId(0)).map(|one| one.id).collect();
                    cluster.apply(Request::new(Op::ExpireSessions { sessions, term: Term(2) })).unwrap();
                }
                3 => drop(cluster.apply(Request::new(Op::Znode(of_no_session(["/a", "/b"][rng.usize(..2)]))))),
                4 => {
                    let all = tickets_of_no_session(&cluster.state);
                    if let Some(path) = rng.choice(all) {
                        cluster.apply(Request::new(Op::Znode(ZnodeOp::Delete { path, version: -1 }))).unwrap();
                    }
                }
                _ => {
                    let who = cluster.open();
                    let lock = ["/a", "/b", "/c"][rng.usize(..3)];
                    let delay_ms = if rng.bool() { 5 } else { 0 };
                    if let Some(token) = cluster.acquire(who, lock, delay_ms) {
                        let before = seen.insert(lock, token).unwrap_or(0);
                        assert!(token > before, "seed {seed} step {step}: {lock} with {token} after {before}");
                    }
                }
            }
            for (ticket, token) in grants_of_no_session(&cluster.state) {
                if shown.insert((ticket.clone(), token)) {
                    let lock = if ticket.as_str().starts_with("/a/") { "/a" } else { "/b" };
                    let before = seen.insert(lock, token).unwrap_or(0);
                    assert!(token > before, "seed {seed} step {step}: {ticket} with {token} after {before}");
                }
            }
        }
    }
}

/// Tickets that hold and belong to no session, with their tokens.
fn grants_of_no_session(state: &State) -> impl Iterator<Item = (ZPath, u64)> {
    let tickets = tickets_of_no_session(state).into_iter();
    tickets.filter_map(|ticket| match lock::status(state, &ticket) {
        Ok(LockStatus::Held { token, .. }) => Some((ticket, token.0)),
        _ => None,
    })
}

/// A create of a persistent lock node, which belongs to no session.
fn of_no_session(lock: &str) -> ZnodeOp {
    ZnodeOp::Create(Create { mode: CreateMode::PersistentSequential, ..Create::new(path(lock), "x-lock-") })
}

fn tickets_of_no_session(state: &State) -> Vec<ZPath> {
    let locks = ["/a", "/b"].map(path).into_iter().filter(|lock| state.node(lock).is_some());
    let tickets = locks.flat_map(|lock| {
        let names: Vec<String> = state.children(&lock).unwrap().map(String::from).collect();
        names.into_iter().map(move |name| lock.child(&name).unwrap())
    });
    tickets.filter(|ticket| state.owner_of(ticket).is_none()).collect()
}

#[test]
fn sessions_end_with_all_that_is_theirs_and_the_past_says_why() {
    let mut cluster = TestCluster::founded(1_000);
    let (holder, waiter) = (cluster.open(), cluster.open());
    let token = cluster.acquire(holder, "/l", 60_000).unwrap();
    assert_eq!(cluster.acquire(waiter, "/l", 0), None);
    // A lock node that is kept for its lock-delay is removed as well.
    let lingering = cluster.open();
    cluster.acquire(lingering, "/m", 60_000).unwrap();
    cluster.apply(Request::new(Op::ExpireSessions { sessions: vec![lingering.session], term: Term(2) })).unwrap();
    let restored = cluster.restored(9_000, 0);
    let state = &restored.state;
    assert_eq!((state.session_count(), state.contender_count(), state.time_ms()), (0, 0, 9_000));
    let ended = state.ended_session(holder.session).unwrap();
    assert!(state.ended_by_restore(ended) && ended.expired);
    assert!(!state.ended_by_restore(state.ended_session(lingering.session).unwrap()));
    let past = lock::history(state, &path("/l"), 10);
    assert!(past.iter().any(|ticket| ticket.grant.is_some_and(|grant| grant.token.0 == token)), "{past:?}");
    assert_eq!(state.authenticate(&holder).unwrap_err(), Error::SessionExpired);
}

#[test]
fn a_base_that_is_not_above_everything_restores_nothing() {
    let mut state = TestCluster::founded(1_000).state;
    let before: Vec<_> = state.records().collect();
    let restore = |base| Restore { founding: founding(base), time_ms: 1, grace_ms: 0 };
    let zxid = state.last_zxid().0;
    assert_eq!(state.restore(restore(zxid)), Err(RestoreError::BaseTooLow { base: zxid, zxid }));
    assert_eq!(state.restore(restore(ZXID_BASE_MAX + 1)), Err(RestoreError::BaseTooHigh(ZXID_BASE_MAX + 1)));
    assert!(state.records().eq(before));
    assert_eq!(state.restore(restore(zxid + 1)), Ok(()));
}

#[test]
fn the_znode_of_the_grace_is_the_leaders_to_remove_and_no_clients() {
    let mut cluster = TestCluster::founded(1_000).restored(9_000, 300_000);
    assert_eq!(cluster.state.grace_ms(), Some(300_000));
    let identities = |schemes: &[&str]| {
        schemes.iter().map(|scheme| Identity { scheme: (*scheme).into(), id: "x".into() }).collect::<Vec<_>>()
    };
    let restoring = path(RESTORING);
    let delete = || ZnodeOp::Delete { path: restoring.clone(), version: -1 };
    let set = ZnodeOp::SetData { path: restoring.clone(), data: Vec::new(), version: -1 };
    let below = ZnodeOp::Create(Create::new(restoring.clone(), "x"));
    // Clients may not remove it, and the super user may not either.
    for op in [delete(), set, below] {
        for who in [&[][..], &[SUPER]] {
            let request = Request { identities: identities(who), ..Request::new(Op::Znode(op.clone())) };
            assert_eq!(cluster.apply(request), Err(Error::NoAuth), "{op:?} by {who:?}");
        }
    }
    let by_leader = Request { identities: identities(&[SUPER, KEEPER]), ..Request::new(Op::Znode(delete())) };
    assert_eq!(cluster.apply(by_leader), Ok(Reply::Done));
    assert!(!cluster.state.is_restoring());
    cluster.state.check_invariants().unwrap();
    // A backup of a cluster in its grace time gets the grace time of the new restore, or none.
    let again = TestCluster::founded(1_000).restored(9_000, 300_000).restored(19_000, 0);
    assert!(!again.state.is_restoring());
}

#[test]
fn what_may_make_a_holder_is_told_from_what_may_not() {
    let create = |name: &str, mode| ZnodeOp::Create(Create { mode, ..Create::new(ZPath::root(), name) });
    let lets = [
        (create("plain", CreateMode::Persistent), false),
        (create("x-lock-0000000001", CreateMode::Persistent), true),
        (create("x", CreateMode::Ephemeral), true),
        (create("x-0000000001", CreateMode::Persistent), false),
        (create("x-", CreateMode::PersistentSequential), false),
        (create("x__lock__", CreateMode::PersistentSequential), true),
        (create("x-lock-0000000001", CreateMode::Container), false),
        (ZnodeOp::Delete { path: path("/l/x-0000000001"), version: -1 }, false),
    ];
    for (op, may) in lets {
        assert_eq!(Op::Znode(op.clone()).may_grant(), may, "{op:?}");
        assert_eq!(Op::Multi(vec![op.clone()]).may_grant(), may, "{op:?}");
    }
    assert!(Op::SetLock { lock: path("/l"), settings: LockSettings::default() }.may_grant());
    assert!(!Op::Release { ticket: path("/l/x-0000000001").into() }.may_grant());
}
