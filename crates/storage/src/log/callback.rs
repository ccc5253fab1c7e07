//! Callbacks of raft-log's flush thread at the end of a flush.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failpoint;
use crate::fatal::Fatal;

/// Callback that raft-log's flush thread runs once records are on disk.
pub(crate) struct WalCallback {
    pub(crate) fatal: Fatal,
    /// Positions that the log shares with this callback, and the value for [`Reach::durable`] after
    /// this flush; `None` for a flush without an fsync.
    pub(crate) reach: Option<(Arc<Reach>, u64)>,
    pub(crate) done: Done,
}

/// Positions in the log, each a number of bytes since the log was begun, purged bytes included.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Bytes written so far, on disk or not.
    pub(crate) end: AtomicU64,
    /// Bytes that will be on disk after all requested flushes.
    pub(crate) asked: AtomicU64,
    /// Bytes that are known to be on disk.
    pub(crate) durable: AtomicU64,
    /// Number of bytes on disk that the log's last owner record states. An owner record has the
    /// log's node and this number.
    pub(crate) marked: AtomicU64,
}

/// Receiver of the result of one flush.
pub(crate) enum Done {
    /// openraft, which waits for the appends of one flush.
    Gathered(TellAppends),
    /// An async call of [`crate::LogStore`].
    Waiter(tokio::sync::oneshot::Sender<io::Result<()>>),
    /// The thread that opens the log.
    Opener(std::sync::mpsc::SyncSender<io::Result<()>>),
}

/// Function that reports the result of a flush to the appends that it makes durable. Its drop
/// without a call reports that the flush thread has ended.
pub(crate) type TellAppends = Box<dyn FnOnce(&io::Result<()>) + Send>;

impl raft_log::Callback for WalCallback {
    fn send(self, result: io::Result<()>) {
        let result = result.and_then(|()| failpoint::pass("log.flushed"));
        let result = self.fatal.note("flushing the Raft log", result);
        if let Some((reach, upto)) = self.reach.filter(|_| result.is_ok()) {
            reach.durable.fetch_max(upto, Ordering::AcqRel);
        }
        match self.done {
            Done::Gathered(tell) => tell(&result),
            // A failed send is ignored: the caller has stopped waiting, and `fatal` keeps any
            // error.
            Done::Waiter(waiter) => drop(waiter.send(result)),
            Done::Opener(opener) => opener.send(result),
        }
    }
}
