//! The time that this node puts on entries while it leads.

use std::sync::Mutex;
use tokio::time::Instant;

use crate::host::Host;

/// A wall clock that never goes back and never stands still.
///
/// The state takes the latest time that it was ever given. If one leader's clock was far ahead, the
/// next leader's wall clock alone would change nothing for that long, and lock-delays and TTLs
/// would stand still with it. So time goes on from the latest time seen, at the rate of the
/// monotonic clock.
#[derive(Default)]
pub(crate) struct EntryClock {
    host: Host,
    /// The last reading, and when it was taken.
    last: Mutex<Option<(Instant, u64)>>,
}

impl EntryClock {
    pub(crate) fn new(host: Host) -> EntryClock {
        EntryClock { host, ..EntryClock::default() }
    }

    /// Milliseconds since 1970, not before `seen_ms`, the latest time that is in the state.
    pub(crate) fn now_ms(&self, seen_ms: u64) -> u64 {
        self.read(Instant::now(), self.host.wall_clock_ms().max(seen_ms))
    }

    fn read(&self, now: Instant, at_least_ms: u64) -> u64 {
        let mut last = self.last.lock().expect("nothing panics under this guard");
        let elapsed_ms = |at: Instant| u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX);
        let steady = last.map(|(at, ms)| (elapsed_ms(at), ms));
        match steady {
            // Kept as it is, so that fractions of a millisecond add up.
            Some((elapsed_ms, ms)) if ms.saturating_add(elapsed_ms) >= at_least_ms => ms.saturating_add(elapsed_ms),
            _ => {
                *last = Some((now, at_least_ms));
                at_least_ms
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_follows_the_wall_clock_and_goes_on_when_that_is_behind() {
        let (clock, start) = (EntryClock::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(clock.read(at(0), 1_000), 1_000);
        assert_eq!(clock.read(at(500), 1_600), 1_600, "a wall clock ahead is followed");
        assert_eq!(clock.read(at(1_000), 50), 2_100, "a wall clock set back does not stop time");
        // An earlier leader's clock was an hour ahead.
        assert_eq!(clock.read(at(2_000), 3_600_000), 3_600_000);
        assert_eq!(
            clock.read(at(2_700), 3_600_000),
            3_600_700,
            "time does not stand still until the wall clock is there"
        );
    }
}
