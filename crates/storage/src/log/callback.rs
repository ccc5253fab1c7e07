//! Callbacks of raft-log's flush thread at the end of a flush.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failpoint;
use crate::fatal::Fatal;

/// Callback that raft-log's flush thread runs once records are on disk.
pub(crate) struct WalCallback {
    pub(crate) fatal: Fatal,
    /// Reach of the log, and the number of its bytes that are durable after this flush; `None` for
    /// a flush without a sync.
    pub(crate) reach: Option<(Arc<Reach>, u64)>,
    pub(crate) done: Done,
}

/// Positions up to which the log is written, asked to be flushed, and durable. All are bytes since
/// the log was begun.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Bytes written so far, on disk or not.
    pub(crate) end: AtomicU64,
    /// Bytes on disk once all flushes that were asked for have ended.
    pub(crate) asked: AtomicU64,
    /// Bytes that are sure to be on disk.
    pub(crate) durable: AtomicU64,
    /// Bytes that a record in the log states to be on disk.
    pub(crate) marked: AtomicU64,
}

/// Receiver of a flush's result.
pub(crate) enum Done {
    /// openraft, for the appends that came together.
    Gathered(Box<dyn Appends>),
    /// A call of this crate.
    Waiter(tokio::sync::oneshot::Sender<io::Result<()>>),
    /// The thread that opens the log.
    Opener(std::sync::mpsc::SyncSender<io::Result<()>>),
}

/// Appends that one flush brings to the disk. If dropped before `done`, they get the error that the
/// flush thread is gone.
pub(crate) trait Appends: Send {
    /// Passes the result of the flush on. Called by the flush thread.
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
            // A waiter that is gone needs no answer. The error is kept in `fatal` anyway.
            Done::Waiter(waiter) => drop(waiter.send(result)),
            Done::Opener(opener) => opener.send(result),
        }
    }
}
