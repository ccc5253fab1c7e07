//! What only a leader does.

pub(crate) mod entry_clock;
pub(crate) mod leader_term;
pub(crate) mod leadership;
pub(crate) mod member_duty;
pub(crate) mod member_steps;
pub(crate) mod members;
pub(crate) mod mixed_log;
pub(crate) mod operators;
pub(crate) mod quorum_contact;
pub(crate) mod quota_log;
pub(crate) mod session_tracker;
pub(crate) mod transfer;
