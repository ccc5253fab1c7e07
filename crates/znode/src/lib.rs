//! The replicated state machine of zlock: znodes, sessions and locks. Pure: values in, values out.
//!
//! [`State::apply`] takes one entry of the log and gives back a [`TxnOutcome`]: a reply for the one
//! who asked, events for those who watch. It reads no clock, no random number and no hash order, so
//! every replica that applies the same log has the same state, byte for byte ([`State::records`]).
//!
//! Folders are layers: a file uses only files of its own folder or of one above it in this list,
//! and no two use each other. A file's first lines say what it is for.
//!
//! ```text
//! words/       names, numbers and bounds that all use
//! entry/       txn (what is asked)  ops (their table)  codec (their bytes)  applied (answers)  kind
//! queue/       one lock: who holds and waits (Queue), with what, who held, who is to give up
//! tree/        the znodes (Tree): one znode, its ACL, its usage, and Quotas
//! state/       State, composed of Tree, Quotas, Sessions, Locks and Cluster
//! edits/       what operations are made of: edits, permissions, positions, histories, events
//! operations/  what can be asked: acquire, release, create, open a session, and the other operations
//! apply        one entry, from its credential to its answer
//! snapshot     the state as records · invariants · restore (the first state of a restored cluster)
//! lock         what can be read of locks, for other crates
//! ```
//!
//! `Tree`, `Sessions`, `Locks` and `Quotas` own their fields, and `State` composes them. An
//! operation is a method of `State` in a file of its own. It is called without an import, and each
//! call is a use of that file all the same.

mod apply;
mod edits;
mod entry;
mod invariants;
pub mod lock;
mod operations;
mod queue;
mod restore;
mod snapshot;
mod state;
mod tree;
mod words;

pub use edits::edit::SEQUENCE_MAX;
pub use entry::codec::{BYTES_MAX, DecodeError, decode_request, decode_txn, encode_request, encode_txn, fingerprint};
pub use entry::kind::Kind;
pub use entry::ops::{Asker, OpRow};
pub use entry::txn::{
    Acquire, AcquireAll, Create, CreateMode, Credential, Ensure, HeldTicket, LockGuard, LockSettings, Op, Policy,
    ReapCandidate, Request, SecretHash, TicketRef, Txn, Upgrade, WriteTurn, ZnodeOp, secret_hash,
};
pub use entry::txn_outcome::{Event, EventKind, EventRecord, Refusal, Reply, TxnOutcome};
pub use queue::contender::{Contender, Hold};
pub use restore::{RESTORED_INDEX, RESTORED_TERM, RESTORING, Restore, RestoreError};
pub use snapshot::StateBuilder;
pub use state::State;
pub use state::cluster::Cluster;
pub use state::session::Session;
pub use tree::quota::{Quota, QuotaLimits};
pub use tree::usage::Usage;
pub use tree::znode::Znode;
pub use words::acl::{
    ADMIN, ALL, Acl, CREATE, DELETE, IDENTITY_BYTES_MAX, Identity, KEEPER, NOTHING, READ, SUPER, WRITE, fixed_acl,
    permits, super_user, user,
};
pub use words::client_info::{Actor, ClientInfo};
pub use words::error::Error;
pub use words::founding::{ClusterUuid, Founding, ZXID_BASE_MAX};
pub use words::ids::{Attempt, FencingToken, LogPosition, RequestKey, SessionId, Term, Zxid};
pub use words::level::{LEVEL_MAX, LEVEL_MIN, Levels, OtherLevel};
pub use words::limits::{LimitRow, Limits, Unit};
pub use words::mode::LockMode;
pub use words::path::ZPath;
pub use words::stat::Stat;
