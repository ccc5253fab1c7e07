//! One line of what a replay tells.

use serde::Serialize;
use znode::LockMode;
use znode::lock::TicketEnd;

/// Something that an entry of the log did, or where the log begins and ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fact", rename_all = "kebab-case")]
pub enum Fact {
    /// What was before this zxid is known by its results only: the locks that are held then are
    /// told next.
    Began {
        /// Of the snapshot; 0 without one.
        zxid: u64,
    },
    /// A session was opened.
    SessionOpened {
        /// When.
        zxid: u64,
        /// Its id.
        session: u64,
    },
    /// A session ended.
    SessionEnded {
        /// When.
        zxid: u64,
        /// Its id.
        session: u64,
    },
    /// A lock was granted.
    Granted {
        /// When.
        zxid: u64,
        /// The lock.
        lock: String,
        /// The lock node's name.
        ticket: String,
        /// Whose it is.
        session: u64,
        /// Its fencing token.
        token: u64,
        /// How it holds.
        #[serde(flatten)]
        mode: Mode,
    },
    /// A hold ended.
    Ended {
        /// When.
        zxid: u64,
        /// The lock.
        lock: String,
        /// The lock node's name.
        ticket: String,
        /// Whose it was.
        session: u64,
        /// Its fencing token.
        token: u64,
        /// Why, where the lock remembers it.
        #[serde(skip_serializing_if = "Option::is_none")]
        end: Option<&'static str>,
    },
    /// The last entry that is known to be committed.
    Applied {
        /// Its zxid.
        zxid: u64,
        /// Its index in the log.
        index: u64,
        /// Its term.
        term: u64,
        /// SHA-256 of the state after it.
        digest: String,
    },
}

/// How a ticket holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "mode", rename_all = "kebab-case")]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Together with other readers.
    Read,
    /// Alone, of a read/write lock.
    Write,
    /// Alone, as a leader.
    Latch,
    /// Permits of a semaphore.
    Lease {
        /// So many.
        permits: u32,
        /// Of so many.
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

/// The word for an end.
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
