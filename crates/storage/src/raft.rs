//! What openraft is told of this crate: the types of its Raft, and the runtime that it runs on.

pub(crate) mod responder;
pub(crate) mod runtime;
pub(crate) mod types;
pub(crate) mod watch;
