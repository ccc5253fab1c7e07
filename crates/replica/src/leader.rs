//! What only a leader does.

pub(crate) mod entry_clock;
pub(crate) mod leadership;
pub(crate) mod quorum_contact;
pub(crate) mod quota_log;
pub(crate) mod session_tracker;
