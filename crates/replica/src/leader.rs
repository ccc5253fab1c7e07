//! Work that a node does only while it leads.

pub(crate) mod leadership;
pub(crate) mod member_duty;
pub(crate) mod member_steps;
pub(crate) mod members;
pub(crate) mod mixed_log;
pub(crate) mod operators;
pub(crate) mod orders;
pub(crate) mod quota_log;
pub(crate) mod scrub_pace;
pub(crate) mod transfer;
