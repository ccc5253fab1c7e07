//! Writes on their way to the log.

pub(crate) mod budget;
pub(crate) mod closings;
pub(crate) mod entry_clock;
pub(crate) mod propose;
pub(crate) mod retry;
