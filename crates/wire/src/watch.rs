//! Watches, and the sending of events to the clients that set them.

pub(crate) mod audience;
pub(crate) mod departures;
pub(crate) mod evictions;
pub(crate) mod hub;
pub(crate) mod read_points;
pub(crate) mod watch_table;
