//! The replicated state machine of zlock: znodes, sessions and locks. Pure: values in, values out.
//!
//! [`State::apply`] takes one entry of the log and gives back an [`Applied`]: a reply for the one
//! who asked, events for those who watch. It reads no clock, no random number and no hash order, so
//! every replica that applies the same log has the same state, byte for byte ([`State::records`]).
//!
//! ```text
//! state.rs        State, who asks, and whether it was answered before      cluster.rs     founding, level, removed members
//! tree.rs         Tree: all znodes, and what finds and counts them         snapshot.rs    the state as records
//!   ops.rs        create, delete, set, multi, reap                         invariants.rs  what must always be true
//!   znode.rs      Znode and its children                                   weight.rs      what the state may weigh
//!   ensure.rs     creates that see to a session's znode                    acls.rs        each ACL once
//!   quota.rs      what a subtree may have                                  usage.rs       what is below each znode
//!   permissions.rs  which ACL counts, and for whom                         system_paths.rs  /zookeeper
//! session.rs      Session, and which of its requests were answered
//!   open.rs       Sessions: all that are open                              ops.rs         open, attach, close, expire
//!   client_info.rs  who a client is, for people
//! lock.rs         readings: where a ticket stands, who queues
//!   locks.rs      Locks: what is kept of all locks together                queue.rs       one lock: who holds, who waits
//!   acquire.rs    acquire, release, withdraw                               grant.rs       who holds next
//!   demand.rs     what a ticket wants                                      ticket_name.rs  its name in few bytes
//!   keyless.rs    acquires that nothing tells apart                        release_held.rs  giving back by the lock's name
//!   multilock.rs  several locks at once, all or none                       upgrade.rs     upgrade, downgrade
//!   managed.rs    priorities, a bounded queue, hand-over                   deadlock.rs    cycles of waits are refused
//!   history.rs    tickets and sessions that have ended                     revoke.rs      asking for a ticket
//!   mixed_clients.rs  clients that do not see each other
//! entry.rs        txn.rs what an entry asks for, ops.rs the table of operations, codec.rs its bytes, applied.rs what comes of it,
//!                 changes.rs what it has changed so far, cost.rs what it may do
//! ```
//!
//! `tree.rs`, `session/open.rs` and `lock/locks.rs` own their fields, and `State` composes the
//! three. The other files say what operations do to them as methods of `State`, so they know
//! `State` while `State` knows them.

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
