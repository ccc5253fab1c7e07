//! The replicated state machine of zlock: znodes, sessions and locks. Pure: values in, values out.
//!
//! [`State::apply`] takes one entry of the log and gives back an [`Applied`]: a reply for the one who asked, events for
//! those who watch. It reads no clock, no random number and no hash order, so every replica that applies the same log has
//! the same state, byte for byte ([`State::records`]).
//!
//! ```text
//! state.rs      State, who asks and whether it was answered before     sessions.rs  open, close, expire
//! changes.rs    what an entry has changed so far                       txn.rs       what an entry asks for
//! tree.rs       create, delete, set, multi, reap                       znode.rs     Znode and its children
//! acquire.rs    acquire, release, withdraw                             lock.rs      readings: status, queue, list
//! lock/queue.rs who holds, who waits, with which token                 lock/grant.rs  who holds next
//! lock/demand.rs  what a ticket wants                                  lock/upgrade.rs  upgrade, downgrade
//! multilock.rs  several locks at once, all or none                     quota.rs     what a subtree may have
//! closed_lock.rs  priorities, a bounded queue, hand-over               subtree.rs   what is below each znode
//! keyless.rs    acquires that nothing tells apart                      release_held.rs  giving back by the lock's name
//! client_info.rs  who a client is, for people                          acls.rs      each ACL once
//! ensure.rs     creates that see to a session's znode                  cluster.rs   founding, level, removed members
//! cost.rs       what one entry may do                                  weight.rs    what the state may weigh
//! snapshot.rs   the state as records                                   invariants.rs  what must always be true
//! system_paths.rs  /zookeeper, which is not the clients'               permissions.rs  which ACL counts, and for whom
//! lock/         what is kept beside the queue: past.rs, revoke.rs; deadlock.rs and naming.rs look at it
//! ```

mod acl;
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
pub use entry::applied::{Applied, Event, EventKind, Recorded, Reply};
pub use entry::codec::{BYTES_MAX, DecodeError, decode_request, decode_txn, encode_request, encode_txn, fingerprint};
pub use entry::ops::{Asker, LEVEL, OpRow};
pub use entry::txn::{
    Acquire, AcquireAll, Create, CreateMode, Credential, Ensure, Keyless, LockGuard, LockMode, Op, Policy,
    ReapCandidate, ReleaseHeld, Request, SecretHash, Turn, Txn, Upgrade, ZnodeOp, secret_hash,
};
pub use error::{Error, Refusal};
pub use ids::{Attempt, FencingToken, LogPosition, RequestKey, SessionId, Term, Zxid};
pub use limits::{LimitRow, Limits, Unit};
pub use lock::queue::LockSettings;
pub use path::ZPath;
pub use session::Session;
pub use session::client_info::{Actor, ClientInfo};
pub use snapshot::StateBuilder;
pub use stat::Stat;
pub use state::State;
pub use tree::quota::{Quota, QuotaLimits};
pub use tree::usage::Usage;
pub use tree::znode::{Contender, Hold, Kind, Znode};
