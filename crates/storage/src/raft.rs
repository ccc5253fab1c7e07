//! Types with which openraft is parameterized, and the async runtime on which it runs.

pub(crate) mod responder;
pub(crate) mod runtime;
pub(crate) mod types;
pub(crate) mod watch;
