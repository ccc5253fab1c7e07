//! Facts: the lines that a replay prints.

use serde::Serialize;
use znode::LockMode;
use znode::lock::TicketEnd;

/// An effect of an entry of the log, or the beginning or end of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fact", rename_all = "kebab-case")]
pub enum Fact {
    /// The beginning of the replay. Entries up to this zxid are known only by the snapshot's state;
    /// the locks that are held in it follow as `Granted`.
    Began {
        /// The zxid of the snapshot; 0 without a snapshot.
        zxid: u64,
    },
    /// A session was opened.
    SessionOpened {
        /// The zxid of the entry.
        zxid: u64,
        /// The id of the session.
        session: u64,
    },
    /// A session ended.
    SessionEnded {
        /// The zxid of the entry.
        zxid: u64,
        /// The id of the session.
        session: u64,
    },
    /// A lock was granted.
    Granted {
        /// The zxid of the entry.
        zxid: u64,
        /// The path of the lock.
        lock: String,
        /// The lock node's name.
        ticket: String,
        /// The session that owns the lock node.
        session: u64,
        /// The fencing token of the grant.
        token: u64,
        /// The mode of the hold.
        #[serde(flatten)]
        mode: Mode,
    },
    /// A hold ended.
    Ended {
        /// The zxid of the entry.
        zxid: u64,
        /// The path of the lock.
        lock: String,
        /// The lock node's name.
        ticket: String,
        /// The session that owned the lock node.
        session: u64,
        /// The fencing token of the grant.
        token: u64,
        /// The reason for the end, if the lock remembers it.
        #[serde(skip_serializing_if = "Option::is_none")]
        end: Option<&'static str>,
    },
    /// The last entry that is known to be committed.
    Applied {
        /// The zxid of the entry.
        zxid: u64,
        /// The log index of the entry.
        index: u64,
        /// The term of the entry.
        term: u64,
        /// SHA-256 of the state after the entry, in hex.
        digest: String,
    },
}

/// Mode in which a ticket holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "mode", rename_all = "kebab-case")]
pub enum Mode {
    /// One holder, and no other.
    Exclusive,
    /// Several holders, all of them readers.
    Read,
    /// One holder of a read/write lock.
    Write,
    /// One holder, as the leader of an election.
    Latch,
    /// Permits of a semaphore.
    Lease {
        /// The number of permits that the ticket has.
        permits: u32,
        /// The number of permits that the semaphore has.
        limit: u32,
    },
}

impl From<LockMode> for Mode {
    fn from(mode: LockMode) -> Mode {
        match mode {
            LockMode::Exclusive => Mode::Exclusive,
            LockMode::Read => Mode::Read,
            LockMode::Write => Mode::Write,
            LockMode::Latch => Mode::Latch,
            LockMode::Lease { permits, limit } => Mode::Lease { permits, limit },
        }
    }
}

/// Returns the word for the reason of an end.
pub(crate) fn word(end: TicketEnd) -> &'static str {
    match end {
        TicketEnd::Released => "released",
        TicketEnd::Closed => "closed",
        TicketEnd::Expired => "expired",
        TicketEnd::Revoked => "revoked",
        TicketEnd::Withdrawn => "withdrawn",
        TicketEnd::Admin => "admin",
        TicketEnd::Deadlock => "deadlock",
    }
}
