//! Requests of clients and leaders to the state machine: the content of a log entry.
//!
//! The order of variants and fields is the format on disk; `codec.rs` has the bytes of a request.

use std::net::IpAddr;

use bincode::{Decode, Encode};

use crate::{
    Acl, Attempt, ClientInfo, FencingToken, Founding, Identity, Limits, LockMode, RequestKey, SessionId, Term, ZPath,
    Zxid,
};

/// One transaction: all of it happens, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    /// The leader's wall clock when it proposed, in milliseconds since 1970. The state takes the
    /// maximum seen.
    pub time_ms: u64,
    /// Set when the leader has compared the credential's secret with the session's, which never
    /// effects. The entry has the session without it then, and it reads back as zeros.
    pub proven: bool,
    /// The request.
    pub request: Request,
}

/// A request as a door hands it over, before the leader puts the time on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The session that the request is made in: it owns what is created, and its secret is checked
    /// at apply.
    pub credential: Option<Credential>,
    /// The idempotency key: marks a retry as the same request. Needs a credential.
    pub key: Option<RequestKey>,
    /// A guard: the request is applied only while this lock is held with this token.
    pub guard: Option<LockGuard>,
    /// The names of the principal that asks: what it has proven to be, besides anyone.
    pub identities: Vec<Identity>,
    /// The address that the request came from, where that is to be remembered: of one that may end
    /// the tickets of others.
    pub address: Option<IpAddr>,
    /// The turn of a write, for a connection that promises to keep its writes in order.
    pub turn: Option<WriteTurn>,
    /// The try of an acquire. Stamped anew on every retry, and 0 for what has none.
    pub attempt: Attempt,
    /// The operation.
    pub op: Op,
}

impl Request {
    /// A request without session, key or guard.
    pub fn new(op: Op) -> Request {
        Request {
            credential: None,
            key: None,
            guard: None,
            identities: Vec::new(),
            address: None,
            turn: None,
            attempt: Attempt(0),
            op,
        }
    }

    /// A request in a session.
    pub fn of(credential: Credential, op: Op) -> Request {
        Request { credential: Some(credential), ..Request::new(op) }
    }
}

/// The place of a request among its connection's writes. They are applied in the order of their
/// turns, however they come into the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WriteTurn {
    /// The connection that the session is attached to; refused with `SessionMoved` when it is
    /// another one by now.
    pub connection: u64,
    /// 1 for the connection's first write. Refused with `OutOfTurn`, and worth another try, until
    /// the one before it has been applied. A turn is taken also by a write that is refused for what
    /// it asks.
    pub number: u64,
}

/// Proof that a request belongs to a session.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Credential {
    /// The session.
    pub session: SessionId,
    /// The hash of its secret, which itself never enters the log.
    pub secret_hash: SecretHash,
}

/// The first half of the SHA-256 of a session's secret: as long as the secret, so no easier to
/// guess.
pub type SecretHash = [u8; 16];

/// The part that is kept of the SHA-256 of a secret.
pub fn secret_hash(sha256: [u8; 32]) -> SecretHash {
    let (half, _) = sha256.split_first_chunk().expect("a SHA-256 has 32 bytes");
    *half
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({}.***)", self.session)
    }
}

/// "Only while I hold this": the header `If-Lock`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LockGuard {
    /// The lock directory.
    pub lock: ZPath,
    /// The token that must be a present holder's.
    pub token: FencingToken,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Op {
    /// Opens a session; its id is the entry's zxid.
    OpenSession {
        /// The hash of the secret that the door made.
        secret_hash: SecretHash,
        /// The wish; the reply has what was agreed.
        timeout_ms: u32,
        /// Free text for people.
        label: String,
        /// The address that the client comes from. `None` counts among the sessions of no address:
        /// the door does not know, or the operator has said that the address stands for many
        /// clients.
        address: Option<IpAddr>,
        /// The client, for people.
        client: ClientInfo,
    },
    /// A client closes its session: its ephemerals go in this entry. The credential must be the
    /// session's.
    CloseSession {
        /// The session.
        session: SessionId,
    },
    /// The leader gives up sessions that were silent too long, each with all its ephemerals.
    /// Refused unless the entry was written in `term`: a deposed leader's word does not count.
    ExpireSessions {
        /// The sessions. Those that are gone already are passed over.
        sessions: Vec<SessionId>,
        /// The term that the leader speaks for.
        term: Term,
    },
    /// The credential's session goes on over another connection: writes of the former one are
    /// refused from here on.
    AttachSession {
        /// The new connection: a number that no other connection of the session has had. Not 0,
        /// which is the one that opened the session.
        connection: u64,
        /// The wish; the reply has what was agreed.
        timeout_ms: u32,
    },
    /// Creates, deletes, sets or checks one znode.
    Znode(ZnodeOp),
    /// Several of them; all or nothing, one zxid.
    Multi(Vec<ZnodeOp>),
    /// Replaces a znode's ACL.
    SetAcl {
        /// The znode.
        path: ZPath,
        /// The new list.
        acl: Vec<Acl>,
        /// The expected `aversion`; -1 is any.
        version: i32,
    },
    /// Enqueues for a lock, or holds it once more.
    Acquire(Acquire),
    /// Enqueues for several locks at once.
    AcquireAll(AcquireAll),
    /// Enqueues the writer that a reader becomes.
    Upgrade(Upgrade),
    /// Gives one hold of a ticket back; the last one deletes the lock node, held or waiting.
    Release {
        /// The lock node.
        ticket: TicketRef,
    },
    /// Gives a ticket of a managed lock back, with all its holds, and the lock to a waiter.
    HandOver {
        /// The lock node that holds.
        ticket: ZPath,
        /// The lock node that waits.
        to: ZPath,
    },
    /// Ends one attempt: the wait is over or the client hung up.
    Withdraw {
        /// The lock node.
        ticket: ZPath,
        /// The attempt to end. A later attempt on the same ticket makes this a no-op.
        attempt: Attempt,
        /// Leaves it alone if it is held by now (the client is still there to be told).
        if_waiting: bool,
    },
    /// Asks a ticket, or all who hold a lock, to give up.
    Revoke {
        /// The lock node, or the lock.
        path: ZPath,
        /// Milliseconds after which the ticket is taken away; 0 is at once, `None` never.
        deadline_ms: Option<u32>,
    },
    /// Sets what a lock is. In use it can only be given another `waiters_max`.
    SetLock {
        /// The lock directory; made, persistent, with its parents as containers, when missing.
        lock: ZPath,
        /// The settings, all of them.
        settings: LockSettings,
    },
    /// The leader found znodes to collect: empty containers, TTL znodes out of time, lock nodes
    /// whose delay is over. Each is checked again at apply; what no longer qualifies is passed
    /// over.
    Reap {
        /// The znodes with the czxid they were found with.
        candidates: Vec<ReapCandidate>,
    },
    /// A new leader brings its configured limits.
    SetLimits(Limits),
    /// Founds the cluster: the first entry of its first leader.
    Found(Founding),
    /// The members write another level of the format from here on, and this one is above the one
    /// before. A program that does not know it stops here.
    SetLevel {
        /// The new one.
        level: u16,
    },
    /// A node is no member any more, and never again under this id.
    NoteRemoved {
        /// The node's id.
        node_id: u64,
    },
    /// Replaces what stands at the cluster for people. Of the level after the newest one, for tests
    /// of upgrades: no released program has it.
    #[cfg(feature = "next-level")]
    SetNote {
        /// Free text.
        text: String,
    },
}

/// An operation that may stand in a multi.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ZnodeOp {
    /// Creates a znode.
    Create(Create),
    /// Deletes a znode without children.
    Delete {
        /// The znode.
        path: ZPath,
        /// The expected version; -1 is any.
        version: i32,
    },
    /// Replaces a znode's data.
    SetData {
        /// The znode.
        path: ZPath,
        /// The new data.
        data: Vec<u8>,
        /// The expected version; -1 is any.
        version: i32,
    },
    /// Changes nothing; fails unless the znode exists with the version.
    Check {
        /// The znode.
        path: ZPath,
        /// The expected version; -1 is any.
        version: i32,
    },
}

/// A znode to create.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Create {
    /// The parent, which must exist and must not be ephemeral.
    pub parent: ZPath,
    /// The name; for the sequential modes the part before the ten digits, which may be empty.
    pub name: String,
    /// The data.
    pub data: Vec<u8>,
    /// The create mode.
    pub mode: CreateMode,
    /// The ACL; [`Acl::open`] when the client named none. None at all is the parent's: that of what
    /// a door makes for a client, a directory on the way or the member of a group. A client's empty
    /// list is refused at its door.
    pub acl: Vec<Acl>,
    /// The fate of a create that ZooKeeper would refuse.
    pub ensure: Ensure,
}

impl Create {
    /// A persistent znode without data that is open to all. Other wishes replace fields of this
    /// one: `Create { data, ..Create::new(parent, name) }`.
    pub fn new(parent: ZPath, name: impl Into<String>) -> Create {
        Create {
            parent,
            name: name.into(),
            data: Vec::new(),
            mode: CreateMode::Persistent,
            acl: Acl::open(),
            ensure: Ensure::New,
        }
    }
}

/// Tells whether a create is one of ZooKeeper's, or sees to it that the session has the znode. The
/// latter is for ephemeral znodes whose name is known before, and does not stand in a multi.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Ensure {
    /// ZooKeeper's: refused without the parent, and when the znode is there.
    #[default]
    New,
    /// Missing parents are made, as containers. When the session has the znode already, the reply
    /// is that znode as it is.
    Own,
    /// As [`Ensure::Own`], but a znode of the session whose data is different is in the way like
    /// one of another session.
    OwnWithData,
}

/// ZooKeeper's create modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum CreateMode {
    /// Stays until it is deleted.
    Persistent,
    /// Goes with its session.
    Ephemeral,
    /// Persistent, with the parent's create counter behind the name.
    PersistentSequential,
    /// Ephemeral, with the parent's create counter behind the name.
    EphemeralSequential,
    /// Collected some time after its last child went.
    Container,
    /// Collected when it has no children and was not set for `ttl_ms`.
    PersistentTtl {
        /// 1 to 2^40 - 1 milliseconds, as in ZooKeeper.
        ttl_ms: u64,
    },
    /// As [`CreateMode::PersistentTtl`], with the parent's create counter behind the name.
    PersistentSequentialTtl {
        /// 1 to 2^40 - 1 milliseconds.
        ttl_ms: u64,
    },
}

impl CreateMode {
    /// Tells whether the name gets ten digits.
    pub fn is_sequential(self) -> bool {
        matches!(
            self,
            CreateMode::PersistentSequential
                | CreateMode::EphemeralSequential
                | CreateMode::PersistentSequentialTtl { .. }
        )
    }

    /// Tells whether the znode belongs to a session.
    pub fn is_ephemeral(self) -> bool {
        matches!(self, CreateMode::Ephemeral | CreateMode::EphemeralSequential)
    }
}

/// Enters a lock's queue. Needs a credential and an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Acquire {
    /// The lock directory; made with its parents, as containers, when missing.
    pub lock: ZPath,
    /// The mode in which the lock is wanted.
    pub mode: LockMode,
    /// The owner within the session: an equal, non-empty owner gets the ticket that it has in this
    /// mode and holds it once more. Empty is none: every acquire is a contender of its own.
    pub owner: String,
    /// Free text for people; becomes the lock node's data.
    pub label: String,
    /// Time for which the dead holder's node stays after an expiry, in milliseconds; 0 is not at
    /// all.
    pub lock_delay_ms: u32,
    /// The priority in a managed lock: higher is sooner; 0 is the ordinary one.
    pub priority: u32,
    /// Tells whether the client gave neither key nor owner, so that nothing tells a retry from
    /// another wish: refused (`BlockedByOwnSession`) while the session has such a ticket of the
    /// lock. The key is the door's.
    pub keyless: bool,
}

impl Acquire {
    /// An ordinary one with a key: without owner, label, lock-delay or priority.
    pub fn new(lock: ZPath, mode: LockMode) -> Acquire {
        let (owner, label) = (String::new(), String::new());
        Acquire { lock, mode, owner, label, lock_delay_ms: 0, priority: 0, keyless: false }
    }
}

/// A ticket of the session, named by its path or by the lock that the session holds with it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum TicketRef {
    /// The ticket at a path, held or waiting.
    Path(ZPath),
    /// The one ticket that holds a lock.
    Held(HeldTicket),
}

impl From<ZPath> for TicketRef {
    fn from(path: ZPath) -> TicketRef {
        TicketRef::Path(path)
    }
}

/// The one ticket with which the session holds a lock; with an owner also a simple lock, which is
/// one ephemeral znode with the owner as its data. Refused with `NotHolder` when there is none,
/// with `SeveralHeld` when there are several.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HeldTicket {
    /// The lock directory.
    pub lock: ZPath,
    /// Restricts it to one that is held in this mode; of a semaphore, with any number of permits.
    pub mode: Option<LockMode>,
    /// Restricts it to one with this token.
    pub token: Option<FencingToken>,
    /// Restricts it to one of this owner; empty for one that was acquired without.
    pub owner: Option<String>,
}

/// Takes a lock that is held to read also to write, in front of all writers that wait. Needs a
/// credential and an idempotency key. The reader stays: releasing the writer is the way back.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Upgrade {
    /// The reader's lock node. Owner and lock-delay are as it has them.
    pub ticket: ZPath,
    /// Free text for people; becomes the writer's data.
    pub label: String,
}

/// A znode that the leader believes can be collected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct ReapCandidate {
    /// The path.
    pub path: ZPath,
    /// The czxid of the znode: a node made anew at the path is another one.
    pub czxid: Zxid,
}

/// Enters the queues of several locks, to hold all of them or none. Needs a credential and an
/// idempotency key. It is answered with the ticket of the first.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct AcquireAll {
    /// The locks, each of them once, and how each is wanted.
    pub parts: Vec<(ZPath, LockMode)>,
    /// Tells whether others may pass while it waits.
    pub policy: Policy,
    /// The owner within the session, as in [`Acquire`].
    pub owner: String,
    /// Free text for people; becomes the data of all its lock nodes.
    pub label: String,
    /// The lock-delay, as in [`Acquire`], for each of the locks.
    pub lock_delay_ms: u32,
}

impl AcquireAll {
    /// A strict one without owner, label or lock-delay.
    pub fn new(parts: Vec<(ZPath, LockMode)>) -> AcquireAll {
        AcquireAll { parts, policy: Policy::Strict, owner: String::new(), label: String::new(), lock_delay_ms: 0 }
    }
}

/// The policy of a waiting multi-lock towards those who come later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Policy {
    /// Later contenders wait behind the multi-lock, on each of its locks.
    #[default]
    Strict,
    /// Later contenders pass while the multi-lock waits for another of its locks.
    Backfill,
}

/// Settings of a lock, which stay while no ticket is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct LockSettings {
    /// The permits of a semaphore; `None` for a lock.
    pub limit: Option<u32>,
    /// Managed: only acquires enter its queue: there may be priorities, and a holder may say who is
    /// next.
    pub managed: bool,
    /// Number of tickets that may wait; `None` for as many as any lock.
    pub waiters_max: Option<u32>,
}
