//! The first disk error, which is also the last: nothing is retried and nothing is served on.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

/// Where disk errors of one node's storage come together. Clones share it. Sticky: the first reason
/// stays.
#[derive(Clone, Debug)]
pub struct Fatal(Arc<watch::Sender<Option<Arc<str>>>>);

impl Fatal {
    pub(crate) fn new() -> Self {
        Fatal(Arc::new(watch::Sender::new(None)))
    }

    /// The reason to stop, if there is one.
    pub fn reason(&self) -> Option<Arc<str>> {
        self.0.borrow().clone()
    }

    /// Waits, for ever if all goes well, for the reason to stop. The program must then end without
    /// writing on.
    pub async fn failed(&self) -> Arc<str> {
        let mut receiver = self.0.subscribe();
        let reason = receiver.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).expect("the sender lives in self, and we waited for Some")
    }

    /// Refuses when an earlier operation failed.
    ///
    /// # Errors
    /// The first reason, again.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.reason() {
            None => Ok(()),
            Some(reason) => Err(io::Error::other(format!("storage has failed before: {reason}"))),
        }
    }

    /// Passes `result` on and remembers its error for good.
    pub(crate) fn note<T>(&self, doing: &str, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.fail(doing, error))
    }

    pub(crate) fn fail(&self, doing: &str, error: &dyn std::fmt::Display) {
        self.0.send_if_modified(|reason| {
            if reason.is_some() {
                return false;
            }
            tracing::error!(doing, %error, "storage failed; this node must stop");
            *reason = Some(format!("{doing}: {error}").into());
            true
        });
    }
}
