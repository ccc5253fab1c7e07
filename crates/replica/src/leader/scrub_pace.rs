//! Pace of the scrub: time between two entries that hash records of the state.

use std::time::Duration;

/// Shortest time between two entries. A round of a large state takes longer than it should, so that
/// the scrub never keeps a cluster busy.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// Estimated memory of the records that one entry hashes, in bytes. An entry hashes 128 records,
/// each of about 400 bytes or more, or records of 64 KiB. Only znodes that share a long ACL take
/// less memory than their records, so that a round with many of them takes longer.
const ENTRY_BYTES: u64 = 48 << 10;

/// Time between two entries with which a round through a state of `state_bytes` bytes takes at most
/// `round`.
pub(crate) fn pause(round: Duration, state_bytes: u64) -> Duration {
    let entries = u32::try_from(1 + state_bytes / ENTRY_BYTES).unwrap_or(u32::MAX);
    (round / entries).max(PAUSE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_state_takes_few_entries_and_a_large_one_takes_longer() {
        let hour = Duration::from_secs(3_600);
        for (state_bytes, expected_ms) in
            [(0, 3_600_000), (100_000, 1_200_000), (10 << 20, 16_822), (600 << 20, 281), (1 << 30, 200)]
        {
            assert_eq!(pause(hour, state_bytes).as_millis(), expected_ms, "{state_bytes} bytes");
        }
    }
}
