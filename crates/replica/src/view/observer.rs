//! Observers of all changes of the state. The ZooKeeper server is one, because it keeps its
//! clients' watches itself.

use std::sync::Arc;

use znode::{EventRecord, SessionId, State, WriteTurn};

/// Observer of every change that this node applies, in order, before a reader can see the change.
/// So a server can send a client an event before any answer that shows the change.
///
/// Called under the lock that all callers' waits share. So an observer must be quick, and must not
/// call the replica.
pub trait Observer: Send + Sync {
    /// Called when the state is about to change. An observer that holds the state drops it here;
    /// otherwise the parts that change would be copied first. The returned handle is told of the
    /// change. Until the handle is dropped, the observer must let no client read the facts that it
    /// keeps about the state.
    fn before_change(&self) -> Box<dyn Observing + '_>;

    /// Called with a new state whose changes are not known: after a snapshot from the leader, and
    /// once when the observer registers.
    fn replaced(&self, state: &Arc<State>);

    /// Number of watches that the observer keeps, for monitoring; 0 by default. Called without the
    /// lock under which changes are announced.
    fn watches(&self) -> usize {
        0
    }
}

/// Handle of an [`Observer`] during one change of the state.
pub trait Observing {
    /// Tells whether the observer wants the state to be published right after this write, before
    /// later writes are applied. `_turn` has the write's connection, and its number among the
    /// writes of that connection.
    fn wants(&self, _session: SessionId, _turn: &WriteTurn) -> bool {
        false
    }

    /// Called after a batch of entries was applied, with the new state and the events.
    fn published(self: Box<Self>, state: &Arc<State>, events: &[EventRecord]);
}
