//! The HTTP door: every request becomes one call of a [`replica::Replica`], every answer one JSON document.
//!
//! ```text
//!  connection -> serve.rs      their number; handshakes; the end of all
//!             -> connection.rs bounds: head, idle, stalled answers; parked while idle
//!             -> door.rs       every request: bounds of the head, heartbeat; every answer: Zlock-Zxid, -Node, -Leader
//!             -> origin.rs     which pages of a browser may ask
//!             -> call.rs       headers (caller.rs), query (query.rs), path (paths.rs), body; what it may read (access.rs)
//!             -> sessions.rs   znodes.rs  watch.rs  txn.rs  acquire.rs  locks.rs  past.rs  revoke.rs  node.rs  openapi.rs
//!                release.rs  fence.rs  holders.rs  elections.rs  groups.rs  multilocks.rs  simple_locks.rs  ensure.rs  metrics.rs
//!             -> problem.rs    the only place where an error meets HTTP
//!             -> long_answers.rs  their place among the bodies (bodies.rs)
//! ```
//!
//! The door translates and waits, and decides nothing: whether a wait ended with or without the lock is decided by the
//! log. What an acquire leaves in a queue is guarded by `waiter.rs` until the client has its answer (`delivery.rs`).

mod access;
mod acquire;
mod bodies;
mod call;
mod caller;
mod config;
mod connection;
mod cursors;
mod delivery;
mod door;
mod elections;
mod ensure;
mod fence;
mod groups;
mod heartbeat;
mod holders;
mod identity;
mod lint;
mod locks;
mod long_answers;
mod metrics;
mod multilocks;
mod node;
mod openapi;
mod origin;
mod past;
mod paths;
mod peer;
mod problem;
mod query;
mod release;
mod revoke;
mod routes;
mod serve;
mod sessions;
mod simple_locks;
mod txn;
mod wait;
mod waiter;
mod watch;
mod words;
mod znodes;

pub use config::RestConfig;
pub use origin::{normal_host, normal_origin};
pub use routes::{openapi_document, router};
pub use serve::serve;
