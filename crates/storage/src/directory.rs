//! The data directory: its lock, its small records and its free space.

pub(crate) mod descriptors;
pub(crate) mod disk_guard;
pub(crate) mod layout;
pub(crate) mod node_meta;
pub(crate) mod page_cache;
pub(crate) mod place;
