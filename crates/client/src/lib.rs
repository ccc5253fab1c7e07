//! The Rust client of zlock.
//!
//! ```no_run
//! # async fn example() -> Result<(), zlock_client::Error> {
//! use zlock_client::Client;
//!
//! let client = Client::connect(["localhost:7001", "localhost:7002", "localhost:7003"]).await?;
//! let guard = client.lock("/orders").acquire().await?;
//! // Refused unless the lock is held at the moment when the write is applied.
//! client.set("/orders-state", "worked on").if_lock(&guard).await?;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! **One [`Client`] speaks with all nodes.** It writes to the leader where that saves a hop, asks another node when one fails, and
//! pauses between tries, longer each time and never as long as other clients do. Every write carries an idempotency key, so
//! a retry is never done twice. What cannot be repeated safely is not repeated.
//!
//! **Errors are of three kinds** ([`Error`]): refused, unavailable (nothing was done), unknown (maybe it was).
//!
//! **Work under a lock is stopped when the lock is lost** ([`Lock::with`]): its future is dropped.
//!
//! **A session fences itself.** It is kept alive in the background. Its deadline counts from the moment a heartbeat was sent, on
//! this machine's clock that goes on while the machine sleeps. When the deadline passes, the session is lost before the
//! cluster can give its locks to others ([`SessionState`], [`Guard::lost`], [`Guard::safe_until`]). Between a look at the clock
//! and the next step a program can still be paused; fencing tokens and `if_lock` are what helps then.
//!
//! **Dropping is safe.** A dropped acquire leaves the queue, a dropped guard releases, a dropped client closes its session,
//! all in the background; a dropped watch continues where it was.
//!
//! | file | has |
//! |---|---|
//! | `client.rs`, `builder.rs`, `environment.rs` | [`Client`], its session, its settings |
//! | `lock.rs`, `claim.rs`, `guard.rs`, `fate.rs` | locks, a place in a queue, a lock that is held, why it was lost |
//! | `simple_lock.rs`, `semaphore.rs`, `multi_lock.rs`, `election.rs`, `gathering.rs` | the other recipes |
//! | `znodes.rs`, `txn.rs`, `watch.rs`, `views.rs` | the calls |
//! | `session.rs`, `life.rs`, `clock.rs` | heartbeats and the deadline |
//! | `window.rs` | keeps retries within the memory of the state |
//! | `transport.rs`, `tries.rs`, `verdict.rs`, `endpoints.rs`, `backoff.rs`, `call.rs` | tries and what they mean |
//! | `connection.rs`, `secure.rs` | connections, with TLS where nodes want it |

pub mod api;
#[cfg(feature = "client")]
mod backoff;
#[cfg(feature = "client")]
mod builder;
#[cfg(feature = "client")]
mod call;
#[cfg(feature = "client")]
mod claim;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod clock;
#[cfg(feature = "client")]
mod connection;
#[cfg(feature = "client")]
mod election;
#[cfg(feature = "client")]
mod endpoints;
#[cfg(feature = "client")]
mod environment;
#[cfg(feature = "client")]
mod error;
#[cfg(test)]
#[cfg(feature = "client")]
mod fake_node;
#[cfg(feature = "client")]
mod fate;
#[cfg(feature = "client")]
mod gathering;
#[cfg(feature = "client")]
mod guard;
#[cfg(feature = "client")]
mod holding;
#[cfg(feature = "client")]
mod life;
#[cfg(feature = "client")]
mod lock;
#[cfg(test)]
#[cfg(feature = "client")]
mod losses;
#[cfg(feature = "client")]
mod multi_lock;
#[cfg(feature = "client")]
mod own_details;
#[cfg(test)]
#[cfg(feature = "client")]
mod secrets;
#[cfg(feature = "client")]
mod secure;
#[cfg(feature = "client")]
mod semaphore;
#[cfg(feature = "client")]
mod session;
#[cfg(feature = "client")]
mod simple_lock;
#[cfg(feature = "client")]
mod transport;
#[cfg(feature = "client")]
mod tries;
#[cfg(feature = "client")]
mod txn;
#[cfg(feature = "client")]
mod verdict;
#[cfg(feature = "client")]
mod views;
#[cfg(feature = "client")]
mod watch;
#[cfg(feature = "client")]
mod window;
#[cfg(feature = "client")]
mod znodes;

pub use crate::api::{
    AclEntry, AclInfo, Actor, ClientInfo, Cluster, Contender, Created, Deleted, EventInfo, EventKind, GroupMember,
    HeldPart, Leader, LockHistory, LockMode, LockQueue, LockSet, LockSettings, LockSummary, MemberInfo, Mode,
    NamedStat, NodeSet, PastTicket, Problem, ProblemType, RevokeRequest, Revoked, SessionInfo, SimpleHolder, Stat,
    TxnDone, TxnOp, TxnResult,
};
#[cfg(feature = "client")]
pub use builder::ClientBuilder;
#[cfg(feature = "client")]
pub use client::{Client, SessionEvents};
#[cfg(feature = "client")]
pub use election::{Election, Leadership, Observer};
#[cfg(feature = "client")]
pub use error::Error;
#[cfg(feature = "client")]
pub use fate::Loss;
#[cfg(feature = "client")]
pub use gathering::{Barrier, DoubleBarrier, Group};
#[cfg(feature = "client")]
pub use guard::Guard;
#[cfg(feature = "client")]
pub use life::SessionState;
#[cfg(feature = "client")]
pub use lock::{Lock, RwLock, WithError};
#[cfg(feature = "client")]
pub use multi_lock::{MultiGuard, MultiLock};
#[cfg(feature = "client")]
pub use semaphore::Semaphore;
#[cfg(feature = "client")]
pub use session::{OpenedSession, SessionEvent};
#[cfg(feature = "client")]
pub use simple_lock::SimpleLock;
#[cfg(feature = "client")]
pub use txn::Transaction;
#[cfg(feature = "client")]
pub use watch::{WatchKind, Watcher};
#[cfg(feature = "client")]
pub use znodes::{Create, Delete, Set, Znode};
