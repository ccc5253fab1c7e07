//! Types that openraft is parameterized with, and the async runtime for it.

pub(crate) mod responder;
pub(crate) mod runtime;
pub(crate) mod types;
pub(crate) mod watch;
