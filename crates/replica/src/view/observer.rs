//! Doors that keep watches of their own.

use std::sync::Arc;

use znode::{EventRecord, SessionId, State, WriteTurn};

/// Hears of everything that this node applies, in order, and before a reader can see it. So who
/// tells clients of events here has told them before any answer shows them the change.
///
/// Called under the guard that all waits share: an observer is quick and calls nothing of the
/// replica.
pub trait Observer: Send + Sync {
    /// The state is about to change. A door that keeps it lets go of it here: what changes of a
    /// state that a reader has is copied first. What is returned hears of the changes, and lets
    /// no reader look at what the observer knows until then.
    fn before_change(&self) -> Box<dyn Observing + '_>;

    /// The state is another one, and what changed is not known: a snapshot has brought it. Also
    /// called once when the observer is registered.
    fn replaced(&self, state: &Arc<State>);

    /// Number of watches that it keeps, for monitoring: none, if it does not say. Not called under
    /// the guard.
    fn watches(&self) -> usize {
        0
    }
}

/// An [`Observer`] while the state changes.
pub trait Observing {
    /// Tells whether the state right behind this write, which is about to be published with others,
    /// is wanted by itself.
    fn wants(&self, _session: SessionId, _turn: &WriteTurn) -> bool {
        false
    }

    /// A batch of entries was applied: the state after them, and what they changed.
    fn published(self: Box<Self>, state: &Arc<State>, events: &[EventRecord]);
}
