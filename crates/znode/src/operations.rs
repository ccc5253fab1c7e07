//! Operations on the state. Each is a method of `State`.

pub(crate) mod acquire;
pub(crate) mod cluster;
pub(crate) mod cost;
pub(crate) mod deadlock;
pub(crate) mod grant;
pub(crate) mod managed;
pub(crate) mod multilock;
pub(crate) mod readings;
pub(crate) mod release;
pub(crate) mod revoke;
pub(crate) mod session;
pub(crate) mod tickets;
pub(crate) mod tree;
pub(crate) mod upgrade;
