//! The client's own clock.
//!
//! On Linux `std::time::Instant` stops while the machine sleeps, but the clocks of the servers do
//! not. The deadline after which a lock may be lost must count that time, too, so it is kept on
//! `CLOCK_BOOTTIME`.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// A moment on a clock that never goes back and goes on while the machine sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// The clock's zero: a fixed moment for tests that do not read the clock.
    #[cfg(test)]
    pub(crate) const ZERO: Moment = Moment(Duration::ZERO);

    pub(crate) fn now() -> Moment {
        let time = clock_gettime(CLOCK);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Moment(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)))
    }

    /// Returns the moment `wait` later, or the largest moment on overflow.
    pub(crate) fn after(self, wait: Duration) -> Moment {
        Moment(self.0.saturating_add(wait))
    }

    /// Returns the time from this moment to `later`; zero when `later` is earlier.
    pub(crate) fn until(self, later: Moment) -> Duration {
        later.0.saturating_sub(self.0)
    }

    /// Returns the time from now to this moment; zero when it is past.
    pub(crate) fn remaining(self) -> Duration {
        Moment::now().until(self)
    }

    pub(crate) fn is_past(self) -> bool {
        self.remaining().is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_add_and_subtract_without_going_under() {
        let at_ms = |ms| Moment::ZERO.after(Duration::from_millis(ms));
        let (early, late) = (at_ms(100), at_ms(350));
        assert_eq!(early.until(late), Duration::from_millis(250));
        assert_eq!(late.until(early), Duration::ZERO);
        assert_eq!(early.after(Duration::from_millis(250)), late);
        assert!(late.after(Duration::MAX) > late);
        assert!(early.is_past(), "this machine was not started just now");
        assert!(!Moment::now().after(Duration::from_secs(60)).is_past());
    }
}
