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
//! **One [`Client`] serves all nodes.** It sends writes to the leader, which saves a hop, and asks
//! another node when a node fails. The pauses between tries grow and are random, so that clients do
//! not retry together. Every write carries an idempotency key, so a retry is never applied twice.
//! Calls without a key are repeated only if a repetition is safe.
//!
//! **Errors are of three kinds** ([`Error`]): refused, unavailable (nothing was done), unknown (the
//! call may have been carried out).
//!
//! **Work under a lock stops when the lock is lost** ([`Lock::with`]): its future is dropped.
//!
//! **A session fences itself.** It is kept alive in the background. Its deadline counts from the
//! moment at which a heartbeat was sent, on a clock of this machine that goes on while the machine
//! sleeps. When the deadline passes, the session is lost before the cluster can give its locks to
//! others ([`SessionState`], [`Guard::lost`], [`Guard::safe_until`]). A program can still be paused
//! between a look at the clock and its next step; fencing tokens and `if_lock` protect against
//! that.
//!
//! **Dropping is safe.** A dropped acquire leaves the queue, a dropped guard releases, and a
//! dropped client closes its session, all in the background. A dropped future of a watch loses no
//! event. The background work ends with the program; [`Client::run`] closes the session before it
//! returns.
//!
//! `api.rs` and `api/` have the types of the HTTP API; `client.rs` and `client/` are the client,
//! which the feature `client` turns on:
//!
//! | file | content |
//! |---|---|
//! | `client.rs`, `builder.rs`, `environment.rs` | [`Client`], its session, its settings |
//! | `lock.rs`, `guard.rs`, `fate.rs` | locks, held locks, reasons of a loss |
//! | `claim.rs`, `holding.rs` | lock nodes: from acquire to release, and their loss |
//! | `simple_lock.rs`, `semaphore.rs`, `multi_lock.rs`, `election.rs` | the other kinds of locks |
//! | `group.rs`, `barrier.rs`, `double_barrier.rs` | recipes that are no locks |
//! | `znodes.rs`, `txn.rs`, `watch.rs` | calls on znodes |
//! | `views.rs`, `download.rs`, `operate.rs` | calls about the cluster, some for operators |
//! | `session.rs`, `life.rs`, `clock.rs` | heartbeats and the deadline of the session |
//! | `window.rs` | bound on unfinished writes, so that the cluster remembers their answers |
//! | `transport.rs`, `endpoints.rs`, `backoff.rs` | repeated tries of a call, and their endpoints |
//! | `call.rs`, `tries.rs`, `verdict.rs` | requests, and the results of their tries |
//! | `connection.rs`, `secure.rs` | connections, with or without TLS |

pub mod api;
#[cfg(feature = "client")]
mod client;

pub use crate::api::{
    AclEntry, AclInfo, Actor, CertificateInfo, ChangedZnode, ClientInfo, Cluster, Contender, CreatedZnode, Deletion,
    Drain, EndedTicket, EventInfo, EventKind, GroupMember, HeldPart, Leader, LockHistory, LockMode, LockQueue,
    LockSettings, LockSettingsInfo, LockSummary, MemberInfo, MemberState, MemberUpgrade, Members, Mode, NamedStat,
    PeerConnections, Problem, ProblemType, Release, Revocation, RevokeRequest, SessionInfo, SessionKey, SimpleHolder,
    Stat, Transfer, TxnAnswer, TxnOp, TxnResult, Upgrade,
};
#[cfg(feature = "client")]
pub use client::{
    Client, ClientBuilder, CreateRequest, DeleteRequest, DistributedBarrier, DistributedDoubleBarrier, Election, Error,
    Group, Guard, Leadership, Lock, Loss, MultiGuard, MultiLock, NewMember, Observer, OpenedSession, RwLock, Semaphore,
    SessionEvent, SessionEvents, SessionState, SetDataRequest, SimpleLock, Transaction, WatchKind, Watcher, WithError,
    Znode,
};
