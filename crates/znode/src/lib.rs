//! The replicated state machine of zlock: znodes, sessions and locks. Pure: values in, values out.
//!
//! [`State::apply`] takes one entry of the log and gives back an [`Applied`]: a reply for the one
//! who asked, events for those who watch. It reads no clock, no random number and no hash order, so
//! every replica that applies the same log has the same state, byte for byte ([`State::records`]).
//!
//! Each file uses only files of its own layer or of one above it in this list, and no two use each
//! other. A file's first lines say what it is for.
//!
//! ```text
//! words        error ids level path acl stat limits weight   lock/: mode ticket_name
//! requests     entry/: txn (what is asked)  ops (their table)  codec (their bytes)  applied (answers)
//! one lock     lock/: contender demand queue ended revocations mixed_clients
//! one znode    tree/: znode usage system_paths acls
//! components   tree (Tree)  tree/quota (Quotas)  session/open (Sessions)  lock/locks (Locks)
//!              cluster (Cluster)  state (State, which composes them)
//! edits        entry/: context changes budget events   tree/: permissions charge   session/: actors
//!              lock/: positions granted history        tree/: edit containers
//! operations   lock/: readings tickets grant deadlock acquire multilock upgrade managed release
//!                     revoke
//!              session/: ops       cluster/: ops       entry/: cost                tree/: ops
//! everything   apply (one entry, from its credential to its answer)  snapshot  invariants
//!              restore (the first state of a restored cluster)
//! ```
//!
//! `Tree`, `Sessions`, `Locks` and `Quotas` own their fields, and `State` composes them. An
//! operation is a method of `State` in a file of its own. It is called without an import, and each
//! call is a use of that file all the same.

mod acl;
mod apply;
mod cluster;
mod entry;
mod error;
mod ids;
mod invariants;
mod level;
mod limits;
pub mod lock;
mod path;
mod restore;
mod session;
mod snapshot;
mod stat;
mod state;
mod tree;
mod weight;

pub use acl::{
    ADMIN, ALL, Acl, CREATE, DELETE, Identity, KEEPER, NOTHING, READ, SUPER, WRITE, fixed_acl, permits, super_user,
    user,
};
pub use cluster::{Cluster, ClusterUuid, Founding, ZXID_BASE_MAX};
pub use entry::applied::{Applied, Event, EventKind, Recorded, Refusal, Reply};
pub use entry::codec::{BYTES_MAX, DecodeError, decode_request, decode_txn, encode_request, encode_txn, fingerprint};
pub use entry::ops::{Asker, OpRow};
pub use entry::txn::{
    Acquire, AcquireAll, Create, CreateMode, Credential, Ensure, HeldTicket, LockGuard, LockSettings, Op, Policy,
    ReapCandidate, Request, SecretHash, TicketRef, Turn, Txn, Upgrade, ZnodeOp, secret_hash,
};
pub use error::Error;
pub use ids::{Attempt, FencingToken, LogPosition, RequestKey, SessionId, Term, Zxid};
pub use level::{LEVEL_MAX, LEVEL_MIN, Levels, OtherLevel};
pub use limits::{LimitRow, Limits, Unit};
pub use lock::contender::{Contender, Hold};
pub use lock::mode::LockMode;
pub use path::ZPath;
pub use restore::{RESTORED_INDEX, RESTORED_TERM, RESTORING, Restore, RestoreError};
pub use session::Session;
pub use session::client_info::{Actor, ClientInfo};
pub use snapshot::StateBuilder;
pub use stat::Stat;
pub use state::State;
pub use tree::edit::SEQUENCE_MAX;
pub use tree::quota::{Quota, QuotaLimits};
pub use tree::usage::Usage;
pub use tree::znode::{Kind, Znode};
