//! Connections of clients: their bounds, and the delivery of answers.

pub(crate) mod at_work;
pub(crate) mod bodies;
pub(crate) mod connection;
pub(crate) mod delivery;
pub(crate) mod heartbeat;
pub(crate) mod layer;
pub(crate) mod long_answers;
pub(crate) mod long_work;
pub(crate) mod origin;
pub(crate) mod peer;
pub(crate) mod route_times;
pub(crate) mod serve;
pub(crate) mod waiter;
