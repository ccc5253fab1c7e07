//! Waits of clients for a lock: mostly short ones, so that much happens.

use std::time::Duration;

/// Now and then for longer than a free lock may take to be granted: only a wait that is still under
/// way then shows that its client was never woken.
const LONG: Duration = Duration::from_secs(6);
/// One wait in so many is a long one. More would keep too many clients at a node that is cut off.
const LONG_ONE_IN: u8 = 10;

/// The time for the next wait.
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
