//! The replicated state machine of zlock. Pure: values in, values out.

mod acl;
mod applied;
mod error;
mod ids;
mod limits;
pub mod lock;
mod path;
mod stat;
mod txn;

pub use acl::{ADMIN, ALL, Acl, CREATE, DELETE, READ, WRITE};
pub use applied::{Applied, Event, EventKind, Reply};
pub use error::{Error, Refusal};
pub use ids::{Attempt, FencingToken, LogPosition, RequestKey, SessionId, Term, Zxid};
pub use limits::Limits;
pub use path::ZPath;
pub use stat::Stat;
pub use txn::{
    Acquire, Create, CreateMode, Credential, Idempotency, LockGuard, LockMode, Op, ReapCandidate, Request, Txn, ZnodeOp,
};
