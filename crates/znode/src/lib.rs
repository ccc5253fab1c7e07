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
mod acls;
mod acquire;
mod applied;
mod changes;
mod client_info;
mod closed_lock;
mod cluster;
mod codec;
mod cost;
mod ensure;
mod error;
mod ids;
mod invariants;
mod keyless;
mod limits;
pub mod lock;
mod multilock;
mod ops;
mod path;
mod permissions;
mod quota;
mod release_held;
mod session;
mod sessions;
mod snapshot;
mod stat;
mod state;
mod subtree;
mod system_paths;
mod ticket_name;
mod tree;
mod txn;
mod weight;
mod znode;

pub use acl::{ADMIN, ALL, Acl, CREATE, DELETE, Identity, KEEPER, READ, SUPER, WRITE, fixed_acl, permits, user};
pub use applied::{Applied, Event, EventKind, Recorded, Reply};
pub use client_info::{Actor, ClientInfo};
pub use cluster::{Cluster, ClusterUuid, Founding, ZXID_BASE_MAX};
pub use codec::{BYTES_MAX, DecodeError, decode_request, decode_txn, encode_request, encode_txn, fingerprint};
pub use error::{Error, Refusal};
pub use ids::{Attempt, FencingToken, LogPosition, RequestKey, SessionId, Term, Zxid};
pub use limits::{LimitRow, Limits, Unit};
pub use lock::queue::LockSettings;
pub use ops::{Asker, LEVEL, OpRow};
pub use path::ZPath;
pub use quota::{Quota, QuotaLimits};
pub use session::Session;
pub use snapshot::StateBuilder;
pub use stat::Stat;
pub use state::State;
pub use subtree::Usage;
pub use txn::{
    Acquire, AcquireAll, Create, CreateMode, Credential, Ensure, Keyless, LockGuard, LockMode, Op, Policy,
    ReapCandidate, ReleaseHeld, Request, SecretHash, Turn, Txn, Upgrade, ZnodeOp, secret_hash,
};
pub use znode::{Contender, Hold, Kind, Znode};
