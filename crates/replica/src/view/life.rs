//! State of a node: running, stopped or failed.

use std::sync::Arc;

use tokio::sync::watch;

use crate::Failure;
use crate::stop::Stop;
use crate::view::View;

/// State of a node: running, stopped or failed. All tasks of the node share it.
pub(crate) struct Life {
    stop: Stop,
    failure: watch::Sender<Option<Failure>>,
    /// The applied state, whose waits end with the node.
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

    /// Reason why this node takes no calls, because it stops or has failed; `None` while it runs.
    pub(crate) fn end(&self) -> Option<String> {
        if self.is_stopped() {
            return Some("the node is shutting down".into());
        }
        self.failure.borrow().as_ref().map(|reason| format!("the node has failed: {reason}"))
    }

    /// Channel of the reason why the node has failed; its value is `None` until the node fails.
    pub(crate) fn failure(&self) -> watch::Receiver<Option<Failure>> {
        self.failure.subscribe()
    }

    /// Fails the node, which stops serving for good. Later failures do not replace the first.
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
