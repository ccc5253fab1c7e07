//! Clock for the times that this node writes into log entries while it leads.

use std::time::Duration;

use accept::Mutex;
use tokio::time::Instant;

use crate::local::host::Host;

/// Divisor: while the wall clock is ahead, the entry clock runs faster than the monotonic clock by
/// one part in this number.
const CATCH_UP_PART: u128 = 10;
/// Difference in milliseconds between the entry clock and the wall clock from which on it is
/// logged.
const TOLD_MS: u64 = 1_000;
/// Difference in milliseconds between the entry clock and the wall clock below which a logged
/// difference counts as over. A later one is then logged again.
const FORGOTTEN_MS: u64 = TOLD_MS / 2;

/// Clock for the times on log entries. It never goes back and never stands still.
///
/// Lock-delays and TTLs are measured by the times on log entries. So this clock runs at the rate of
/// the monotonic clock, even if the wall clock is set. While the wall clock is ahead, this clock
/// runs a tenth faster. It jumps forward in one case only: to the latest time in the state, because
/// an earlier leader's clock may have been far ahead.
#[derive(Default)]
pub(crate) struct EntryClock {
    host: Host,
    last: Mutex<Option<ClockReading>>,
}

#[derive(Clone, Copy)]
struct ClockReading {
    at: Instant,
    /// Nanoseconds since 1970, because rounding to milliseconds would lose time at each reading.
    time: u128,
    /// True if the difference to the wall clock was logged and is not over.
    told: bool,
}

impl EntryClock {
    pub(crate) fn new(host: Host) -> EntryClock {
        EntryClock { host, ..EntryClock::default() }
    }

    /// Time for an entry in milliseconds since 1970; at least `seen_ms`, the latest time in the
    /// state.
    pub(crate) fn now_ms(&self, seen_ms: u64) -> u64 {
        self.read(Instant::now(), self.host.wall_clock_ms(), seen_ms)
    }

    fn read(&self, now: Instant, wall_ms: u64, seen_ms: u64) -> u64 {
        let mut last = self.last.lock();
        let (wall, seen) = (nanos(wall_ms), nanos(seen_ms));
        // For the first reading, the wall clock is the only source.
        let ClockReading { at, time, told } = last.unwrap_or(ClockReading { at: now, time: wall, told: false });
        let elapsed = now.saturating_duration_since(at).as_nanos();
        let steady = time + elapsed;
        let nearer = wall.saturating_sub(steady).min(elapsed / CATCH_UP_PART);
        let time = (steady + nearer).max(seen);
        let time_ms = u64::try_from(time / nanos(1)).unwrap_or(u64::MAX);
        let differs_ms = wall_ms.abs_diff(time_ms);
        if differs_ms >= TOLD_MS && !told {
            let is_ahead = wall_ms > time_ms;
            tracing::warn!(differs_ms, is_ahead, "the wall clock differs from the time of the log's entries");
        }
        let told = differs_ms >= if told { FORGOTTEN_MS } else { TOLD_MS };
        *last = Some(ClockReading { at: at.max(now), time, told });
        time_ms
    }
}

fn nanos(ms: u64) -> u128 {
    Duration::from_millis(ms).as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the clock once for each item: monotonic time, wall clock, latest time in the state,
    /// and expected result, all in milliseconds.
    #[track_caller]
    fn check(readings: &[(u64, u64, u64, u64)]) {
        let (clock, start) = (EntryClock::default(), Instant::now());
        for (at, wall_ms, seen_ms, expected_ms) in readings {
            let time_ms = clock.read(start + Duration::from_millis(*at), *wall_ms, *seen_ms);
            assert_eq!(time_ms, *expected_ms, "{at} {wall_ms} {seen_ms}");
        }
    }

    #[test]
    fn time_follows_a_wall_clock_that_is_right() {
        check(&[(0, 1_000, 0, 1_000), (500, 1_500, 0, 1_500), (900, 1_901, 0, 1_901)]);
    }

    #[test]
    fn time_nears_a_wall_clock_that_is_ahead_by_a_tenth_of_what_passes() {
        let hour = 3_600_000;
        let ahead = |at: u64| (at, hour + at, 0, at + at / 10);
        check(&[
            (0, 0, 0, 0),
            ahead(1),
            ahead(15_000),
            ahead(40_000),
            ahead(9 * hour),
            (20 * hour, 21 * hour, 0, 21 * hour),
        ]);
        // The result is the same however often the clock is read.
        let often: Vec<_> = (0..2_000).map(|at| if at == 0 { (0, 0, 0, 0) } else { ahead(at) }).collect();
        check(&often);
    }

    #[test]
    fn time_goes_on_while_the_wall_clock_is_behind() {
        check(&[(0, 1_000, 0, 1_000), (500, 50, 0, 1_500), (1_500, 1_050, 0, 2_500)]);
        // An earlier leader's clock was an hour ahead.
        check(&[(0, 1_000, 3_600_000, 3_600_000), (700, 1_700, 3_600_000, 3_600_700)]);
        check(&[(0, 1_000, 0, 1_000), (1_000, 2_000, 3_600_000, 3_600_000), (1_700, 2_700, 3_600_000, 3_600_700)]);
    }
}
