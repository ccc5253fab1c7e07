//! The Rust client of zlock.
//!
//! ```no_run
//! # async fn example() -> Result<(), zlock_client::Error> {
//! use zlock_client::Client;
//!
//! let client = Client::connect(["localhost:7001", "localhost:7002", "localhost:7003"]).await?;
//! // Closes the session when the work has ended, also by an error or a panic.
//! client.run(async |client| {
//!     let guard = client.lock("/orders").acquire().await?;
//!     // Refused unless the lock is held at the moment when the write is applied.
//!     client.set("/orders-state", "worked on").if_lock(&guard).await?;
//!     guard.release().await
//! }).await?;
//! # Ok(())
//! # }
//! ```
//!
//! **One [`Client`] speaks with all nodes.** It writes to the leader where that saves a hop, asks
//! another node when one fails, and pauses between tries, longer each time and never as long as
//! other clients do. Every write carries an idempotency key, so a retry is never done twice. What
//! cannot be repeated safely is not repeated.
//!
//! **Errors are of three kinds** ([`Error`]): refused, unavailable (nothing was done), unknown
//! (maybe it was).
//!
//! **Work under a lock is stopped when the lock is lost** ([`Lock::with`]): its future is dropped.
//!
//! **A session fences itself.** It is kept alive in the background. Its deadline counts from the
//! moment a heartbeat was sent, on this machine's clock that goes on while the machine sleeps. When
//! the deadline passes, the session is lost before the cluster can give its locks to others
//! ([`SessionState`], [`Guard::lost`], [`Guard::safe_until`]). Between a look at the clock and the
//! next step a program can still be paused; fencing tokens and `if_lock` are what helps then.
//!
//! **Dropping is safe.** A dropped acquire leaves the queue, a dropped guard releases, a dropped
//! client closes its session, all in the background; a dropped watch continues where it was. The
//! background ends with the program: [`Client::run`] closes the session before.
//!
//! `api.rs` and `api/` have the words of the HTTP API; `client.rs` and `client/` are the client,
//! which the feature `client` turns on:
//!
//! | file | has |
//! |---|---|
//! | `client.rs`, `builder.rs`, `environment.rs` | [`Client`], its session, its settings |
//! | `lock.rs`, `claim.rs`, `guard.rs`, `fate.rs` | locks, a place in a queue, a lock that is held, why it was lost |
//! | `simple_lock.rs`, `semaphore.rs`, `multi_lock.rs`, `election.rs`, `group.rs`, `barrier.rs`, `double_barrier.rs` | the other recipes |
//! | `znodes.rs`, `txn.rs`, `watch.rs`, `views.rs`, `download.rs` | the calls |
//! | `operate.rs` | what is for operators |
//! | `session.rs`, `life.rs`, `clock.rs` | heartbeats and the deadline |
//! | `window.rs` | keeps retries within the memory of the state |
//! | `transport.rs`, `tries.rs`, `verdict.rs`, `endpoints.rs`, `backoff.rs`, `call.rs` | tries and what they mean |
//! | `connection.rs`, `secure.rs` | connections, with TLS where nodes want it |

pub mod api;
#[cfg(feature = "client")]
mod client;

pub use crate::api::{
    AclEntry, AclInfo, Actor, ClientInfo, Cluster, Contender, Created, Deleted, Drain, EndedTicket, EventInfo,
    EventKind, GroupMember, HeldPart, Leader, LockHistory, LockMode, LockQueue, LockSet, LockSettings, LockSummary,
    MemberInfo, MemberState, MemberUpgrade, Members, Mode, NamedStat, NodeSet, Problem, ProblemType, RevokeRequest,
    Revoked, SessionInfo, SimpleHolder, Stat, Transfer, TxnDone, TxnOp, TxnResult, Upgrade,
};
#[cfg(feature = "client")]
pub use client::{
    Client, ClientBuilder, Create, Delete, DistributedBarrier, DistributedDoubleBarrier, Election, Error, Group, Guard,
    Leadership, Lock, Loss, MultiGuard, MultiLock, NewMember, Observer, OpenedSession, RwLock, Semaphore, SessionEvent,
    SessionEvents, SessionState, Set, SimpleLock, Transaction, WatchKind, Watcher, WithError, Znode,
};
