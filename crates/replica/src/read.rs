//! The published state and those who wait for it.

pub(crate) mod event_ring;
pub(crate) mod observer;
pub(crate) mod reads;
pub(crate) mod view;
pub(crate) mod watches;
