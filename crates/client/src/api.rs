//! Types of the HTTP API for clients and nodes: requests, answers, and problem documents (RFC
//! 9457).
//!
//! The types are plain data. Numbers that a client compares (`zxid`, `fencing_token`, session ids)
//! are JSON numbers below 2^53. Names that end in `_at_ms` are times in
//! milliseconds since 1970, other names in `_ms` are durations. Durations in requests are texts
//! with a unit, such as `"30s"` ([`Millis`]).
//!
//! | file | content |
//! |---|---|
//! | `headers.rs` | the names of the headers |
//! | `duration.rs` | durations as clients write them |
//! | `session_key.rs` | the value of `Zlock-Session-Key` |
//! | `problem.rs` | RFC 9457 problems, their type URIs and outcomes |
//! | `path.rs` | znode paths in URLs and headers |
//! | `unseen.rs` | invisible characters, which labels must not have |
//! | `history.rs` | past tickets and ended sessions |
//! | `client_info.rs` | descriptions of clients, for people |
//! | `session.rs`, `znode.rs`, `txn.rs`, `lock.rs` | requests and answers |
//! | `multilock.rs`, `election.rs`, `group.rs`, `cluster.rs` | requests and answers |

mod client_info;
mod cluster;
mod duration;
mod election;
mod group;
pub mod headers;
mod history;
mod lock;
mod multilock;
mod path;
mod problem;
mod session;
mod session_key;
mod txn;
mod unseen;
mod znode;

pub use client_info::*;
pub use cluster::*;
pub use duration::*;
pub use election::*;
pub use group::*;
pub use history::*;
pub use lock::*;
pub use multilock::*;
pub use path::*;
pub use problem::*;
pub use session::*;
pub use session_key::*;
pub use txn::*;
pub use unseen::*;
pub use znode::*;
