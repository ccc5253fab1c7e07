//! Requests: their headers, query, path and body, and their access to znodes.

pub(crate) mod access;
pub(crate) mod call;
pub(crate) mod caller;
pub(crate) mod cursors;
pub(crate) mod door;
pub(crate) mod identity;
pub(crate) mod operator;
pub(crate) mod paths;
pub(crate) mod query;
pub(crate) mod texts;
pub(crate) mod turns;
pub(crate) mod wait;
