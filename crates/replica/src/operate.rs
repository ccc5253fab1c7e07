//! Reports for operators, and the work of a node that keeps it and the cluster operable: its disk,
//! drains, upgrades, log lines.

pub(crate) mod change_reporter;
pub(crate) mod comparison;
pub(crate) mod disk_stall;
pub(crate) mod drain_wish;
pub(crate) mod health;
pub(crate) mod housekeeping;
pub(crate) mod serving;
pub(crate) mod status;
pub(crate) mod story;
pub(crate) mod upgrade;
