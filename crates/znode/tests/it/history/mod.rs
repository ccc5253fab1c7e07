//! Random sequences of log entries (histories). Their paths, sessions and keys are few, so requests
//! often concern the same ones.

mod rare;

use std::net::IpAddr;

use fastrand::Rng;
use znode::{
    Acl, Acquire, AcquireAll, Attempt, ClientInfo, ClusterUuid, Create, CreateMode, Credential, FencingToken, Founding,
    HeldTicket, Identity, Limits, LockGuard, LockMode, LockSettings, LogPosition, Op, Policy, ReapCandidate, Request,
    RequestKey, SessionId, Term, TicketRef, Txn, WriteTurn, ZPath, ZnodeOp, Zxid,
};

use crate::model::{Model, number, ticket_name, zpath};

const PLACES: [&str; 9] = ["/", "/a", "/a/b", "/a/b/c", "/l", "/l/m", "/d", "/d/l", "/x"];
const LOCKS: [&str; 4] = ["/l", "/l/m", "/d/l", "/a"];
/// A path that is a lock and, by its name, also a ticket of the lock `/l`.
const NUMBERED: &str = "/l/n-0000000001";
const NAMES: [&str; 13] = [
    "_c_2-lease-",
    "a",
    "b",
    "c",
    "l",
    "m",
    "x",
    "s-",
    "_c_1-lock-",
    "read-",
    "w-__WRIT__",
    "r-__READ__",
    "n-0000000001",
];

/// Generator of one history: a sequence of log entries that depends on a seed.
pub(crate) struct History {
    rng: Rng,
    at: LogPosition,
    time_ms: u64,
    attempts: u64,
    /// Every session so far, open or ended.
    sessions: Vec<SessionId>,
    /// The requests that had an idempotency key, for retries.
    keyed: Vec<Request>,
    /// True if most of the history's requests are operations on locks, such as acquires.
    busy: bool,
}

impl History {
    pub(crate) fn new(seed: u64) -> History {
        let at = LogPosition { term: Term(1), zxid: Zxid(0) };
        let rng = Rng::with_seed(seed);
        History { rng, at, time_ms: 1000, attempts: 0, sessions: Vec::new(), keyed: Vec::new(), busy: false }
    }

    /// A history of clients that contend for a few locks and seldom send other requests.
    pub(crate) fn busy(seed: u64) -> History {
        History { busy: true, ..History::new(seed) }
    }

    /// Small limits, which requests often reach, or the default limits.
    pub(crate) fn limits(&mut self) -> Limits {
        let small = |rng: &mut Rng, range: std::ops::Range<u32>| rng.u32(range);
        let rng = &mut self.rng;
        let mut limits = Limits { container_idle_ms: small(rng, 0..3000), ..Limits::default() };
        if self.busy {
            limits.holds_max = small(rng, 0..4);
        } else if rng.bool() {
            limits = Limits {
                data_bytes_max: small(rng, 0..12),
                path_bytes_max: small(rng, 70..160),
                path_depth_max: small(rng, 1..5),
                name_bytes_max: small(rng, 70..90),
                label_bytes_max: small(rng, 0..8),
                children_max: small(rng, 0..8),
                waiters_max: small(rng, 0..5),
                znodes_max: u64::from(small(rng, 1..20)),
                state_bytes_max: u64::MAX,
                sessions_max: small(rng, 1..5),
                sessions_per_address_max: 1,
                ephemerals_max: small(rng, 0..5),
                ops_max: small(rng, 0..5),
                // The model computes neither cost nor weight, so the limits on them are never
                // reached.
                entry_cost_max: u32::MAX,
                acl_entries_max: small(rng, 0..3),
                holds_max: small(rng, 0..3),
                replies_max: small(rng, 0..5),
                used_keys_max: small(rng, 0..5),
                session_timeout_min_ms: small(rng, 0..4000),
                session_timeout_max_ms: small(rng, 0..4000),
                lock_delay_max_ms: small(rng, 0..4000),
                container_idle_ms: small(rng, 0..3000),
                history_max: rng.u32(0..5),
                histories_max: rng.u32(0..5),
                ended_sessions_max: rng.u32(0..4),
                ended_sessions_ms: rng.u32(0..9000),
                deadlock_looks_max: if rng.bool() { 0 } else { 10_000 },
                subtree_bytes_max: u64::MAX,
            };
        }
        limits
    }

    /// The next entry of the log.
    pub(crate) fn next(&mut self, model: &Model) -> (LogPosition, Txn) {
        self.at.zxid.0 += self.rng.u64(1..3);
        self.at.term.0 += u64::from(self.rng.u8(..30) == 0);
        // The clocks of leaders differ, so the time of entries sometimes goes back.
        self.time_ms = (self.time_ms + self.rng.u64(0..900)).saturating_sub(u64::from(self.rng.u8(..10) == 0) * 2000);
        let request = if !self.keyed.is_empty() && self.rng.u8(..8) == 0 { self.retry() } else { self.fresh(model) };
        let txn = self.proven(Txn { proven: false, time_ms: self.time_ms, request });
        (self.at, txn)
    }

    /// Repeats an earlier request that had an idempotency key, sometimes with another guard.
    fn retry(&mut self) -> Request {
        let index = self.rng.usize(..self.keyed.len());
        let mut request = self.keyed[index].clone();
        if has_attempts(&request.op) {
            request.attempt = self.attempt();
        }
        if self.rng.u8(..10) == 0 {
            request.guard = Some(LockGuard { lock: zpath("/other"), token: FencingToken(7) });
        }
        request
    }

    fn fresh(&mut self, model: &Model) -> Request {
        if self.sessions.is_empty() || self.rng.u8(..25) == 0 {
            self.sessions.push(SessionId(self.at.zxid.0));
            let label = self.word();
            // About half of the sessions have no address, and count for no limit of sessions per
            // address.
            let zxid = self.at.zxid.0;
            let address = zxid.is_multiple_of(2).then(|| [192, 0, 2, (zxid % 3) as u8].into());
            let timeout_ms = self.rng.u32(0..6000);
            let client = ClientInfo {
                host: self.word(),
                pid: self.rng.bool().then_some(7),
                program: self.word(),
                address: self.from(),
            };
            return Request::new(Op::OpenSession { secret_hash: [1; 16], timeout_ms, label, address, client });
        }
        let session = (self.rng.u8(..6) > 0).then(|| self.a_session(model));
        let secret = if self.rng.u8(..40) == 0 { 2 } else { 1 };
        let credential = session.map(|session| Credential { session, secret_hash: [secret; 16] });
        let op = self.op(model, session);
        let (op, turn) = if self.rng.u8(..4) == 0 { self.in_turn(op, model, session) } else { (op, None) };
        let guard = (self.rng.u8(..12) == 0).then(|| self.guard(model));
        let address = self.from();
        let mut request = Request { credential, guard, address, turn, ..Request::new(op) };
        if has_attempts(&request.op) {
            request.attempt = self.attempt();
        }
        if self.rng.u8(..4) == 0 {
            request.identities = self.identities();
        }
        if has_attempts(&request.op) || (turn.is_none() && self.rng.bool()) {
            request.key = Some(self.key());
            self.keyed.push(request.clone());
        }
        request
    }

    fn attempt(&mut self) -> Attempt {
        self.attempts += 1;
        Attempt(self.attempts)
    }

    fn op(&mut self, model: &Model, session: Option<SessionId>) -> Op {
        if self.busy && self.rng.u8(..12) > 0 {
            return self.lock_op(model);
        }
        match self.rng.u8(..100) {
            0..3 => Op::CloseSession { session: session.unwrap_or(SessionId(1)) },
            3..7 => {
                let stale = u64::from(self.rng.u8(..5) == 0);
                let sessions = (0..self.rng.u8(..4)).map(|_| self.a_session(model)).collect();
                Op::ExpireSessions { sessions, term: Term(self.at.term.0 + stale) }
            }
            7..35 => Op::Znode(self.znode_op(model)),
            35..42 => Op::Multi((0..self.rng.u8(..4)).map(|_| self.znode_op(model)).collect()),
            42..44 => {
                let acl = self.acl();
                Op::SetAcl { path: self.place(model), acl, version: self.rng.i32(-1..2) }
            }
            44..66 => Op::Acquire(self.acquire()),
            66..69 => self.acquire_all_as(),
            69..72 if self.rng.u8(..3) == 0 => self.rare_op(model),
            69..72 => self.upgrade(model),
            72..79 => Op::Release { ticket: self.ticket(model).into() },
            79..82 => self.release_held(model),
            82..92 => {
                let back = self.rng.u64(0..6);
                let attempt = Attempt(self.attempts.saturating_sub(back));
                Op::Withdraw { ticket: self.ticket(model), attempt, if_waiting: self.rng.bool() }
            }
            92..94 => {
                let deadline_ms = [None, Some(0), Some(500), Some(2000)][self.rng.usize(..4)];
                Op::Revoke { path: self.ticket(model), deadline_ms }
            }
            94..97 => Op::Reap { candidates: self.candidates(model) },
            97 if self.rng.bool() => self.acquire_urgent(),
            97 => self.set_lock(),
            98 => self.hand_over(model),
            _ if self.rng.u8(..4) == 0 => self.of_cluster(),
            _ => Op::SetLimits(self.limits()),
        }
    }

    /// An operation on the cluster itself: founding, format level, or removal of a node.
    fn of_cluster(&mut self) -> Op {
        match self.rng.u8(..4) {
            0 => {
                let zxid_base = [0, u64::MAX][usize::from(self.rng.u8(..4) == 0)];
                Op::Found(Founding { uuid: ClusterUuid([self.rng.u8(..); 16]), zxid_base, group: 0 })
            }
            1 => Op::SetLevel { level: self.rng.u16(..2) },
            _ => Op::NoteRemoved { node_id: self.rng.u64(..4) },
        }
    }

    /// Makes an operation the next write of its session's connection. One write of twelve has
    /// another connection instead, and one a random number. For a `Reap`, returns an operation that
    /// attaches the session to a connection.
    fn in_turn(&mut self, op: Op, model: &Model, session: Option<SessionId>) -> (Op, Option<WriteTurn>) {
        if matches!(op, Op::Reap { .. }) {
            let (connection, timeout_ms) = (self.rng.u64(0..4), self.rng.u32(0..6000));
            return (Op::AttachSession { connection, timeout_ms }, None);
        }
        let attached = session.and_then(|id| model.session(id)).map_or((0, 0), |one| (one.connection, one.turns));
        let odd = self.rng.u8(..12);
        let connection = if odd == 0 { attached.0 + 1 } else { attached.0 };
        let number = if odd == 1 { self.rng.u64(0..9) } else { attached.1 + 1 };
        (op, Some(WriteTurn { connection, number }))
    }

    fn acquire_urgent(&mut self) -> Op {
        Op::Acquire(Acquire { priority: self.rng.u32(0..3), ..self.acquire() })
    }

    /// A random client address for one of four requests, `None` for the others.
    fn from(&mut self) -> Option<IpAddr> {
        (self.rng.u8(..4) == 0).then(|| [192, 0, 2, self.rng.u8(..3)].into())
    }

    /// Releases a ticket that is named by its lock. Each of mode, token and owner is given in one
    /// of three requests.
    fn release_held(&mut self, model: &Model) -> Op {
        let mode = (self.rng.u8(..3) == 0).then(|| self.mode());
        let token = (self.rng.u8(..3) == 0).then(|| self.guard(model).token);
        let owner = (self.rng.u8(..3) == 0).then(|| self.pick(&["", "o"]).into());
        let held = HeldTicket { lock: zpath(self.pick(&LOCKS)), mode, token, owner };
        let held = if self.rng.u8(..3) == 0 { self.simple(model, held) } else { held };
        Op::Release { ticket: TicketRef::Held(held) }
    }

    fn identities(&mut self) -> Vec<Identity> {
        let identity = |scheme: &str| Identity { scheme: scheme.into(), id: "bob".into() };
        match self.rng.u8(..10) {
            0..5 => Vec::new(),
            5..9 => vec![identity("digest")],
            _ => vec![identity("super")],
        }
    }

    fn lock_op(&mut self, model: &Model) -> Op {
        // Some settings need an empty queue, so settings come early in a history.
        if self.at.zxid.0 < 20 && self.rng.u8(..4) == 0 {
            return self.set_lock();
        }
        if self.rng.u8(..5) == 0 {
            return self.rare_op(model);
        }
        match self.rng.u8(..100) {
            0..30 => Op::Acquire(self.acquire()),
            30..45 => self.acquire_all_as(),
            45..50 => self.acquire_urgent(),
            50 => Op::Znode(ZnodeOp::Create(self.create(model))),
            51 => self.set_lock(),
            96.. => self.hand_over(model),
            52..55 => {
                let back = self.rng.u64(0..6);
                let attempt = Attempt(self.attempts.saturating_sub(back));
                Op::Withdraw { ticket: self.ticket(model), attempt, if_waiting: self.rng.bool() }
            }
            55..60 => self.release_held(model),
            _ => Op::Release { ticket: self.ticket(model).into() },
        }
    }

    fn set_lock(&mut self) -> Op {
        let limit = (self.rng.u8(..5) == 0).then(|| self.rng.u32(0..4));
        let waiters_max = self.rng.bool().then(|| self.rng.u32(0..3));
        let settings = LockSettings { limit, managed: self.rng.u8(..4) > 0, waiters_max };
        let lock = match self.rng.u8(..20) {
            0 => "/",
            1 => NUMBERED,
            _ => self.pick(&LOCKS),
        };
        Op::SetLock { lock: zpath(lock), settings }
    }

    fn znode_op(&mut self, model: &Model) -> ZnodeOp {
        let version = if self.rng.bool() { -1 } else { self.rng.i32(-2..3) };
        match self.rng.u8(..10) {
            0..5 => ZnodeOp::Create(self.create(model)),
            5..7 => ZnodeOp::Delete { path: self.place(model), version },
            7..9 => ZnodeOp::SetData { path: self.place(model), data: self.data(), version },
            _ => ZnodeOp::Check { path: self.place(model), version },
        }
    }

    fn create(&mut self, model: &Model) -> Create {
        let ttl_ms = [0, 1, 500, 2000, 1 << 40][self.rng.usize(..5)];
        let mode = match self.rng.u8(..10) {
            0..3 => CreateMode::Persistent,
            3 => CreateMode::Ephemeral,
            4 => CreateMode::PersistentSequential,
            5..7 => CreateMode::EphemeralSequential,
            7 => CreateMode::Container,
            8 => CreateMode::PersistentTtl { ttl_ms },
            _ => CreateMode::PersistentSequentialTtl { ttl_ms },
        };
        let mut name = self.pick(&NAMES).to_string();
        match self.rng.u8(..12) {
            0 => name += "0000000000",
            1 => name = "..".into(),
            2 => {
                let key = RequestKey([self.rng.u8(..12); 16]);
                name = ticket_name(LockMode::Exclusive, key, self.rng.u8(..3).into());
            }
            _ => {}
        }
        let parent = if self.rng.u8(..4) == 0 { self.place(model) } else { zpath(self.pick(&PLACES)) };
        let (data, acl) = (self.word().into_bytes(), self.acl());
        let new = Create { data, mode, acl, ..Create::new(parent, name) };
        if self.rng.bool() { self.ensured(model, new) } else { new }
    }

    fn acquire(&mut self) -> Acquire {
        let lock = zpath(match self.rng.u8(..30) {
            0 => "/",
            1 => NUMBERED,
            _ => self.pick(&LOCKS),
        });
        let mode = self.mode();
        Acquire {
            owner: self.pick(&["", "o", "o", "p"]).into(),
            label: if self.rng.bool() { String::new() } else { self.word() },
            lock_delay_ms: [0, 0, 1000, 5000][self.rng.usize(..4)],
            keyless: self.rng.u8(..4) > 0,
            ..Acquire::new(lock, mode)
        }
    }

    fn mode(&mut self) -> LockMode {
        let (permits, limit) = (
            self.rng.u32(0..4),
            match self.rng.u8(..10) {
                0 => 2,
                1 => 0,
                _ => 3,
            },
        );
        match self.rng.u8(..14) {
            0..3 => LockMode::Exclusive,
            3..7 => LockMode::Read,
            7..11 => LockMode::Write,
            11 => LockMode::Latch,
            _ => LockMode::Lease { permits, limit },
        }
    }

    /// Acquires a multi-lock, often for an owner (a user of locks within the session). For an owner
    /// the locks are often `/l` and `/a`, so that the owner often acquires them again.
    fn acquire_all_as(&mut self) -> Op {
        let mut wish = self.acquire_all();
        wish.owner = self.pick(&["", "o", "o", "p"]).into();
        if !wish.owner.is_empty() && self.rng.bool() {
            let mode = if self.rng.bool() { LockMode::Read } else { LockMode::Exclusive };
            wish.parts = vec![(zpath("/l"), mode), (zpath("/a"), LockMode::Write)];
            if self.rng.bool() {
                wish.parts.reverse();
            }
        }
        Op::AcquireAll(wish)
    }

    fn acquire_all(&mut self) -> AcquireAll {
        let mut locks = LOCKS.to_vec();
        self.rng.shuffle(&mut locks);
        if self.rng.u8(..20) == 0 {
            locks[0] = ["/", "/l"][self.rng.usize(..2)];
        }
        let counts = if self.rng.u8(..10) == 0 { 0..5 } else { 2..4 };
        let count = self.rng.usize(counts);
        let parts = locks.into_iter().take(count).map(|lock| (zpath(lock), self.mode())).collect();
        AcquireAll {
            policy: if self.rng.bool() { Policy::Strict } else { Policy::Backfill },
            label: if self.rng.bool() { String::new() } else { self.word() },
            lock_delay_ms: [0, 0, 1000, 5000][self.rng.usize(..4)],
            ..AcquireAll::new(parts)
        }
    }

    fn acl(&mut self) -> Vec<Acl> {
        match self.rng.u8(..12) {
            0 => Vec::new(),
            1 => vec![Acl { perms: 0, scheme: "world".into(), id: "anyone".into() }],
            2 => vec![Acl { perms: self.rng.u32(1..64), scheme: "digest".into(), id: "bob".into() }; 2],
            _ => Acl::open(),
        }
    }

    fn guard(&mut self, model: &Model) -> LockGuard {
        let lock = self.pick(&LOCKS);
        let tokens: Vec<u64> = model.contenders(lock).iter().map(|path| model.token(path).0).collect();
        let token = if tokens.is_empty() { 3 } else { tokens[self.rng.usize(..tokens.len())] };
        LockGuard { lock: zpath(lock), token: FencingToken(token) }
    }

    fn candidates(&mut self, model: &Model) -> Vec<ReapCandidate> {
        let mut candidates = Vec::new();
        for (path, node) in &model.nodes {
            let due = model.due(path, self.time_ms.max(model.time_ms));
            if self.rng.u8(..10) < if due { 8 } else { 1 } && path != "/" {
                let other = u64::from(self.rng.u8(..10) == 0);
                candidates.push(ReapCandidate { path: zpath(path), czxid: Zxid(node.created.0.0 + other) });
            }
        }
        candidates
    }

    /// A path, mostly that of a lock node.
    fn ticket(&mut self, model: &Model) -> ZPath {
        let tickets: Vec<&String> = model.nodes.keys().filter(|path| number(path).is_some()).collect();
        match self.rng.u8(..8) {
            0 => self.place(model),
            _ if tickets.is_empty() => zpath("/l/gone-0000000000"),
            _ => zpath(tickets[self.rng.usize(..tickets.len())]),
        }
    }

    /// Hands a lock over. Both tickets are mostly tickets of managed locks (only there a hand-over
    /// is allowed), if there are such tickets.
    fn hand_over(&mut self, model: &Model) -> Op {
        let tickets: Vec<&String> = model.nodes.keys().filter(|path| model.is_of_managed(path)).collect();
        if tickets.is_empty() || self.rng.u8(..8) == 0 {
            return Op::HandOver { ticket: self.ticket(model), to: self.ticket(model) };
        }
        let [ticket, to] = [(); 2].map(|()| zpath(tickets[self.rng.usize(..tickets.len())]));
        Op::HandOver { ticket, to }
    }

    /// A path, mostly that of an existing znode.
    fn place(&mut self, model: &Model) -> ZPath {
        if self.rng.u8(..4) == 0 {
            return zpath(self.pick(&PLACES));
        }
        let index = self.rng.usize(..model.nodes.len());
        zpath(model.nodes.keys().nth(index).unwrap())
    }

    /// A session, mostly an open one.
    fn a_session(&mut self, model: &Model) -> SessionId {
        if model.sessions.is_empty() || self.rng.u8(..15) == 0 {
            return self.sessions[self.rng.usize(..self.sessions.len())];
        }
        model.sessions[self.rng.usize(..model.sessions.len())].id
    }

    /// An idempotency key: one of a few that are used again and again, or one of many.
    fn key(&mut self) -> RequestKey {
        let many = self.rng.u8(..4) > 0;
        RequestKey([if many { self.rng.u8(12..) } else { self.rng.u8(..12) }; 16])
    }

    fn word(&mut self) -> String {
        "word".repeat(self.rng.usize(..4))
    }

    /// Data for a znode: a random word, or a word that asks the holder to release.
    fn data(&mut self) -> Vec<u8> {
        let word = if self.rng.u8(..6) == 0 { self.pick(&["unlock", "__REVOKE__"]).into() } else { self.word() };
        word.into_bytes()
    }

    fn pick(&mut self, words: &[&'static str]) -> &'static str {
        words[self.rng.usize(..words.len())]
    }
}

fn has_attempts(op: &Op) -> bool {
    matches!(op, Op::Acquire(_) | Op::AcquireAll(_) | Op::Upgrade(_))
}
