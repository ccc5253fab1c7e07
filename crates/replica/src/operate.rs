//! Reports for operators, and a node's work for its own machine and the cluster's order: disk,
//! drain, upgrade, log lines.

pub(crate) mod change_reporter;
pub(crate) mod disk_stall;
pub(crate) mod drain_wish;
pub(crate) mod health;
pub(crate) mod housekeeping;
pub(crate) mod serving;
pub(crate) mod status;
pub(crate) mod story;
pub(crate) mod upgrade;
