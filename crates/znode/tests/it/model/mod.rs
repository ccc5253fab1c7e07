//! A second state machine, written to be as simple as possible: one sorted map of znodes by path,
//! one list of sessions, and no index. Each question is answered by looking at all znodes. It
//! shares the types of the crate and none of its code.

mod deadlock;
mod history;
mod keyless;
mod locks;
mod multilocks;
mod queue;
mod revoke;
mod sessions;
mod settings;
mod sights;
mod tree;
mod upgrade;

pub(crate) use locks::{contends, number, reads, ticket_name};

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use znode::lock::{EndedSession, EndedTicket, Grant, LockStatus, Revocation, TicketEnd};
use znode::{
    Acl, Attempt, ClientInfo, Credential, Error, Event, EventKind, Founding, Identity, Limits, LockGuard, LockMode,
    LockSettings, LogPosition, Op, Policy, READ, Refusal, Reply, Request, RequestKey, SessionId, Stat, Term, TicketRef,
    Txn, TxnOutcome, WriteTurn, ZPath, ZnodeOp, Zxid,
};

/// The reply or refusal of one request.
pub(crate) type Answer = Result<Reply, Refusal>;

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) last_zxid: Zxid,
    pub(crate) term: Term,
    pub(crate) time_ms: u64,
    pub(crate) limits: Limits,
    pub(crate) founding: Option<Founding>,
    /// Nodes that were removed, each with the zxid of its removal.
    pub(crate) removed: BTreeMap<u64, Zxid>,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) past: Vec<(String, EndedTicket)>,
    /// The ACL of each directory with a history, as it was at the newest end of a ticket. `None`
    /// where all clients could read the directory.
    history_readers: BTreeMap<String, Option<Vec<Acl>>>,
    pub(crate) ended: Vec<EndedSession>,
    revocations: BTreeMap<String, Revocation>,
    asking: Option<SessionId>,
    from: Option<IpAddr>,
    /// Sessions that the log entry being applied has ended.
    ending: Vec<Session>,
    end: Option<TicketEnd>,
    events: Vec<Event>,
    /// Identities that the client of the present request has proven.
    proven: Vec<Identity>,
    /// Attempt number of the present acquire.
    pub(crate) attempt: Attempt,
    /// Each multi-lock: its policy and its lock nodes.
    multis: Vec<(Policy, Vec<String>)>,
    /// Locks whose queues the log entry being applied has changed.
    changed: BTreeSet<String>,
}

/// Facts about a lock besides its tickets: settings, largest token, upgrade.
#[derive(Clone, Default)]
pub(crate) struct Queue {
    pub(crate) settings: LockSettings,
    /// The largest fencing token that was granted in the queue.
    pub(crate) top_token: u64,
    /// The write ticket of an upgrade and its read ticket; `None` for a read ticket that was
    /// removed.
    pub(crate) upgrade: Option<(String, Option<String>)>,
}

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) stay: Stay,
    pub(crate) data: Vec<u8>,
    pub(crate) acl: Vec<Acl>,
    pub(crate) created: (Zxid, u64),
    pub(crate) set: (Zxid, u64),
    pub(crate) children_changed: Zxid,
    pub(crate) emptied_ms: u64,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    pub(crate) children_created: u64,
    pub(crate) children_deleted: u64,
    pub(crate) lock: Option<LockNode>,
    /// Queue of a lock directory with tickets or settings; `None` for other znodes.
    pub(crate) queue: Option<Queue>,
    /// Grant of a ticket that holds its lock; `None` for other znodes.
    pub(crate) held: Option<Grant>,
    pub(crate) priority: u32,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Stay {
    Persistent,
    Session(SessionId),
    Container,
    Ttl(u64),
}

#[derive(Clone)]
pub(crate) struct LockNode {
    pub(crate) mode: LockMode,
    pub(crate) owner: String,
    pub(crate) delay_ms: u32,
    pub(crate) holds: Vec<(RequestKey, Vec<Attempt>)>,
    pub(crate) released: usize,
    pub(crate) keyless: bool,
    pub(crate) lingers_until_ms: Option<u64>,
}

#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) secret_hash: [u8; 16],
    pub(crate) timeout_ms: u32,
    pub(crate) label: String,
    pub(crate) opened_ms: u64,
    pub(crate) address: Option<IpAddr>,
    pub(crate) client: ClientInfo,
    pub(crate) connection: u64,
    pub(crate) turns: u64,
    /// Remembered requests with an idempotency key, oldest first.
    pub(crate) requests: Vec<RequestRecord>,
}

#[derive(Clone)]
pub(crate) struct RequestRecord {
    pub(crate) zxid: Zxid,
    pub(crate) key: RequestKey,
    /// The operation of the request and its guard.
    pub(crate) what: (Op, Option<LockGuard>),
    pub(crate) answer: Option<Answer>,
}

impl Model {
    pub(crate) fn new(limits: Limits) -> Model {
        let mut nodes = BTreeMap::new();
        nodes.insert("/".to_string(), Node::new(Stay::Persistent, Vec::new(), Acl::open(), Zxid(0), 0));
        let (last_zxid, term) = (Zxid(0), Term(0));
        Model {
            last_zxid,
            term,
            time_ms: 0,
            limits,
            founding: None,
            removed: BTreeMap::new(),
            nodes,
            sessions: Vec::new(),
            past: Vec::new(),
            history_readers: BTreeMap::new(),
            ended: Vec::new(),
            revocations: BTreeMap::new(),
            asking: None,
            from: None,
            ending: Vec::new(),
            end: None,
            events: Vec::new(),
            proven: Vec::new(),
            attempt: Attempt(0),
            multis: Vec::new(),
            changed: BTreeSet::new(),
        }
    }

    pub(crate) fn apply(&mut self, at: LogPosition, txn: Txn) -> TxnOutcome {
        self.last_zxid = at.zxid;
        self.term = at.term;
        self.time_ms = self.time_ms.max(txn.time_ms);
        self.events.clear();
        self.ending.clear();
        self.from = txn.request.address;
        let (zxid, reply) = self.request(txn.request, txn.proven);
        self.look_at_all();
        TxnOutcome { zxid, reply, events: std::mem::take(&mut self.events) }
    }

    fn request(&mut self, request: Request, proven: bool) -> (Zxid, Answer) {
        let now = self.last_zxid;
        (self.proven, self.attempt) = (request.identities.clone(), request.attempt);
        if let Some(credential) = request.credential
            && let Err(error) = self.prove(credential, proven)
        {
            return (now, Err(error.into()));
        }
        let session = request.credential.map(|credential| credential.session);
        let Some(key) = request.key else {
            return (now, self.guarded(&request, session));
        };
        let Some(id) = session else {
            return (now, Err(Error::SessionRequired.into()));
        };
        let what = (request.op.clone(), request.guard.clone());
        let record = self.session(id).unwrap().requests.iter().find(|record| record.key == key).cloned();
        if let Some(record) = record {
            if record.what != what {
                return (now, Err(Error::RequestKeyReused.into()));
            }
            let ticket = match (&request.op, &record.answer) {
                (Op::Acquire(_) | Op::AcquireAll(_) | Op::Upgrade(_), Some(Ok(Reply::Acquired { ticket, .. }))) => {
                    Some(ticket.as_str().to_owned())
                }
                (Op::Znode(ZnodeOp::Create(create)), Some(answer)) => {
                    let gone = self.gone_since(create, answer);
                    return gone.map_or_else(|| (record.zxid, answer.clone()), |gone| (now, gone));
                }
                (_, Some(answer)) => return (record.zxid, answer.clone()),
                (Op::Acquire(acquire), None) => self.counted_on(id, acquire, key),
                (Op::AcquireAll(wish), None) => self.counted_on_all(id, wish, key),
                (Op::Upgrade(upgrade), None) => self.upgraded_with(id, upgrade, key),
                (_, None) => None,
            };
            return match ticket {
                Some(ticket) => (now, self.stands(id, &ticket, key)),
                None => (now, Err(Error::RequestKeyEvicted.into())),
            };
        }
        let answer = self.guarded(&request, session);
        let (replies_max, keys_max) = (self.limits.replies_max as usize, self.limits.used_keys_max as usize);
        if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) {
            session.requests.push(RequestRecord { zxid: now, key, what, answer: Some(answer.clone()) });
            while session.requests.iter().filter(|record| record.answer.is_some()).count() > replies_max {
                session.requests.iter_mut().find(|record| record.answer.is_some()).unwrap().answer = None;
            }
            while session.requests.iter().filter(|record| record.answer.is_none()).count() > keys_max {
                let oldest = session.requests.iter().position(|record| record.answer.is_none()).unwrap();
                session.requests.remove(oldest);
            }
        }
        (now, answer)
    }

    fn of_cluster(&mut self, op: &Op) -> Answer {
        match op {
            Op::Found(founding) if founding.zxid_base <= 1 << 52 => self.founding = self.founding.or(Some(*founding)),
            Op::NoteRemoved { node_id } if self.founding.is_some() => {
                self.removed.entry(*node_id).or_insert(self.last_zxid);
            }
            // Level 1 is the only level here.
            _ => return Err(Error::BadArguments.into()),
        }
        Ok(Reply::Done)
    }

    fn guarded(&mut self, request: &Request, session: Option<SessionId>) -> Answer {
        if let Some(guard) = &request.guard {
            let lock = guard.lock.as_str();
            // A client that may not read the lock can use only its own ticket as guard.
            let seen = |node: &Node| {
                let own = matches!(node.stay, Stay::Session(owner) if Some(owner) == session);
                own || self.nodes.get(lock).is_none_or(|_| self.may(lock, READ))
            };
            let held = |path: &String| {
                let held = matches!(self.status(path), Ok(LockStatus::Held { token, .. }) if token == guard.token);
                held && seen(&self.nodes[path])
            };
            // A simple lock is an ephemeral znode that is not a lock node itself.
            let alone = |node: &Node| {
                let ephemeral = matches!(node.stay, Stay::Session(_)) && number(lock).is_none();
                ephemeral && node.created.0.0 == guard.token.0 && seen(node)
            };
            if !self.contenders(lock).iter().any(held) && !self.nodes.get(lock).is_some_and(alone) {
                return refused(Error::LockNotHeld, lock);
            }
        }
        if let Some(turn) = request.turn {
            self.take_turn(turn, session)?;
        }
        let key = request.key;
        self.note_asking(&request.op, session);
        match request.op.clone() {
            Op::OpenSession { secret_hash, timeout_ms, label, address, client } => {
                self.open(secret_hash, timeout_ms, label, address, client)
            }
            Op::CloseSession { session: id } => match session {
                None => Err(Error::SessionRequired.into()),
                Some(asking) if asking != id => Err(Error::AuthFailed.into()),
                Some(_) => {
                    self.end(id, &[]);
                    Ok(Reply::Done)
                }
            },
            Op::ExpireSessions { sessions, term } => self.expire(&sessions, term),
            Op::Znode(op) => self.znode_op(op, session),
            Op::Multi(ops) => self.multi(ops, session),
            Op::SetAcl { path, acl, version } => self.set_acl(path.as_str(), acl, version),
            Op::Acquire(acquire) => self.acquire(&acquire, session, key),
            Op::SetLock { lock, settings } => self.set_lock(lock.as_str(), settings),
            Op::HandOver { ticket, to } => self.hand_over(ticket.as_str(), to.as_str(), session),
            Op::AcquireAll(wish) => self.acquire_all(&wish, session, key),
            Op::Release { ticket: TicketRef::Path(ticket) } => self.release(ticket.as_str(), session),
            Op::Release { ticket: TicketRef::Held(held) } => self.release_held(&held, session),
            Op::Withdraw { ticket, attempt, if_waiting } => {
                self.withdraw(ticket.as_str(), attempt, if_waiting, session)
            }
            Op::Reap { candidates } => self.reap(&candidates),
            Op::SetLimits(limits) => {
                self.limits = limits;
                Ok(Reply::Done)
            }
            Op::Found(_) | Op::SetLevel { .. } | Op::NoteRemoved { .. } => self.of_cluster(&request.op),
            // The model has no records. `scrub.rs` tests the operation.
            Op::Scrub { .. } => unreachable!("no history has a scrub"),
            #[cfg(feature = "next-level")]
            Op::SetNote { .. } => Err(Error::LevelTooLow.into()),
            Op::Upgrade(upgrade) => self.upgrade(&upgrade, session, key),
            Op::Revoke { path, deadline_ms } => self.revoke(path.as_str(), deadline_ms),
            Op::AttachSession { connection, timeout_ms } => self.attach(session, connection, timeout_ms),
        }
    }

    fn prove(&self, credential: Credential, proven: bool) -> Result<(), Error> {
        let session = self.session(credential.session).ok_or(Error::SessionExpired)?;
        if proven || session.secret_hash == credential.secret_hash { Ok(()) } else { Err(Error::AuthFailed) }
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.iter().find(|session| session.id == id)
    }

    fn take_turn(&mut self, turn: WriteTurn, session: Option<SessionId>) -> Result<(), Error> {
        let id = session.ok_or(Error::SessionRequired)?;
        let session = self.sessions.iter_mut().find(|session| session.id == id).unwrap();
        if turn.connection != session.connection {
            return Err(Error::SessionMoved);
        }
        if turn.number != session.turns + 1 {
            return Err(Error::OutOfTurn);
        }
        session.turns += 1;
        Ok(())
    }

    fn expire(&mut self, sessions: &[SessionId], term: Term) -> Answer {
        if term != self.term {
            return Err(Error::StaleTerm.into());
        }
        let mut lingering = Vec::new();
        for (path, node) in &self.nodes {
            let named = matches!(node.stay, Stay::Session(id) if sessions.contains(&id) && self.session(id).is_some());
            let delayed = node.lock.as_ref().is_some_and(|lock| lock.delay_ms > 0);
            if named && delayed && matches!(self.status(path), Ok(LockStatus::Held { .. })) {
                lingering.push(path.clone());
            }
        }
        let mut count = 0;
        for id in sessions {
            if self.session(*id).is_some() {
                self.end(*id, &lingering);
                count += 1;
            }
        }
        Ok(Reply::Removed { count })
    }

    fn end(&mut self, id: SessionId, lingering: &[String]) {
        let session = self.session(id).unwrap().clone();
        self.note_session(&session);
        self.ending.push(session);
        self.sessions.retain(|session| session.id != id);
        let owned = |(path, node): (&String, &Node)| (node.stay == Stay::Session(id)).then(|| path.clone());
        let owned: Vec<String> = self.nodes.iter().filter_map(owned).collect();
        for path in owned {
            let time_ms = self.time_ms;
            // The lock node may already be removed with another part of its multi-lock.
            if !self.nodes.contains_key(&path) {
                continue;
            }
            if lingering.contains(&path) {
                self.note_end(&path);
            }
            match self.nodes.get_mut(&path).unwrap().lock.as_mut() {
                Some(lock) if lingering.contains(&path) => {
                    lock.lingers_until_ms = Some(time_ms + u64::from(lock.delay_ms));
                }
                _ => self.take_out(&path),
            }
        }
    }

    fn tell(&mut self, kind: EventKind, path: &str) {
        let event = Event { zxid: self.last_zxid, kind, path: zpath(path) };
        if kind != EventKind::ChildrenChanged || !self.events.contains(&event) {
            self.events.push(event);
        }
    }
}

impl Node {
    fn new(stay: Stay, data: Vec<u8>, acl: Vec<Acl>, zxid: Zxid, time_ms: u64) -> Node {
        Node {
            stay,
            data,
            acl,
            created: (zxid, time_ms),
            set: (zxid, time_ms),
            children_changed: zxid,
            emptied_ms: time_ms,
            version: 0,
            aversion: 0,
            children_created: 0,
            children_deleted: 0,
            lock: None,
            queue: None,
            held: None,
            priority: 0,
        }
    }

    /// Tells whether the lock node is kept for its lock-delay, after its session has expired.
    pub(crate) fn lingers(&self) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.lingers_until_ms.is_some())
    }

    pub(crate) fn stat(&self, children: usize) -> Stat {
        Stat {
            czxid: self.created.0,
            mzxid: self.set.0,
            ctime_ms: self.created.1,
            mtime_ms: self.set.1,
            version: self.version,
            cversion: (self.children_created + self.children_deleted) as i32,
            aversion: self.aversion,
            ephemeral_owner: match self.stay {
                Stay::Persistent => 0,
                Stay::Session(id) => id.0,
                Stay::Container => 0x8000_0000_0000_0000,
                Stay::Ttl(ttl_ms) => 0xff00_0000_0000_0000 + ttl_ms,
            },
            data_length: self.data.len() as u32,
            num_children: children as u32,
            pzxid: self.children_changed,
        }
    }
}

pub(crate) fn zpath(path: &str) -> ZPath {
    ZPath::parse(path).unwrap()
}

fn refused(error: Error, path: &str) -> Answer {
    Err(Refusal::at(error, &zpath(path)))
}

/// Path of the parent; `None` for the root.
pub(crate) fn parent_of(path: &str) -> Option<&str> {
    match path.rfind('/') {
        _ if path == "/" => None,
        Some(0) => Some("/"),
        Some(slash) => Some(&path[..slash]),
        None => panic!("{path} is not a path"),
    }
}

pub(crate) fn name_of(path: &str) -> &str {
    &path[path.rfind('/').unwrap() + 1..]
}

pub(crate) fn join(parent: &str, name: &str) -> String {
    if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
}
