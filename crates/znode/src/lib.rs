//! The replicated state machine of zlock: znodes, sessions and locks. Pure: values in, values out.
//!
//! [`State::apply`] takes one entry of the log and gives back an [`Applied`]: a reply for the one
//! who asked, events for those who watch. It reads no clock, no random number and no hash order, so
//! every replica that applies the same log has the same state, byte for byte ([`State::records`]).
//!
//! Each file uses only files above it in this list, but for methods of [`State`]:
//!
//! ```text
//! words           error.rs  ids.rs  path.rs  acl.rs  stat.rs  limits.rs  weight.rs
//!                 lock/mode.rs           how an acquire wants a lock      lock/ticket_name.rs   what the name of a ticket says
//! requests        entry/txn.rs           what an entry asks for           entry/ops.rs          the table of operations
//!                 entry/codec.rs         its bytes                        entry/applied.rs      what comes of it
//! one lock        lock/contender.rs      what a lock node knows           lock/demand.rs        what a ticket wants
//!                 lock/queue.rs          who holds, who waits             lock/ended.rs         tickets that have ended
//!                 lock/revocations.rs    tickets that were asked for      lock/mixed_clients.rs clients that do not see each other
//! one znode       tree/znode.rs          Znode and its children           tree/usage.rs         what is below it
//! components      tree.rs                Tree: all znodes                 tree/quota.rs         Quotas: what a subtree may have
//!                 session/open.rs        Sessions: all that are open      session.rs            Session, and its answered requests
//!                 lock/locks.rs          Locks: kept of all together      cluster.rs            founding, level, removed members
//!                 state.rs               State, which composes these
//! operations      entry/changes.rs       what an entry has changed so far entry/cost.rs         what it may do
//!                 tree/ops.rs            create, delete, set, multi, reap tree/ensure.rs        a session's own znode
//!                 tree/charge.rs         what counts for quotas           tree/permissions.rs   which ACL counts, and for whom
//!                 session/ops.rs         open, attach, close, expire      session/actors.rs     who asks, as it is kept
//!                 lock/readings.rs       where a ticket stands            lock/history.rs       what a lock remembers
//!                 lock/grant.rs          who holds next                   lock/deadlock.rs      cycles of waits are refused
//!                 lock/acquire.rs        acquire, release, withdraw       lock/keyless.rs       acquires that nothing tells apart
//!                 lock/multilock.rs      several locks, all or none       lock/upgrade.rs       upgrade, downgrade
//!                 lock/managed.rs        priorities, hand-over            lock/release_held.rs  by the lock's name
//!                 lock/revoke.rs         asking for a ticket              cluster/ops.rs        founding
//! everything      apply.rs               an entry from its credential to its answer
//!                 snapshot.rs            the state as records             invariants.rs         what must always be true
//! ```
//!
//! `Tree`, `Sessions`, `Locks` and `Quotas` own their fields, and `State` composes them. An operation is
//! a method of `State` in a file of its own, so that `apply.rs` can call each by its name.

mod acl;
mod apply;
mod cluster;
mod entry;
mod error;
mod ids;
mod invariants;
mod limits;
pub mod lock;
mod path;
mod session;
mod snapshot;
mod stat;
mod state;
mod tree;
mod weight;

pub use acl::{ADMIN, ALL, Acl, CREATE, DELETE, Identity, KEEPER, READ, SUPER, WRITE, fixed_acl, permits, user};
pub use cluster::{Cluster, ClusterUuid, Founding, ZXID_BASE_MAX};
pub use entry::applied::{Applied, Event, EventKind, Recorded, Refusal, Reply};
pub use entry::codec::{BYTES_MAX, DecodeError, decode_request, decode_txn, encode_request, encode_txn, fingerprint};
pub use entry::ops::{Asker, LEVEL, OpRow};
pub use entry::txn::{
    Acquire, AcquireAll, Create, CreateMode, Credential, Ensure, Keyless, LockGuard, LockSettings, Op, Policy,
    ReapCandidate, ReleaseHeld, Request, SecretHash, Turn, Txn, Upgrade, ZnodeOp, secret_hash,
};
pub use error::Error;
pub use ids::{Attempt, FencingToken, LogPosition, RequestKey, SessionId, Term, Zxid};
pub use limits::{LimitRow, Limits, Unit};
pub use lock::contender::{Contender, Hold};
pub use lock::mode::LockMode;
pub use path::ZPath;
pub use session::Session;
pub use session::client_info::{Actor, ClientInfo};
pub use snapshot::StateBuilder;
pub use stat::Stat;
pub use state::State;
pub use tree::quota::{Quota, QuotaLimits};
pub use tree::usage::Usage;
pub use tree::znode::{Kind, Znode};
