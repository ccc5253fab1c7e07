//! Observers of the state, for the ZooKeeper server, which keeps its clients' watches itself.

use std::sync::Arc;

use znode::{EventRecord, SessionId, State, WriteTurn};

/// Observer of everything that this node applies, in order, and before a reader can see it. So a
/// server that sends events from here sends them before any answer that shows the change.
///
/// Called under the guard that all waits share, so an observer must be quick and call nothing of
/// the replica.
pub trait Observer: Send + Sync {
    /// Called when the state is about to change. An observer that holds the state drops it here,
    /// because parts of a state that is held are copied before they change. The returned value is
    /// told of the changes. Until it is dropped, it must keep readers from the observer's
    /// knowledge.
    fn before_change(&self) -> Box<dyn Observing + '_>;

    /// Called with a new state when it is not known what changed: after a snapshot from the leader,
    /// and once when the observer is registered.
    fn replaced(&self, state: &Arc<State>);

    /// Number of watches that the observer keeps, for monitoring; 0 by default. Not called under
    /// the guard.
    fn watches(&self) -> usize {
        0
    }
}

/// Handle of an [`Observer`] during one change of the state.
pub trait Observing {
    /// Tells whether the observer wants the state right after this write to be published by itself,
    /// and not only together with later writes.
    fn wants(&self, _session: SessionId, _turn: &WriteTurn) -> bool {
        false
    }

    /// Called after a batch of entries was applied, with the new state and the events.
    fn published(self: Box<Self>, state: &Arc<State>, events: &[EventRecord]);
}
