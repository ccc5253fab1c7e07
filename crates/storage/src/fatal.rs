//! The first disk error of a node. After this error, the storage refuses all operations.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

/// First disk error of one node's storage. Clones share it. Later errors do not replace it.
#[derive(Clone, Debug)]
pub struct Fatal(Arc<watch::Sender<Option<Arc<str>>>>);

impl Fatal {
    pub(crate) fn new() -> Self {
        Fatal(Arc::new(watch::Sender::new(None)))
    }

    /// Description of the first disk error; `None` before one. After a disk error the node must
    /// stop.
    pub fn reason(&self) -> Option<Arc<str>> {
        self.0.borrow().clone()
    }

    /// Waits for the first disk error and returns its description. The program must then end
    /// without another write.
    pub async fn failed(&self) -> Arc<str> {
        let mut receiver = self.0.subscribe();
        let reason = receiver.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).expect("the sender lives in self, and we waited for Some")
    }

    /// Returns an error if an earlier disk operation failed.
    ///
    /// # Errors
    /// An error with the description of the first failed operation.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.reason() {
            None => Ok(()),
            Some(reason) => Err(io::Error::other(format!("storage has failed before: {reason}"))),
        }
    }

    /// Returns `result` unchanged. If it is the first error, keeps it as the reason to stop the
    /// node. `doing` describes the operation for the message.
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
