//! Writes on their way from the client to the log.

pub(crate) mod budget;
pub(crate) mod closings;
pub(crate) mod proposal_queue;
pub(crate) mod propose;
pub(crate) mod retry;
