//! Numbers for monitoring tools.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What went through one connection, or through all of them.
#[derive(Default)]
pub(crate) struct Counts {
    received: AtomicU64,
    sent: AtomicU64,
    answered: AtomicU64,
    micros: AtomicU64,
    /// One more than the smallest, so that zero is "none yet".
    micros_min: AtomicU64,
    micros_max: AtomicU64,
    outstanding: AtomicU64,
    /// The last request: its xid and op, as they came.
    last: AtomicU64,
}

/// One look at them. Latencies in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) outstanding: u64,
    pub(crate) latency_min: u64,
    pub(crate) latency_avg: f64,
    pub(crate) latency_max: u64,
    pub(crate) last_xid: i32,
    pub(crate) last_op: i32,
}

impl Counts {
    /// A packet came.
    pub(crate) fn received(&self) {
        self.received.fetch_add(1, Relaxed);
    }

    /// A request came.
    pub(crate) fn begun(&self, xid: i32, op: i32) {
        self.outstanding.fetch_add(1, Relaxed);
        self.last.store(u64::from(xid as u32) << 32 | u64::from(op as u32), Relaxed);
    }

    /// A packet was handed to the outbox.
    pub(crate) fn sent(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    /// A request was answered.
    pub(crate) fn answered(&self, after: Duration) {
        let micros = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        self.answered.fetch_add(1, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
        self.micros_max.fetch_max(micros, Relaxed);
        let smallest = |min: u64| if min == 0 { micros + 1 } else { min.min(micros + 1) };
        let _ = self.micros_min.fetch_update(Relaxed, Relaxed, |min| Some(smallest(min)));
        let _ = self.outstanding.fetch_update(Relaxed, Relaxed, |count| Some(count.saturating_sub(1)));
    }

    /// Requests of a connection that ended will not be answered.
    pub(crate) fn given_up(&self, count: u64) {
        let _ = self.outstanding.fetch_update(Relaxed, Relaxed, |all| Some(all.saturating_sub(count)));
    }

    /// Begins anew, but for what is under way.
    pub(crate) fn reset(&self) {
        for count in [&self.received, &self.sent, &self.answered, &self.micros, &self.micros_min, &self.micros_max] {
            count.store(0, Relaxed);
        }
    }

    pub(crate) fn look(&self) -> Counted {
        let answered = self.answered.load(Relaxed);
        let last = self.last.load(Relaxed);
        let average = if answered == 0 { 0.0 } else { self.micros.load(Relaxed) as f64 / answered as f64 / 1000.0 };
        Counted {
            received: self.received.load(Relaxed),
            sent: self.sent.load(Relaxed),
            outstanding: self.outstanding.load(Relaxed),
            latency_min: self.micros_min.load(Relaxed).saturating_sub(1) / 1000,
            latency_avg: average,
            latency_max: self.micros_max.load(Relaxed) / 1000,
            last_xid: (last >> 32) as u32 as i32,
            last_op: last as u32 as i32,
        }
    }
}
