//! Counters of packets, requests and latencies, for monitoring tools.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// Counters of one connection, or of all connections together.
#[derive(Default)]
pub(crate) struct Counts {
    received: AtomicU64,
    sent: AtomicU64,
    answered: AtomicU64,
    micros: AtomicU64,
    /// Smallest latency plus 1, in microseconds; 0 if no request was answered.
    micros_min: AtomicU64,
    micros_max: AtomicU64,
    outstanding: AtomicU64,
    /// Last request: its xid in the upper 32 bits, and its operation code in the lower ones.
    last: AtomicU64,
    last_zxid: AtomicI64,
    /// Latency of the last answered request, and the time of its answer counted from `since`, both
    /// in microseconds.
    last_micros: AtomicU64,
    last_at_micros: AtomicU64,
    /// Length in bytes of the last answer; 0 if there was none. `bytes_min` and `bytes_max` are the
    /// lengths of the shortest and the longest answer.
    bytes_last: AtomicU64,
    bytes_min: AtomicU64,
    bytes_max: AtomicU64,
    since: Since,
}

/// The time at which counting began.
struct Since(Instant);

impl Default for Since {
    fn default() -> Since {
        Since(Instant::now())
    }
}

/// Values of [`Counts`] at one moment. Latencies are in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountsReading {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) outstanding: u64,
    pub(crate) latency_min: u64,
    pub(crate) latency_avg: f64,
    pub(crate) latency_max: u64,
    pub(crate) last_xid: i32,
    pub(crate) last_op: i32,
    pub(crate) last_zxid: i64,
    pub(crate) last_latency: u64,
    /// Time at which the last request was answered, in microseconds since counting began.
    pub(crate) last_micros: u64,
    /// Lengths in bytes of the last, the shortest and the longest answer; `None` if there was none.
    pub(crate) answer_bytes: [Option<u64>; 3],
}

impl Counts {
    /// Counts a packet that has arrived.
    pub(crate) fn received(&self) {
        self.received.fetch_add(1, Relaxed);
    }

    /// Counts a request that has arrived.
    pub(crate) fn begun(&self, xid: i32, op: i32) {
        self.outstanding.fetch_add(1, Relaxed);
        self.last.store(u64::from(xid as u32) << 32 | u64::from(op as u32), Relaxed);
    }

    /// Counts an answer that was handed to the outbox.
    pub(crate) fn sent(&self, bytes: usize, zxid: i64) {
        let bytes = bytes as u64;
        self.sent.fetch_add(1, Relaxed);
        self.last_zxid.store(zxid, Relaxed);
        self.bytes_last.store(bytes, Relaxed);
        if bytes > self.bytes_max.load(Relaxed) {
            self.bytes_max.fetch_max(bytes, Relaxed);
        }
        let is_shorter = |shortest: u64| shortest == 0 || bytes < shortest;
        if is_shorter(self.bytes_min.load(Relaxed)) {
            let _ = self.bytes_min.fetch_update(Relaxed, Relaxed, |shortest| is_shorter(shortest).then_some(bytes));
        }
    }

    /// Counts an answered request, with its latency.
    pub(crate) fn answered(&self, since: Instant, now: Instant) {
        let micros_of = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let micros = micros_of(now.duration_since(since));
        self.answered.fetch_add(1, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
        self.last_micros.store(micros, Relaxed);
        self.last_at_micros.store(micros_of(now.duration_since(self.since.0)), Relaxed);
        self.micros_max.fetch_max(micros, Relaxed);
        let smallest = |min: u64| if min == 0 { micros + 1 } else { min.min(micros + 1) };
        let _ = self.micros_min.fetch_update(Relaxed, Relaxed, |min| Some(smallest(min)));
        let _ = self.outstanding.fetch_update(Relaxed, Relaxed, |count| Some(count.saturating_sub(1)));
    }

    /// Subtracts the unanswered requests of a connection that has ended from the requests in
    /// progress.
    pub(crate) fn given_up(&self, count: u64) {
        let _ = self.outstanding.fetch_update(Relaxed, Relaxed, |all| Some(all.saturating_sub(count)));
    }

    /// Sets the counters to zero, except the number of requests in progress and the facts about the
    /// last request.
    pub(crate) fn reset(&self) {
        let lengths = [&self.bytes_last, &self.bytes_min, &self.bytes_max];
        let all = [&self.received, &self.sent, &self.answered, &self.micros, &self.micros_min, &self.micros_max];
        for count in all.into_iter().chain(lengths) {
            count.store(0, Relaxed);
        }
    }

    pub(crate) fn look(&self) -> CountsReading {
        let answered = self.answered.load(Relaxed);
        let last = self.last.load(Relaxed);
        let average = if answered == 0 { 0.0 } else { self.micros.load(Relaxed) as f64 / answered as f64 / 1000.0 };
        CountsReading {
            received: self.received.load(Relaxed),
            sent: self.sent.load(Relaxed),
            outstanding: self.outstanding.load(Relaxed),
            latency_min: self.micros_min.load(Relaxed).saturating_sub(1) / 1000,
            latency_avg: average,
            latency_max: self.micros_max.load(Relaxed) / 1000,
            last_xid: (last >> 32) as u32 as i32,
            last_op: last as u32 as i32,
            last_zxid: self.last_zxid.load(Relaxed),
            last_latency: self.last_micros.load(Relaxed) / 1000,
            last_micros: self.last_at_micros.load(Relaxed),
            answer_bytes: [&self.bytes_last, &self.bytes_min, &self.bytes_max]
                .map(|bytes| Some(bytes.load(Relaxed)).filter(|bytes| *bytes > 0)),
        }
    }
}
