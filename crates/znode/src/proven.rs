//! Operations of those who have proven who they are.

use bincode::{Decode, Encode};

use crate::{Acl, Acquire, AcquireAll, Identity, LockSettings, Op, ReleaseHeld, SessionId, Upgrade, ZPath, ZnodeOp};

/// An operation and who asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Proven {
    /// Whom the one who asks has proven to be, besides anyone.
    pub identities: Vec<Identity>,
    /// What to do.
    pub op: ProvenOp,
}

/// The operations that look at ACLs, be it for their guard. A list of its own and no [`Op`] in another one: bytes must not be able to nest.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ProvenOp {
    /// As [`Op::Znode`].
    Znode(ZnodeOp),
    /// As [`Op::Multi`].
    Multi(Vec<ZnodeOp>),
    /// As [`Op::SetAcl`].
    SetAcl {
        /// The znode.
        path: ZPath,
        /// The new list.
        acl: Vec<Acl>,
        /// The expected `aversion`; -1 is any.
        version: i32,
    },
    /// As [`Op::Acquire`] or [`Op::AcquireUrgent`].
    Acquire {
        /// The acquire.
        acquire: Acquire,
        /// Higher is sooner; 0 is the ordinary one.
        priority: u32,
    },
    /// As [`Op::AcquireAll`].
    AcquireAll(AcquireAll),
    /// As [`Op::Upgrade`].
    Upgrade(Upgrade),
    /// As [`Op::SetLock`].
    SetLock {
        /// The lock directory.
        lock: ZPath,
        /// All of its settings.
        settings: LockSettings,
    },
    /// As [`Op::Revoke`].
    Revoke {
        /// The lock node, or the lock.
        path: ZPath,
        /// Take the ticket away after so many milliseconds; 0 is at once, `None` never.
        deadline_ms: Option<u32>,
    },
    /// As [`Op::AcquireAllAs`].
    AcquireAllAs {
        /// The locks.
        wish: AcquireAll,
        /// Who, within the session.
        owner: String,
    },
    /// As [`Op::Release`], which may have a guard.
    Release {
        /// The lock node.
        ticket: ZPath,
    },
    /// As [`Op::ReleaseHeld`], which may have a guard.
    ReleaseHeld(ReleaseHeld),
    /// As [`Op::HandOver`].
    HandOver {
        /// The lock node that holds.
        ticket: ZPath,
        /// The lock node that waits.
        to: ZPath,
    },
    /// As [`Op::CloseSession`].
    CloseSession {
        /// The session.
        session: SessionId,
    },
}

impl Op {
    /// The same, asked for by a client with these identities. What looks at no ACL, or has identities already, stays as it
    /// is.
    pub fn proven_by(self, identities: Vec<Identity>) -> Op {
        if identities.is_empty() {
            return self;
        }
        let op = match self {
            Op::Znode(op) => ProvenOp::Znode(op),
            Op::Multi(ops) => ProvenOp::Multi(ops),
            Op::SetAcl { path, acl, version } => ProvenOp::SetAcl { path, acl, version },
            Op::Acquire(acquire) => ProvenOp::Acquire { acquire, priority: 0 },
            Op::AcquireUrgent { acquire, priority } => ProvenOp::Acquire { acquire, priority },
            Op::AcquireAll(wish) => ProvenOp::AcquireAll(wish),
            Op::AcquireAllAs { wish, owner } => ProvenOp::AcquireAllAs { wish, owner },
            Op::Upgrade(upgrade) => ProvenOp::Upgrade(upgrade),
            Op::SetLock { lock, settings } => ProvenOp::SetLock { lock, settings },
            Op::Revoke { path, deadline_ms } => ProvenOp::Revoke { path, deadline_ms },
            Op::Release { ticket } => ProvenOp::Release { ticket },
            Op::ReleaseHeld(of) => ProvenOp::ReleaseHeld(of),
            Op::HandOver { ticket, to } => ProvenOp::HandOver { ticket, to },
            Op::CloseSession { session } => ProvenOp::CloseSession { session },
            other => return other,
        };
        Op::Proven(Proven { identities, op })
    }
}

impl From<ProvenOp> for Op {
    fn from(op: ProvenOp) -> Op {
        match op {
            ProvenOp::Znode(op) => Op::Znode(op),
            ProvenOp::Multi(ops) => Op::Multi(ops),
            ProvenOp::SetAcl { path, acl, version } => Op::SetAcl { path, acl, version },
            ProvenOp::Acquire { acquire, priority: 0 } => Op::Acquire(acquire),
            ProvenOp::Acquire { acquire, priority } => Op::AcquireUrgent { acquire, priority },
            ProvenOp::AcquireAll(wish) => Op::AcquireAll(wish),
            ProvenOp::AcquireAllAs { wish, owner } => Op::AcquireAllAs { wish, owner },
            ProvenOp::Upgrade(upgrade) => Op::Upgrade(upgrade),
            ProvenOp::SetLock { lock, settings } => Op::SetLock { lock, settings },
            ProvenOp::Revoke { path, deadline_ms } => Op::Revoke { path, deadline_ms },
            ProvenOp::Release { ticket } => Op::Release { ticket },
            ProvenOp::ReleaseHeld(of) => Op::ReleaseHeld(of),
            ProvenOp::HandOver { ticket, to } => Op::HandOver { ticket, to },
            ProvenOp::CloseSession { session } => Op::CloseSession { session },
        }
    }
}
