//! The table of permissions: each operation is sent by the session that owns the ticket, by an
//! identity with permissions, by an identity without permissions, and by the super user.
//!
//! The rows are made from the lists of all operations, create modes and lock modes. Each list is a
//! chain of exhaustive matches, so a new variant does not compile until it is in its list.

use znode::lock;
use znode::{
    Acl, Acquire, AcquireAll, Attempt, Create, CreateMode, Credential, Error, HeldTicket, Identity, Limits, LockMode,
    LockSettings, LogPosition, Op, Reply, Request, RequestKey, SessionId, State, Term, TicketRef, Txn, Upgrade,
    WriteTurn, ZPath, ZnodeOp, Zxid,
};

/// The columns of the table: the name of a client, and its identity as scheme and id. The client
/// `owner` has no identity, only the session that owns the ticket; each of the others has a session
/// of its own.
const WHO: [(&str, Option<(&str, &str)>); 4] = [
    ("owner", None),
    ("other", Some(("digest", "bob"))),
    ("stranger", Some(("digest", "eve"))),
    ("super", Some(("super", ""))),
];

type Cells = [Result<(), Error>; 4];

const YES: Result<(), Error> = Ok(());
const NO: Result<(), Error> = Err(Error::NoAuth);
/// Row of an operation that the ACL guards: allowed for the identity with permissions and for the
/// super user.
const BY_ACL: Cells = [NO, YES, NO, YES];
/// Row of an operation that is allowed for the session that owns the ticket, and for the super
/// user.
const OWN: Cells = [YES, NO, NO, YES];
/// Row of an operation that is allowed only for the session that owns the ticket; the other clients
/// are not its owner.
const SESSION: Cells = [YES, Err(Error::NotOwner), Err(Error::NotOwner), Err(Error::NotOwner)];
/// Row of an operation that no ACL guards, because only a leader proposes it, or because it
/// concerns only the requesting client.
const ANY: Cells = [YES; 4];
const NOBODY: Cells = [NO; 4];
const MALFORMED: Cells = [Err(Error::BadArguments); 4];

/// A state with the directory `/vault`, which only the identity bob may use, and in it a lock that
/// the first session holds.
struct World {
    state: State,
    zxid: u64,
    mode: LockMode,
    multi: bool,
    ticket: ZPath,
    /// Tickets of a managed lock: the holder and a waiter.
    managed: [ZPath; 2],
}

fn path(text: &str) -> ZPath {
    ZPath::parse(text).unwrap()
}

fn identity(scheme: &str, id: &str) -> Identity {
    Identity { scheme: scheme.into(), id: id.into() }
}

fn create(at: &str, mode: CreateMode, acl: Vec<Acl>) -> ZnodeOp {
    let at = path(at);
    ZnodeOp::Create(Create { mode, acl, ..Create::new(at.parent().unwrap(), at.name()) })
}

fn acquire(lock: &str, mode: LockMode) -> Acquire {
    Acquire { label: "label".into(), ..Acquire::new(path(lock), mode) }
}

fn all_of(mode: LockMode) -> AcquireAll {
    // An election cannot be a part of a multi-lock, so exclusive replaces the mode latch.
    let mode = if mode == LockMode::Latch { LockMode::Exclusive } else { mode };
    AcquireAll::new(vec![(path("/vault/l"), mode), (path("/vault/m"), LockMode::Exclusive)])
}

impl World {
    fn new(mode: LockMode, multi: bool) -> World {
        let ticket = ZPath::root();
        let mut world =
            World { state: State::default(), zxid: 0, mode, multi, managed: [ticket.clone(), ticket.clone()], ticket };
        for _ in WHO {
            world.must(0, open(1, 10_000));
        }
        let bobs = vec![Acl { perms: znode::ALL, scheme: "digest".into(), id: "bob".into() }];
        let open = Acl::open;
        let znodes = [
            create("/vault", CreateMode::Persistent, bobs),
            create("/vault/z", CreateMode::Persistent, Vec::new()),
            create("/vault/member", CreateMode::Ephemeral, Vec::new()),
            create("/zookeeper", CreateMode::Persistent, open()),
            create("/zookeeper/quota", CreateMode::Persistent, open()),
            create("/zookeeper/config", CreateMode::Persistent, open()),
            create("/zookeeper/quota/vault", CreateMode::Persistent, open()),
            create("/zookeeper/quota/vault/zookeeper_limits", CreateMode::Persistent, open()),
        ];
        for op in znodes {
            world.must(1, Op::Znode(op));
        }
        world.ticket =
            world.enter(if multi { Op::AcquireAll(all_of(mode)) } else { Op::Acquire(acquire("/vault/l", mode)) });
        let settings = LockSettings { managed: true, ..LockSettings::default() };
        world.must(1, Op::SetLock { lock: path("/vault/managed"), settings });
        world.managed = [(); 2].map(|()| world.enter(Op::Acquire(acquire("/vault/managed", LockMode::Exclusive))));
        world
    }

    fn enter(&mut self, op: Op) -> ZPath {
        let Reply::Acquired { ticket, .. } = self.must(1, op) else { panic!("not an acquire") };
        ticket
    }

    /// Applies an operation in a session, with the identities of the super user and of a cluster's
    /// node. Panics if the operation is refused.
    fn must(&mut self, session: u64, op: Op) -> Reply {
        let all = vec![identity("super", ""), identity("keeper", "")];
        let reply = self.apply(session, all, None, op.clone());
        self.state.check_invariants().unwrap();
        reply.unwrap_or_else(|error| panic!("{op:?}: {error}"))
    }

    fn apply(
        &mut self,
        session: u64,
        identities: Vec<Identity>,
        turn: Option<WriteTurn>,
        op: Op,
    ) -> Result<Reply, Error> {
        self.zxid += 1;
        let credential = Credential { session: SessionId(session), secret_hash: [1; 16] };
        let key = RequestKey(u128::from(self.zxid).to_be_bytes());
        let mut request = Request { identities, turn, attempt: Attempt(1), ..Request::new(op) };
        if session > 0 {
            (request.credential, request.key) = (Some(credential), Some(key));
        }
        let at = LogPosition { term: Term(1), zxid: Zxid(self.zxid) };
        let applied = self.state.apply(at, Txn { proven: false, time_ms: self.zxid, request });
        applied.reply.map_err(|refusal| refusal.error)
    }

    /// Row of an operation: its results for each of the clients in [`WHO`].
    fn ask(&self, turn: Option<WriteTurn>, op: &Op) -> Cells {
        let mut sessions = 1..;
        WHO.map(|(_, proven)| {
            let identities: Vec<_> = proven.into_iter().map(|(scheme, id)| identity(scheme, id)).collect();
            let mut world = World {
                state: self.state.clone(),
                ticket: self.ticket.clone(),
                managed: self.managed.clone(),
                ..*self
            };
            world.apply(sessions.next().unwrap(), identities, turn, op.clone()).map(drop)
        })
    }

    fn settings(&self) -> LockSettings {
        let limit = if let LockMode::Lease { limit, .. } = self.mode { Some(limit) } else { None };
        LockSettings { limit, managed: false, waiters_max: Some(7) }
    }
}

/// The mode after `mode` in the order in which the tests go through all modes; `None` after the
/// last.
fn mode_after(mode: LockMode) -> Option<LockMode> {
    match mode {
        LockMode::Exclusive => Some(LockMode::Read),
        LockMode::Read => Some(LockMode::Write),
        LockMode::Write => Some(LockMode::Latch),
        LockMode::Latch => Some(LockMode::Lease { permits: 1, limit: 2 }),
        LockMode::Lease { .. } => None,
    }
}

fn create_mode_after(mode: CreateMode) -> Option<CreateMode> {
    match mode {
        CreateMode::Persistent => Some(CreateMode::Ephemeral),
        CreateMode::Ephemeral => Some(CreateMode::PersistentSequential),
        CreateMode::PersistentSequential => Some(CreateMode::EphemeralSequential),
        CreateMode::EphemeralSequential => Some(CreateMode::Container),
        CreateMode::Container => Some(CreateMode::PersistentTtl { ttl_ms: 1 }),
        CreateMode::PersistentTtl { .. } => Some(CreateMode::PersistentSequentialTtl { ttl_ms: 1 }),
        CreateMode::PersistentSequentialTtl { .. } => None,
    }
}

/// Operations of one kind, each with its row of the table. A kind has one operation for each target
/// that it may have, such as a lock or a ticket.
type Rows<T> = Vec<(T, Cells)>;

/// The rows for the kind of znode operation after that of `op`, or for the first kind if `op` is
/// `None`. The tests go through all kinds in this order.
fn znode_rows_after(world: &World, op: Option<&ZnodeOp>) -> Rows<ZnodeOp> {
    let (ticket, version) = (&world.ticket, -1);
    let set = |at: &ZPath, data: &str| ZnodeOp::SetData { path: at.clone(), data: data.into(), version };
    let delete = |at: &ZPath| ZnodeOp::Delete { path: at.clone(), version };
    let check = |at: &ZPath| ZnodeOp::Check { path: at.clone(), version };
    let limits = path("/zookeeper/quota/vault/zookeeper_limits");
    let (plain, config, system) = (path("/vault/z"), path("/zookeeper/config"), path("/zookeeper"));
    match op {
        None => {
            let modes = std::iter::successors(Some(CreateMode::Persistent), |mode| create_mode_after(*mode));
            let news = modes
                .flat_map(|mode| [create("/vault/new", mode, Acl::open()), create("/vault/new", mode, Vec::new())]);
            let mut rows: Rows<ZnodeOp> = news.map(|op| (op, BY_ACL)).collect();
            for name in ["zookeeper_stats", "below"] {
                let at = format!("/zookeeper/quota/vault/{name}");
                rows.push((create(&at, CreateMode::Persistent, Acl::open()), BY_ACL));
                rows.push((create(&at, CreateMode::Ephemeral, Acl::open()), NOBODY));
            }
            for at in ["/zookeeper/new", "/zookeeper/config/new", "/zookeeper/quota/zookeeper"] {
                rows.push((create(at, CreateMode::Persistent, Acl::open()), NOBODY));
            }
            rows
        }
        Some(ZnodeOp::Create(_)) => vec![
            (delete(&plain), BY_ACL),
            // Its own session may not delete the ticket either: it releases the ticket instead.
            (delete(ticket), BY_ACL),
            (delete(&path("/vault/member")), BY_ACL),
            (delete(&limits), BY_ACL),
            (delete(&config), MALFORMED),
            (delete(&system), MALFORMED),
        ],
        Some(ZnodeOp::Delete { .. }) => vec![
            (set(&plain, "x"), BY_ACL),
            (set(ticket, "x"), OWN),
            (set(ticket, "__REVOKE__"), [YES, YES, NO, YES]),
            (set(ticket, "unlock"), [YES, YES, NO, YES]),
            (set(&path("/vault/member"), "x"), BY_ACL),
            (set(&limits, "count=1"), BY_ACL),
            (set(&config, "x"), NOBODY),
            (set(&system, "x"), NOBODY),
        ],
        Some(ZnodeOp::SetData { .. }) => {
            vec![(check(&plain), BY_ACL), (check(ticket), BY_ACL), (check(&limits), BY_ACL), (check(&config), ANY)]
        }
        Some(ZnodeOp::Check { .. }) => Vec::new(),
    }
}

fn znode_rows(world: &World) -> Rows<ZnodeOp> {
    let mut rows = znode_rows_after(world, None);
    loop {
        let more = znode_rows_after(world, rows.last().map(|(op, _)| op));
        if more.is_empty() {
            return rows;
        }
        rows.extend(more);
    }
}

fn acl_rows(world: &World) -> Vec<(ZPath, Cells)> {
    vec![
        (path("/vault"), BY_ACL),
        (path("/vault/z"), BY_ACL),
        (path("/vault/member"), BY_ACL),
        (world.ticket.clone(), OWN),
        (path("/zookeeper/config"), NOBODY),
        (path("/zookeeper/quota/vault/zookeeper_limits"), NOBODY),
    ]
}

fn revoke_rows(ticket: ZPath) -> Rows<Op> {
    vec![
        (Op::Revoke { path: ticket.clone(), deadline_ms: None }, BY_ACL),
        (Op::Revoke { path: ticket, deadline_ms: Some(0) }, BY_ACL),
        (Op::Revoke { path: path("/vault/l"), deadline_ms: Some(9) }, BY_ACL),
        (Op::Revoke { path: path("/vault/z"), deadline_ms: None }, BY_ACL),
        (Op::Revoke { path: path("/zookeeper"), deadline_ms: None }, NOBODY),
    ]
}

fn open(secret: u8, timeout_ms: u32) -> Op {
    let (label, client) = (String::new(), znode::ClientInfo::default());
    Op::OpenSession { secret_hash: [secret; 16], timeout_ms, label, address: None, client }
}

/// The rows for the kind of operation after that of `op`, or for the first kind if `op` is `None`.
/// The tests go through all kinds in this order.
fn rows_after(world: &World, op: Option<&Op>) -> Rows<Op> {
    let (ticket, mode) = (world.ticket.clone(), world.mode);
    match op {
        None => vec![(open(2, 1), ANY)],
        Some(Op::OpenSession { .. }) => {
            let no = Err(Error::AuthFailed);
            vec![(Op::CloseSession { session: SessionId(1) }, [YES, no, no, no])]
        }
        Some(Op::CloseSession { .. }) => {
            vec![(Op::ExpireSessions { sessions: vec![SessionId(1)], term: Term(1) }, ANY)]
        }
        Some(Op::ExpireSessions { .. }) => {
            znode_rows(world).into_iter().map(|(op, cells)| (Op::Znode(op), cells)).collect()
        }
        Some(Op::Znode(_)) => znode_rows(world).into_iter().map(|(op, cells)| (Op::Multi(vec![op]), cells)).collect(),
        Some(Op::Multi(_)) => {
            let set = |path| Op::SetAcl { path, acl: Acl::open(), version: -1 };
            acl_rows(world).into_iter().map(|(path, cells)| (set(path), cells)).collect()
        }
        Some(Op::SetAcl { .. }) => {
            let locks = [("/vault/l", BY_ACL), ("/vault/new/lock", BY_ACL), ("/zookeeper/lock", NOBODY)];
            let mut rows: Rows<Op> = locks.map(|(lock, cells)| (Op::Acquire(acquire(lock, mode)), cells)).into();
            let urgent = Acquire { priority: 3, ..acquire("/vault/managed", LockMode::Exclusive) };
            rows.push((Op::Acquire(urgent), BY_ACL));
            rows
        }
        Some(Op::Acquire(_)) => {
            let no = Err(Error::NotHolder);
            let held = HeldTicket { lock: path("/vault/l"), mode: None, token: None, owner: None };
            // This ephemeral znode is a simple lock (without a queue), or the member of a group.
            let member = path("/vault/member").into();
            let rows = [(ticket.into(), SESSION), (member, SESSION), (TicketRef::Held(held), [YES, no, no, no])];
            rows.map(|(ticket, cells)| (Op::Release { ticket }, cells)).into()
        }
        Some(Op::Release { .. }) => vec![(Op::Withdraw { ticket, attempt: Attempt(1), if_waiting: false }, SESSION)],
        Some(Op::Withdraw { .. }) => vec![(Op::Reap { candidates: Vec::new() }, ANY)],
        Some(Op::Reap { .. }) => vec![(Op::SetLimits(Limits::default()), ANY)],
        Some(Op::SetLimits(_)) => {
            let founding = znode::Founding { uuid: znode::ClusterUuid([7; 16]), zxid_base: 0, group: 0 };
            vec![(Op::Scrub { after: None }, ANY), (Op::Found(founding), ANY)]
        }
        // The cluster is not founded here. The server for clients checks the requester, not the
        // state machine.
        Some(Op::Found(_)) => vec![(Op::SetLevel { level: 2 }, MALFORMED)],
        Some(Op::SetLevel { .. }) => vec![(Op::NoteRemoved { node_id: 1 }, MALFORMED)],
        Some(Op::NoteRemoved { .. }) => revoke_rows(ticket),
        // At level 1 the operation is refused for any client.
        #[cfg(feature = "next-level")]
        Some(Op::SetNote { .. }) => Vec::new(),
        Some(Op::Revoke { .. }) => {
            // The owner may not enter a queue here, so the upgrade of its own read ticket is
            // refused.
            let own = if mode == LockMode::Read { NO } else { Err(Error::BadArguments) };
            let cells = [own, SESSION[1], SESSION[2], SESSION[3]];
            vec![(Op::Upgrade(Upgrade { ticket, label: String::new() }), cells)]
        }
        Some(Op::Upgrade(_)) => vec![(Op::AttachSession { connection: 9, timeout_ms: 1 }, ANY)],
        Some(Op::AttachSession { .. }) => vec![(Op::AcquireAll(all_of(mode)), BY_ACL)],
        Some(Op::AcquireAll(_)) => vec![
            (Op::SetLock { lock: path("/vault/l"), settings: world.settings() }, BY_ACL),
            (Op::SetLock { lock: path("/vault/new"), settings: world.settings() }, BY_ACL),
            (Op::SetLock { lock: path("/zookeeper/new"), settings: world.settings() }, NOBODY),
        ],
        Some(Op::SetLock { .. }) => {
            let [ticket, to] = world.managed.clone();
            vec![(Op::HandOver { ticket, to }, SESSION)]
        }
        Some(Op::HandOver { .. } | Op::Scrub { .. }) => Vec::new(),
    }
}

fn check(world: &World) -> usize {
    let mut rows = rows_after(world, None);
    let mut cells = 0;
    while let Some((last, _)) = rows.last().cloned() {
        for (op, expected) in rows {
            // Once without ordered writes, and once as the first write of a connection with ordered
            // writes.
            for turn in [None, Some(WriteTurn { connection: 0, number: 1 })] {
                let found = world.ask(turn, &op);
                for ((who, _), (found, expected)) in WHO.iter().zip(found.iter().zip(&expected)) {
                    assert_eq!(found, expected, "{who}, {:?}, multi {}, {turn:?}: {op:?}", world.mode, world.multi);
                    cells += 1;
                }
            }
        }
        rows = rows_after(world, Some(&last));
    }
    cells
}

#[test]
fn every_operation_is_for_those_whom_the_table_names() {
    let modes: Vec<LockMode> = std::iter::successors(Some(LockMode::Exclusive), |mode| mode_after(*mode)).collect();
    let mut cells = 0;
    for mode in modes {
        for multi in [false, true] {
            // An election cannot be a part of a multi-lock.
            if !(multi && mode == LockMode::Latch) {
                cells += check(&World::new(mode, multi));
            }
        }
    }
    assert!(cells > 5_000, "only {cells} cells");
}

/// Covers the functions of the state with which the servers decide what a client may read.
#[test]
fn every_reading_is_for_those_whom_the_table_names() {
    let mut world = World::new(LockMode::Exclusive, false);
    world.must(1, Op::Release { ticket: world.ticket.clone().into() });
    type Reading = fn(&State, &ZPath, &[Identity]) -> bool;
    let readings: [(&str, Reading, &str); 6] = [
        ("queue, settings, tickets and watches", State::may_read, "/vault/l"),
        ("history", lock::may_read_history, "/vault/l"),
        ("names of a session's ephemerals", State::may_read_name, "/vault/member"),
        ("limits of a quota", State::may_read, "/zookeeper/quota/vault/zookeeper_limits"),
        ("names of quotas", State::may_read_name, "/zookeeper/quota/vault/zookeeper_limits"),
        ("history without its directory", lock::may_read_history, "/vault/l"),
    ];
    for (what, reading, at) in readings {
        if what.ends_with("directory") {
            world.must(1, Op::Znode(ZnodeOp::Delete { path: path(at), version: -1 }));
        }
        let found = WHO.map(|(_, proven)| {
            let identities: Vec<_> = proven.into_iter().map(|(scheme, id)| identity(scheme, id)).collect();
            reading(&world.state, &path(at), &identities)
        });
        assert_eq!(found, [false, true, false, true], "{what}");
    }
    assert!(world.state.may_read(&path("/zookeeper/config"), &[]));
}

// Data that Curator or ZooKeeper's recipe writes into a lock node asks its holder to release.
#[test]
fn one_permission_each_asks_a_holder_to_give_up_or_does_not() {
    let [read, write, create, delete, admin] = [0, 1, 2, 3, 4].map(|bit| 1 << bit);
    for (perms, expected) in [(read, NO), (write, NO), (create, NO), (delete, YES), (admin, YES)] {
        for word in ["__REVOKE__", "unlock"] {
            let mut world = World::new(LockMode::Exclusive, false);
            let acl = vec![Acl { perms, scheme: "digest".into(), id: "eve".into() }];
            world.must(1, Op::SetAcl { path: path("/vault/l"), acl, version: -1 });
            let op = ZnodeOp::SetData { path: world.ticket.clone(), data: word.into(), version: -1 };
            assert_eq!(world.ask(None, &Op::Znode(op))[2], expected, "{perms}, {word}");
        }
    }
}
