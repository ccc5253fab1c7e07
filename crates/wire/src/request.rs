//! What becomes of single requests.

pub(crate) mod auth;
pub(crate) mod codes;
pub(crate) mod done;
pub(crate) mod long_reads;
pub(crate) mod operations;
pub(crate) mod pending;
pub(crate) mod read_points;
pub(crate) mod reading_thread;
pub(crate) mod reads;
pub(crate) mod requests;
pub(crate) mod slices;
pub(crate) mod write_order;
pub(crate) mod writes;
