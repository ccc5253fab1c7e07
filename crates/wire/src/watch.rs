//! Who watches what, and who hears of it.

pub(crate) mod concerned;
pub(crate) mod hub;
pub(crate) mod watch_table;
pub(crate) mod watches;
