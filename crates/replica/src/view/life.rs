//! The end of a node: it is stopped, or it fails.

use std::sync::Arc;

use tokio::sync::watch;

use crate::Failure;
use crate::stop::Stop;
use crate::view::View;

/// Tells whether the node goes on. All tasks of a node have the same one.
pub(crate) struct Life {
    stop: Stop,
    failure: watch::Sender<Option<Failure>>,
    /// The view, whose waits end with the node.
    view: Arc<View>,
}

impl Life {
    pub(crate) fn new(stop: Stop, view: Arc<View>) -> Life {
        Life { stop, failure: watch::Sender::new(None), view }
    }

    /// Tells all tasks that the node stops.
    pub(crate) fn stop(&self) {
        self.stop.stop();
        self.view.stop();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_stopped()
    }

    pub(crate) fn stopped(&self) -> Stop {
        self.stop.clone()
    }

    /// The reason why nothing can be asked of this node any more.
    pub(crate) fn end(&self) -> Option<String> {
        if self.is_stopped() {
            return Some("the node is shutting down".into());
        }
        self.failure.borrow().as_ref().map(|reason| format!("the node has failed: {reason}"))
    }

    /// The reason why the node cannot go on, once there is one.
    pub(crate) fn failure(&self) -> watch::Receiver<Option<Failure>> {
        self.failure.subscribe()
    }

    /// Stops serving for good. The first reason stays.
    pub(crate) fn fail(&self, failure: Failure) {
        let first = self.failure.send_if_modified(|reason| {
            let first = reason.is_none();
            if first {
                *reason = Some(failure);
            }
            first
        });
        if first {
            self.view.stop();
        }
    }
}
