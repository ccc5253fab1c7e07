//! Lengths of clients' waits for a lock. Most waits are short, so that many operations happen.

use std::time::Duration;

/// Length of a long wait. It is longer than the grant of a free lock may take, because the checker
/// finds a lost grant only by a wait that goes on after that time.
const LONG: Duration = Duration::from_secs(6);
/// Share of long waits: one in this many. With more of them, too many clients would wait at a node
/// that is cut off.
const LONG_ONE_IN: u8 = 10;

/// Returns the length of the next wait: mostly `short`, sometimes [`LONG`].
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
