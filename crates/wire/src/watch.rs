//! Watches, and the clients that hear of events.

pub(crate) mod audience;
pub(crate) mod departures;
pub(crate) mod evictions;
pub(crate) mod hub;
pub(crate) mod read_points;
pub(crate) mod watch_table;
