//! Facts about locks and sessions: the lines that a replay prints.

use serde::Serialize;
use znode::LockMode;

/// An effect of a log entry, or the beginning or end of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fact", rename_all = "kebab-case")]
pub enum Fact {
    /// The beginning of the replay. Entries up to this zxid are in the snapshot, so their effects
    /// are not printed; locks that are held in the snapshot follow as `Granted`.
    Began {
        /// The zxid of the snapshot; 0 without a snapshot.
        zxid: u64,
    },
    /// A session was opened.
    SessionOpened {
        /// The zxid of the log entry.
        zxid: u64,
        /// The id of the session.
        session: u64,
    },
    /// A session ended.
    SessionEnded {
        /// The zxid of the log entry.
        zxid: u64,
        /// The id of the session.
        session: u64,
    },
    /// A lock was granted.
    Granted {
        /// The zxid of the log entry.
        zxid: u64,
        /// The path of the lock.
        lock: String,
        /// Name of the ticket, the znode that holds the lock.
        ticket: String,
        /// The session that owns the ticket.
        session: u64,
        /// The fencing token of the grant.
        token: u64,
        /// The mode in which the ticket holds the lock.
        #[serde(flatten, with = "Mode")]
        mode: LockMode,
    },
    /// A ticket stopped holding a lock.
    Ended {
        /// The zxid of the log entry.
        zxid: u64,
        /// The path of the lock.
        lock: String,
        /// Name of the ticket, the znode that held the lock.
        ticket: String,
        /// The session that owned the ticket.
        session: u64,
        /// The fencing token of the grant.
        token: u64,
    },
    /// The end of the replay: the last entry that the node knows to be committed.
    Applied {
        /// The zxid of the last committed entry.
        zxid: u64,
        /// SHA-256 of the state after the last committed entry, in hex.
        digest: String,
    },
}

/// JSON of [`LockMode`], the mode in which a ticket holds a lock.
#[derive(Serialize)]
#[serde(remote = "LockMode", tag = "mode", rename_all = "kebab-case")]
enum Mode {
    /// The only holder of an exclusive lock.
    Exclusive,
    /// A reader of a read/write lock, which other readers may hold as well.
    Read,
    /// The only holder of a read/write lock.
    Write,
    /// The leader of an election.
    Latch,
    /// A holder of permits of a semaphore.
    Lease {
        /// The number of permits that the ticket has.
        permits: u32,
        /// The number of permits that the semaphore has.
        limit: u32,
    },
}
