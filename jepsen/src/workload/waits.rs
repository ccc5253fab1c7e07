//! Lengths of clients' waits for a lock. Most are short, so that many operations happen.

use std::time::Duration;

/// Length of a long wait: longer than a free lock may take to be granted, because only a wait that
/// is still under way shows that its client was never woken.
const LONG: Duration = Duration::from_secs(6);
/// Share of long waits: one in this many. More would keep too many clients at a node that is cut
/// off.
const LONG_ONE_IN: u8 = 10;

/// Returns the length of the next wait.
pub(super) fn next(short: Duration, rng: &mut fastrand::Rng) -> Duration {
    if rng.u8(..LONG_ONE_IN) == 0 { LONG } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::GRANT_MAX_NS;

    #[test]
    fn a_long_wait_shows_a_lost_grant() {
        assert!(LONG.as_nanos() >= 2 * u128::from(GRANT_MAX_NS));
    }
}
