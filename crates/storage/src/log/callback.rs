//! The end of a flush, as raft-log's flush thread tells it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failpoint;
use crate::fatal::Fatal;

/// Whom raft-log's flush thread tells that records are on disk.
pub(crate) struct WalCallback {
    pub(crate) fatal: Fatal,
    /// How much of the log is on disk, and how much will be with this flush if it is a synced one.
    pub(crate) reach: Option<(Arc<Reach>, u64)>,
    pub(crate) done: Done,
}

/// How far the log reaches, in bytes since it was begun.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// All that was written.
    pub(crate) end: AtomicU64,
    /// What will be on disk when all flushes that were asked for have come to their end.
    pub(crate) asked: AtomicU64,
    /// What is sure to be on disk.
    pub(crate) durable: AtomicU64,
    /// What a record in the log says to be on disk.
    pub(crate) marked: AtomicU64,
}

/// Who waits for a flush.
pub(crate) enum Done {
    /// openraft, for the appends that came together.
    Gathered(Box<dyn Appends>),
    /// One of our own calls.
    Waiter(tokio::sync::oneshot::Sender<io::Result<()>>),
    /// The thread that opens the log.
    Opener(std::sync::mpsc::SyncSender<io::Result<()>>),
}

/// Appends that one flush brings to the disk. Dropped untold, they hear that the flush thread is
/// gone.
pub(crate) trait Appends: Send {
    /// The flush came to its end. Called by the flush thread.
    fn done(self: Box<Self>, result: &io::Result<()>);
}

impl raft_log::Callback for WalCallback {
    fn send(self, result: io::Result<()>) {
        let result = result.and_then(|()| failpoint::pass("log.flushed"));
        let result = self.fatal.note("flushing the Raft log", result);
        if let Some((reach, upto)) = self.reach.filter(|_| result.is_ok()) {
            reach.durable.fetch_max(upto, Ordering::AcqRel);
        }
        match self.done {
            Done::Gathered(appends) => appends.done(&result),
            // A waiter that is gone wanted no answer; the error is remembered in `fatal` all the
            // same.
            Done::Waiter(waiter) => drop(waiter.send(result)),
            Done::Opener(opener) => opener.send(result),
        }
    }
}
