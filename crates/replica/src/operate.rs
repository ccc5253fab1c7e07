//! What an operator is told, and what keeps the machine in order.

pub mod background;
pub(crate) mod counters;
pub(crate) mod disk_space;
pub(crate) mod disk_stall;
pub(crate) mod disk_watch;
pub(crate) mod drained;
pub(crate) mod forced;
pub(crate) mod health;
pub(crate) mod housekeeping;
pub(crate) mod orders;
pub(crate) mod seldom;
pub(crate) mod serving;
pub(crate) mod status;
pub(crate) mod story;
pub(crate) mod told;
pub(crate) mod upgrade;
