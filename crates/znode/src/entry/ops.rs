//! The table of operations: the name of each operation, who may request it, and the format level
//! that introduced it. Also the memory that a request takes up.

use crate::words::ticket_name::ends_as_recipe;
use crate::{Acl, Create, CreateMode, Identity, Kind, Op, Request, SessionId, TicketRef, ZPath, ZnodeOp};

/// Properties of one operation, as [`Op::row`] lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRow {
    /// The name of the operation on web pages and in logs.
    pub name: &'static str,
    /// The kind of requester that the operation is allowed for.
    pub asker: Asker,
    /// The format level (version of the log's format) that introduced the operation. A cluster at a
    /// lower level refuses the operation.
    pub level: u16,
}

/// Kinds of requesters. Each operation is allowed for one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Any client, with or without a session.
    Client,
    /// A client with a session.
    Session,
    /// The leader alone, on its own behalf. Nodes pass on requests of clients only, so a request of
    /// this kind from another node is forged.
    Leader,
}

impl Op {
    /// The properties of this operation. The match has no wildcard, so the compiler demands a line
    /// for each new operation.
    pub fn row(&self) -> OpRow {
        use Asker::{Client, Leader, Session};
        let (name, asker, level) = match self {
            Op::OpenSession { .. } => ("open-session", Client, 1),
            Op::CloseSession { .. } => ("close-session", Session, 1),
            Op::ExpireSessions { .. } => ("expire-sessions", Leader, 1),
            Op::AttachSession { .. } => ("attach-session", Session, 1),
            Op::Znode(_) => ("znode", Client, 1),
            Op::Multi(_) => ("multi", Client, 1),
            Op::SetAcl { .. } => ("set-acl", Client, 1),
            Op::Acquire(_) => ("acquire", Session, 1),
            Op::AcquireAll(_) => ("acquire-all", Session, 1),
            Op::Upgrade(_) => ("upgrade", Session, 1),
            Op::Release { .. } => ("release", Session, 1),
            Op::HandOver { .. } => ("hand-over", Session, 1),
            Op::Withdraw { .. } => ("withdraw", Session, 1),
            Op::Revoke { .. } => ("revoke", Client, 1),
            Op::SetLock { .. } => ("set-lock", Client, 1),
            Op::Reap { .. } => ("reap", Leader, 1),
            Op::SetLimits(_) => ("set-limits", Leader, 1),
            Op::Found(_) => ("found", Leader, 1),
            Op::SetLevel { .. } => ("set-level", Leader, 1),
            Op::NoteRemoved { .. } => ("note-removed", Leader, 1),
            Op::Scrub { .. } => ("scrub", Leader, 1),
            #[cfg(feature = "next-level")]
            Op::SetNote { .. } => ("set-note", Client, 2),
        };
        OpRow { name, asker, level }
    }

    /// Tells whether the operation may make a client the holder of a lock, or make a znode that
    /// clients take for a lock. After a cluster is restored from a backup, such an operation is
    /// refused for some time (`Restore::grace_ms`). The match has no wildcard, so the compiler
    /// demands a decision for each new operation.
    pub fn may_grant(&self) -> bool {
        match self {
            Op::Acquire(_) | Op::AcquireAll(_) | Op::Upgrade(_) | Op::HandOver { .. } | Op::SetLock { .. } => true,
            Op::Znode(op) => op.may_grant(),
            Op::Multi(ops) => ops.iter().any(ZnodeOp::may_grant),
            #[cfg(feature = "next-level")]
            Op::SetNote { .. } => false,
            Op::OpenSession { .. } | Op::CloseSession { .. } | Op::ExpireSessions { .. } => false,
            Op::AttachSession { .. } | Op::SetAcl { .. } | Op::Revoke { .. } | Op::Reap { .. } => false,
            Op::Release { .. } | Op::Withdraw { .. } | Op::SetLimits(_) => false,
            Op::Found(_) | Op::SetLevel { .. } | Op::NoteRemoved { .. } | Op::Scrub { .. } => false,
        }
    }

    /// Bytes of the operation's paths, texts and data, which clients can make long.
    fn bytes(&self) -> usize {
        let path = |path: &ZPath| path.as_str().len();
        match self {
            Op::Znode(op) => znode_bytes(op),
            Op::Multi(ops) => ops.iter().map(|op| REQUEST_BYTES + znode_bytes(op)).sum(),
            Op::SetAcl { path: at, acl, .. } => path(at) + acl_bytes(acl),
            Op::Acquire(acquire) => path(&acquire.lock) + acquire.label.len() + acquire.owner.len(),
            Op::AcquireAll(all) => {
                let parts = all.parts.iter().map(|(lock, _)| REQUEST_BYTES + path(lock));
                all.label.len() + all.owner.len() + parts.sum::<usize>()
            }
            Op::Upgrade(upgrade) => path(&upgrade.ticket) + upgrade.label.len(),
            Op::Release { ticket: TicketRef::Path(ticket) } | Op::Withdraw { ticket, .. } => path(ticket),
            Op::Release { ticket: TicketRef::Held(held) } => {
                path(&held.lock) + held.owner.as_ref().map_or(0, String::len)
            }
            Op::HandOver { ticket, to } => path(ticket) + path(to),
            Op::Revoke { path: at, .. } | Op::SetLock { lock: at, .. } => path(at),
            Op::OpenSession { label, client, .. } => label.len() + client.host.len() + client.program.len(),
            Op::Reap { candidates } => candidates.len() * REQUEST_BYTES,
            Op::ExpireSessions { sessions, .. } => sessions.len() * size_of::<SessionId>(),
            Op::CloseSession { .. } | Op::AttachSession { .. } | Op::SetLimits(_) => 0,
            Op::Found(_) | Op::SetLevel { .. } | Op::NoteRemoved { .. } | Op::Scrub { .. } => 0,
            #[cfg(feature = "next-level")]
            Op::SetNote { text } => text.len(),
        }
    }
}

impl ZnodeOp {
    /// Tells whether the operation may make a client the holder of a lock. Curator's clients decide
    /// this by the order of names. An ephemeral znode may be a simple lock, which has no queue.
    fn may_grant(&self) -> bool {
        match self {
            ZnodeOp::Create(Create { mode: CreateMode::Persistent, name, .. }) => {
                Kind::Persistent.number(name).is_some()
            }
            ZnodeOp::Create(Create { mode: CreateMode::PersistentSequential, name, .. }) => ends_as_recipe(name),
            ZnodeOp::Create(create) => create.mode.is_ephemeral(),
            ZnodeOp::Delete { .. } | ZnodeOp::SetData { .. } | ZnodeOp::Check { .. } => false,
        }
    }
}

/// Bytes of the parts of fixed length in a request: the credential, the key and so on.
const REQUEST_BYTES: usize = 256;

impl Request {
    /// Memory that the request takes up, in bytes, by estimate.
    pub fn bytes(&self) -> usize {
        REQUEST_BYTES + identity_bytes(&self.identities) + self.op.bytes()
    }
}

fn znode_bytes(op: &ZnodeOp) -> usize {
    match op {
        ZnodeOp::Create(create) => {
            create.data.len() + create.parent.as_str().len() + create.name.len() + acl_bytes(&create.acl)
        }
        ZnodeOp::SetData { path, data, .. } => data.len() + path.as_str().len(),
        ZnodeOp::Delete { path, .. } | ZnodeOp::Check { path, .. } => path.as_str().len(),
    }
}

fn acl_bytes(acl: &[Acl]) -> usize {
    acl.iter().map(|entry| size_of::<Acl>() + entry.scheme.len() + entry.id.len()).sum()
}

fn identity_bytes(identities: &[Identity]) -> usize {
    identities.iter().map(|one| size_of::<Identity>() + one.scheme.len() + one.id.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The estimated size of a request includes its paths and data, which clients can make long.
    #[test]
    fn the_bytes_of_a_request_count() {
        let (path, data) = (ZPath::root(), vec![0; 1 << 20]);
        let set = || ZnodeOp::SetData { path: path.clone(), data: data.clone(), version: -1 };
        let long = ZPath::parse(&format!("/{}", "x".repeat(1 << 20))).unwrap();
        for op in [Op::Znode(set()), Op::Multi(vec![set()]), Op::Release { ticket: long.into() }] {
            assert!(Request::new(op).bytes() >= 1 << 20);
        }
    }
}
