//! Errors of wall clocks, in the format of libfaketime.

use std::time::Duration;

/// Error of a wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Offset of the clock from the true time, at the moment when the error is set.
    pub offset_ms: i64,
    /// Milliseconds by which the clock advances in a thousand true milliseconds.
    pub rate_permille: u32,
}

impl Clock {
    /// A clock without an error.
    pub const RIGHT: Clock = Clock::offset(0);

    /// Returns a clock with a constant error.
    pub const fn offset(offset_ms: i64) -> Clock {
        Clock { offset_ms, rate_permille: 1_000 }
    }

    /// Returns the clock in libfaketime's format, for a process that has run for this time:
    /// libfaketime counts the rate from the start of the process.
    pub(super) fn told(self, age: Duration) -> String {
        let rate = f64::from(self.rate_permille) / 1e3;
        let gone_ahead = age.as_secs_f64() * (rate - 1.0);
        format!("{:+.3} x{rate:.3}\n", self.offset_ms as f64 / 1e3 - gone_ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_leaves_the_clock_where_it_stands() {
        let ten = Duration::from_secs(10);
        assert_eq!(Clock::RIGHT.told(ten), "+0.000 x1.000\n");
        assert_eq!(Clock::offset(-1_250).told(ten), "-1.250 x1.000\n");
        // After ten seconds at twice the rate the clock would be ten seconds ahead.
        assert_eq!(Clock { offset_ms: 500, rate_permille: 2_000 }.told(ten), "-9.500 x2.000\n");
    }
}
