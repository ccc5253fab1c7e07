//! Watches, and the clients that are sent events.

pub(crate) mod audience;
pub(crate) mod departures;
pub(crate) mod evictions;
pub(crate) mod hub;
pub(crate) mod read_points;
pub(crate) mod watch_table;
