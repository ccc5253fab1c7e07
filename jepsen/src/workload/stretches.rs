//! Keys of the workload `register`. A few are in use at a time, each for a short period, so that
//! the history of each key is short.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::epoch;
use crate::client::Client;

/// Number of keys in use at the same time.
const KEYS: u64 = 5;
/// Length of a period, after which clients change to new keys.
const EPOCH: Duration = Duration::from_secs(5);

/// Numbers of those periods of a run for which all keys have been created.
pub(super) struct Stretches {
    there: Mutex<BTreeSet<u64>>,
}

impl Stretches {
    /// Returns the state at the beginning of a run: the keys of period 0 exist.
    pub(super) fn new() -> Stretches {
        Stretches { there: Mutex::new(BTreeSet::from([0])) }
    }

    fn there(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn newest(&self) -> u64 {
        self.there().last().copied().unwrap_or(0)
    }

    /// Returns the number of the present period if its keys are still to be created.
    pub(super) fn next(&self, client: &Client) -> Option<u64> {
        Some(epoch(client, EPOCH)).filter(|now| *now > self.newest())
    }

    /// Adds the number of a period for which all keys have been created.
    pub(super) fn add(&self, stretch: u64) {
        self.there().insert(stretch);
    }

    /// Returns a random key of the newest stretch (period of the run with its own keys) whose keys
    /// have all been created.
    pub(super) fn any_key(&self, client: &mut Client) -> String {
        key(self.newest(), client.rng.u64(..KEYS))
    }

    /// Returns every key that was ever in use.
    pub(super) fn all_keys(&self) -> Vec<String> {
        self.there().iter().flat_map(|stretch| keys(*stretch)).collect()
    }
}

fn key(stretch: u64, number: u64) -> String {
    format!("{stretch}-{number}")
}

/// Returns the names of the keys of the period with this number.
pub(super) fn keys(stretch: u64) -> impl Iterator<Item = String> {
    (0..KEYS).map(move |number| key(stretch, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_known_after_their_stretch() {
        let stretches = Stretches::new();
        stretches.add(2);
        let both: Vec<String> = keys(0).chain(keys(2)).collect();
        assert_eq!(stretches.all_keys(), both);
        assert_eq!(stretches.newest(), 2);
    }
}
