//! The replicated state machine of zlock: znodes, sessions and locks. It does no
//! input or output.
//!
//! [`State::apply`] takes one entry of the log and returns a [`TxnOutcome`]: a reply for the
//! client, and events for watchers. It reads no clock, no random number and no hash order, so every
//! replica that applies the same log has the same state, byte for byte ([`State::records`]).
//!
//! Folders are layers: a file uses only files of its own folder or of a folder above it in this
//! list, and no two files use each other. The first lines of a file say what the file is for.
//!
//! ```text
//! words/       names, numbers and bounds that all other folders use
//! entry/       requests (txn, create_mode), their table (ops) and bytes (codec), kind,
//!              answers (txn_outcome), hash of all entries and answers (history_hash),
//!              keys of a snapshot's records (record_key)
//! queue/       one lock: holders and waiters (Queue), ended tickets, revocations
//! tree/        the znodes (Tree): one znode, its ACL, its usage, and Quotas
//! state/       State, composed of Tree, Quotas, Sessions, Locks and Cluster
//! edits/       parts of operations: edits, permissions, positions, histories, events
//! operations/  requests: acquire, release, create, open a session, and the other operations
//! snapshot     the state as records, and pages of them
//! apply        one entry, from its credential to its answer
//! invariants   checks for tests · restore (the first state of a restored cluster)
//! lock         what can be read of locks, for other crates
//! ```
//!
//! `Tree`, `Sessions`, `Locks` and `Quotas` own their fields, and `State` composes them. All
//! changes of these parts go through the methods in `state/changes.rs` and `state/quotas.rs`. An
//! operation is a method of `State` in a file of its own. Calling it needs no import, but each
//! call counts as a use of that file.

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
pub use entry::create_mode::CreateMode;
pub use entry::history_hash::HistoryHash;
pub use entry::kind::Kind;
pub use entry::ops::{Asker, OpRow};
pub use entry::record_key::RecordKey;
pub use entry::txn::{
    Acquire, AcquireAll, Create, Credential, Ensure, HeldTicket, LockGuard, LockSettings, Op, Policy, ReapCandidate,
    Request, SecretHash, TicketRef, Txn, Upgrade, WriteTurn, ZnodeOp, secret_hash,
};
pub use entry::txn_outcome::{Event, EventKind, EventRecord, Refusal, Reply, TxnOutcome};
pub use queue::contender::{Contender, Hold};
pub use restore::{RESTORED_INDEX, RESTORING, Restore, RestoreError};
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
pub use words::level::{LEVEL_MAX, LEVEL_MIN, Levels, OtherLevel, Program};
pub use words::limits::Limits;
pub use words::mode::LockMode;
pub use words::path::ZPath;
pub use words::stat::Stat;
