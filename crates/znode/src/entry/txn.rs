//! Requests of clients and leaders to the state machine: the content of log entries.
//!
//! The order of variants and fields is the format on disk; `codec.rs` has the bytes of a request.

use std::net::IpAddr;

use bincode::{Decode, Encode};

use crate::{
    Acl, Attempt, ClientInfo, CreateMode, FencingToken, Founding, Identity, Limits, LockMode, RecordKey, RequestKey,
    SessionId, Term, ZPath, Zxid,
};

/// One transaction: all of its changes are applied, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    /// The leader's wall clock at the proposal, in milliseconds since 1970. The state's time is the
    /// maximum over all entries.
    pub time_ms: u64,
    /// True if the leader has compared the credential's secret with the session's. The entry then
    /// has only the session's id; the hash of the secret reads back as zeros.
    pub proven: bool,
    /// The request of a client, or of the leader itself.
    pub request: Request,
}

/// A request as the HTTP or ZooKeeper server makes it, before the leader adds the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The requesting session, which will own the ephemeral znodes that the request creates. The
    /// state machine checks the secret unless the leader has.
    pub credential: Option<Credential>,
    /// The idempotency key, which marks a retry as the same request. Needs a credential.
    pub key: Option<RequestKey>,
    /// A guard: the request is refused unless this lock is held with this token.
    pub guard: Option<LockGuard>,
    /// The identities that the client has proven, beyond `world:anyone`.
    pub identities: Vec<Identity>,
    /// The address that the request came from, to be remembered when the request ends tickets of
    /// other clients. `None` for other requests.
    pub address: Option<IpAddr>,
    /// Position among the ordered writes of the connection; `None` if these are not ordered.
    pub turn: Option<WriteTurn>,
    /// The attempt number of an acquire: each retry has a new one. 0 for other requests.
    pub attempt: Attempt,
    /// The operation that is asked for.
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

    /// A request that a session makes.
    pub fn of(credential: Credential, op: Op) -> Request {
        Request { credential: Some(credential), ..Request::new(op) }
    }
}

/// The number of a write among the writes of its connection. The writes are applied in the order of
/// these numbers, whatever their order in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WriteTurn {
    /// The connection that sent the write. The write is refused with `SessionMoved` if the session
    /// is attached to another connection by now.
    pub connection: u64,
    /// The number of the write, 1 for the connection's first. The write is refused with
    /// `OutOfTurn`, and may be tried again, until the write before it has been applied. A write
    /// that is refused for another reason counts as applied.
    pub number: u64,
}

/// Proof that a request belongs to a session.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Credential {
    /// The session that the request is made in.
    pub session: SessionId,
    /// The hash of the session's secret. The secret itself is never in the log.
    pub secret_hash: SecretHash,
}

/// The first half of the SHA-256 of a session's secret. It is as long as the secret, so it is no
/// easier to guess.
pub type SecretHash = [u8; 16];

/// Takes the first half of the SHA-256 of a secret.
pub fn secret_hash(sha256: [u8; 32]) -> SecretHash {
    let (half, _) = sha256.split_first_chunk().expect("a SHA-256 has 32 bytes");
    *half
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({}.***)", self.session)
    }
}

/// A condition for a request: the lock is held with this token (HTTP header `If-Lock`).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LockGuard {
    /// The lock directory.
    pub lock: ZPath,
    /// The fencing token that a present holder of the lock must have.
    pub token: FencingToken,
}

/// An operation on the state: the part of a request that says what is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Op {
    /// Opens a session; its id is the entry's zxid.
    OpenSession {
        /// The hash of the session's secret.
        secret_hash: SecretHash,
        /// The timeout that the client asks for, in milliseconds. The reply has the timeout that
        /// the session got.
        timeout_ms: u32,
        /// Free text for people.
        label: String,
        /// Address of the client, for the limit of sessions per address. `None` if the session does
        /// not count for that limit: the server does not know the address, or the operator has
        /// configured it as one that many clients share.
        address: Option<IpAddr>,
        /// The client's description of itself, for people.
        client: ClientInfo,
    },
    /// Closes a session for its client, and deletes its ephemeral znodes. The credential must be
    /// that of the session.
    CloseSession {
        /// Id of the session to close.
        session: SessionId,
    },
    /// Expires sessions that sent no heartbeat for their timeout, each with all its ephemeral
    /// znodes. Only a leader proposes it. Refused unless the entry was written in `term`, so that a
    /// deposed leader expires no session.
    ExpireSessions {
        /// The sessions. Sessions that have ended already are skipped.
        sessions: Vec<SessionId>,
        /// The Raft term in which the leader decided the expiry.
        term: Term,
    },
    /// Attaches the credential's session to another connection. Writes of its former connection are
    /// refused from now on.
    AttachSession {
        /// A number for the new connection that no other connection of the session has had. 0 is
        /// the connection that opened the session.
        connection: u64,
        /// The timeout that the client asks for, in milliseconds. The reply has the timeout that
        /// the session got.
        timeout_ms: u32,
    },
    /// Creates, deletes, sets or checks one znode.
    Znode(ZnodeOp),
    /// Several operations on znodes with one zxid: all are applied, or none.
    Multi(Vec<ZnodeOp>),
    /// Replaces a znode's ACL.
    SetAcl {
        /// Path of the znode.
        path: ZPath,
        /// The new ACL.
        acl: Vec<Acl>,
        /// The expected `aversion`; -1 accepts any.
        version: i32,
    },
    /// Puts a ticket into a lock's queue, or adds this acquire to the ticket that the owner (a user
    /// of the lock within the session) already has in this mode.
    Acquire(Acquire),
    /// Puts tickets into the queues of several locks at once.
    AcquireAll(AcquireAll),
    /// Adds a write ticket to a lock's queue for the holder of a read ticket, which is kept.
    Upgrade(Upgrade),
    /// Gives back one hold of a ticket (each acquire that shares the ticket is a hold). The release
    /// of the last hold deletes the lock node, whether the ticket holds the lock or waits.
    Release {
        /// The ticket: its path, or the lock that the session holds with it.
        ticket: TicketRef,
    },
    /// Releases a ticket of a managed lock (only acquires enter its queue) with all holds (acquires
    /// that share the ticket), and grants the lock to a waiter that the request names.
    HandOver {
        /// The lock node that holds the lock.
        ticket: ZPath,
        /// The lock node that waits and gets the lock.
        to: ZPath,
    },
    /// Ends one attempt (request or retry) of an acquire, because its wait has timed out or its
    /// client has disconnected.
    Withdraw {
        /// Path of the lock node.
        ticket: ZPath,
        /// The attempt to end. The ticket stays if the acquire has a later attempt.
        attempt: Attempt,
        /// True to withdraw the attempt only if the ticket still waits. A ticket that holds the
        /// lock by now is kept, because the client is still connected and gets the grant as answer.
        if_waiting: bool,
    },
    /// Asks the holder of a ticket, or all holders of a lock, to release.
    Revoke {
        /// The path of the lock node or of the lock.
        path: ZPath,
        /// Milliseconds after which the tickets are taken away; 0 is at once, `None` never.
        deadline_ms: Option<u32>,
    },
    /// Sets the settings of a lock. While the queue has tickets, a request cannot make the lock
    /// managed or a semaphore, nor take such a setting back.
    SetLock {
        /// The lock directory. A missing one is made as a persistent znode, its parents as
        /// containers.
        lock: ZPath,
        /// The new settings, which replace all former ones.
        settings: LockSettings,
    },
    /// Deletes znodes whose time is over, as the leader found: empty containers, TTL znodes, lock
    /// nodes after their lock-delay, revoked tickets after their deadline. Each is checked again at
    /// apply; a znode that no longer qualifies is skipped.
    Reap {
        /// The znodes, with the czxids that the leader saw.
        candidates: Vec<ReapCandidate>,
    },
    /// Replaces the limits by those of a new leader's configuration.
    SetLimits(Limits),
    /// Founds the cluster: the first entry that its first leader proposes.
    Found(Founding),
    /// Raises the format level at which the members write log and snapshots from now on. A program
    /// that does not know the new level stops at this entry.
    SetLevel {
        /// The new format level, above the present one.
        level: u16,
    },
    /// Notes that a node was removed from the members. Its id is never used again.
    NoteRemoved {
        /// Id of the node that was removed.
        node_id: u64,
    },
    /// Hashes some of the records that a snapshot of the state would have. Changes nothing. Since
    /// the hash is a part of the outcome, nodes whose records differ are found.
    Scrub {
        /// The record after which the hashed records begin; `None` for the first record.
        after: Option<RecordKey>,
    },
    /// Replaces the cluster's note, a text for people. Only builds for tests of upgrades have this
    /// operation and the format level that it needs.
    #[cfg(feature = "next-level")]
    SetNote {
        /// The new note.
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
        /// Path of the znode.
        path: ZPath,
        /// The expected version; -1 accepts any.
        version: i32,
    },
    /// Replaces a znode's data.
    SetData {
        /// Path of the znode.
        path: ZPath,
        /// The new data.
        data: Vec<u8>,
        /// The expected version; -1 accepts any.
        version: i32,
    },
    /// Changes nothing; refused unless the znode exists with the version.
    Check {
        /// Path of the znode.
        path: ZPath,
        /// The expected version; -1 accepts any.
        version: i32,
    },
}

/// A znode to create.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Create {
    /// The parent, which must exist and must not be ephemeral.
    pub parent: ZPath,
    /// The name. For sequential modes the part before the ten digits, which may be empty.
    pub name: String,
    /// The data of the new znode.
    pub data: Vec<u8>,
    /// The create mode: how long the znode stays, and whether it is sequential.
    pub mode: CreateMode,
    /// The ACL; [`Acl::open`] if the client named none. An empty list stands for the parent's ACL,
    /// and is made by the server alone: for a missing directory and for a group member's znode.
    pub acl: Vec<Acl>,
    /// Treatment of missing parents, and of a znode that exists already.
    pub ensure: Ensure,
}

impl Create {
    /// A persistent znode without data, open to all. A caller replaces single fields, as in `Create
    /// { data, ..Create::new(parent, name) }`.
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

/// The treatment of missing parents and of an existing znode in a create. The variants after
/// [`Ensure::New`] make sure that the session has the znode. They are for ephemeral znodes that are
/// not sequential, outside a multi.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Ensure {
    /// As in ZooKeeper: refused if the parent is missing, or if the znode exists.
    #[default]
    New,
    /// Missing parents are made, as containers. If the session owns the znode already, the reply
    /// describes that znode, unchanged.
    Own,
    /// As [`Ensure::Own`], but refused if the session's znode has other data.
    OwnWithData,
}

/// Puts a ticket into a lock's queue. Needs a credential and an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Acquire {
    /// The lock directory. If it is missing, it and its parents are made as containers.
    pub lock: ZPath,
    /// The mode in which the lock is wanted.
    pub mode: LockMode,
    /// A user of the lock within the session, such as a thread; empty for none. If the same owner
    /// has a ticket in this mode, that ticket gets one more hold; otherwise a new ticket is made.
    pub owner: String,
    /// Free text for people, kept as the lock node's data.
    pub label: String,
    /// Lock-delay: time for which the lock node stays if its session expires while the ticket holds
    /// the lock, in milliseconds; 0 for no time.
    pub lock_delay_ms: u32,
    /// The priority in a managed lock: a higher priority is granted first, 0 is the default.
    pub priority: u32,
    /// True if the client gave neither key nor owner, so that a retry looks like a new request. The
    /// HTTP server then made up the key. Refused (`BlockedByOwnSession`) while the session has
    /// another ticket of the lock without key and owner.
    pub keyless: bool,
}

impl Acquire {
    /// An acquire with a key that the client chose, without owner, label, lock-delay or priority.
    pub fn new(lock: ZPath, mode: LockMode) -> Acquire {
        let (owner, label) = (String::new(), String::new());
        Acquire { lock, mode, owner, label, lock_delay_ms: 0, priority: 0, keyless: false }
    }
}

/// A ticket of the session, named by its path or by the lock that the session holds with it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum TicketRef {
    /// The ticket at a path, whether it holds or waits.
    Path(ZPath),
    /// The ticket with which the session holds a lock; refused if several tickets match.
    Held(HeldTicket),
}

impl From<ZPath> for TicketRef {
    fn from(path: ZPath) -> TicketRef {
        TicketRef::Path(path)
    }
}

/// Names a ticket by its lock, for a release: the session must hold the lock with exactly one
/// ticket that matches the given fields. If an owner and no mode is given, a simple lock matches,
/// too: an ephemeral znode at the lock's path with the owner as data. Refused with `NotHolder` if
/// no ticket matches, and with `SeveralHeld` if several do.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HeldTicket {
    /// The lock directory.
    pub lock: ZPath,
    /// The mode of the ticket; `None` for any. For a semaphore, the number of permits is not
    /// compared.
    pub mode: Option<LockMode>,
    /// The token of the ticket; `None` for any.
    pub token: Option<FencingToken>,
    /// The ticket's owner (a user of the lock within the session); `None` for any, empty for none.
    pub owner: Option<String>,
}

/// Lets the holder of a read ticket get the write lock as well, ahead of all waiting writers. Needs
/// a credential and an idempotency key. The read ticket is kept: a release of the write ticket goes
/// back to reading.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Upgrade {
    /// The read ticket's lock node. The write ticket takes over its owner and lock-delay.
    pub ticket: ZPath,
    /// Free text for people, kept as the write ticket's data.
    pub label: String,
}

/// A znode that the leader proposes to delete because its time is over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct ReapCandidate {
    /// Path of the znode.
    pub path: ZPath,
    /// The czxid of the znode, because another znode may have been made at the path since.
    pub czxid: Zxid,
}

/// Puts tickets into the queues of several locks, to hold all of the locks or none. Needs a
/// credential and an idempotency key. The reply names the ticket of the first lock.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct AcquireAll {
    /// The locks, each of them once, with the mode for each.
    pub parts: Vec<(ZPath, LockMode)>,
    /// Tells whether later tickets may overtake the waiting multi-lock.
    pub policy: Policy,
    /// The owner (a user of the locks within the session), as in [`Acquire`].
    pub owner: String,
    /// Free text for people, kept as the data of each of the lock nodes that are made.
    pub label: String,
    /// The lock-delay, as in [`Acquire`], for each of the locks.
    pub lock_delay_ms: u32,
}

impl AcquireAll {
    /// An acquire with the policy [`Policy::Strict`], without owner, label or lock-delay.
    pub fn new(parts: Vec<(ZPath, LockMode)>) -> AcquireAll {
        AcquireAll { parts, policy: Policy::Strict, owner: String::new(), label: String::new(), lock_delay_ms: 0 }
    }
}

/// Tells whether later tickets may overtake a waiting multi-lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Policy {
    /// Later tickets wait behind the multi-lock, at each of its locks.
    #[default]
    Strict,
    /// Later tickets may overtake the multi-lock while it cannot be granted all its locks.
    Backfill,
}

/// Settings of a lock, which are kept when its queue is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct LockSettings {
    /// Number of permits of a semaphore; `None` for a lock that is no semaphore.
    pub limit: Option<u32>,
    /// True for a managed lock: only acquires may enter its queue, so that priorities and
    /// hand-overs are possible.
    pub managed: bool,
    /// Number of tickets that may wait; `None` for the bound `waiters_max` of [`Limits`].
    pub waiters_max: Option<u32>,
}
