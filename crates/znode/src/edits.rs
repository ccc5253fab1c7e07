//! Building blocks of the operations: single changes of the state, and checks.

pub(crate) mod actors;
pub(crate) mod budget;
pub(crate) mod containers;
pub(crate) mod context;
pub(crate) mod edit;
pub(crate) mod effects;
pub(crate) mod events;
pub(crate) mod granted;
pub(crate) mod history;
pub(crate) mod permissions;
pub(crate) mod positions;
