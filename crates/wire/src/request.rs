//! Requests of clients: how each is parsed, executed and answered.

pub(crate) mod operation_times;
pub(crate) mod operations;
pub(crate) mod outcome;
pub(crate) mod pending;
pub(crate) mod reading_thread;
pub(crate) mod reads;
pub(crate) mod slices;
pub(crate) mod watches;
pub(crate) mod write_order;
pub(crate) mod writes;
