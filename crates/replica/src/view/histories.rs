//! Hashes of the state's history after each of the last entries that this node has applied. Other
//! members compare them with their own.

use std::collections::VecDeque;

use znode::HistoryHash;

/// Largest number of hashes that are kept. A member's question about an entry comes some
/// milliseconds after the entry was applied here.
const KEPT_MAX: usize = 16_384;

/// Hashes of the state's history after each of the last entries.
#[derive(Debug, Default)]
pub(crate) struct LastHashes {
    /// Log index of the first hash.
    first: u64,
    hashes: VecDeque<HistoryHash>,
}

impl LastHashes {
    /// Adds the hash after the entry at `index`. Drops the other hashes if they do not end right
    /// before this entry, because a snapshot came in between.
    pub(crate) fn push(&mut self, index: u64, hash: HistoryHash) {
        if index != self.first + self.hashes.len() as u64 {
            self.hashes.clear();
        }
        if self.hashes.is_empty() {
            self.first = index;
        }
        if self.hashes.len() == KEPT_MAX {
            self.hashes.pop_front();
            self.first += 1;
        }
        self.hashes.push_back(hash);
    }

    /// The hash after the entry at `index`; `None` if it is not kept, or not known yet.
    pub(crate) fn at(&self, index: u64) -> Option<HistoryHash> {
        let place = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.hashes.get(place).copied()
    }

    /// Index of the last entry, and the hash after it.
    pub(crate) fn newest(&self) -> Option<(u64, HistoryHash)> {
        let hash = self.hashes.back()?;
        Some((self.first + self.hashes.len() as u64 - 1, *hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hashes_are_kept_and_a_gap_drops_them() {
        let mut hashes = LastHashes::default();
        assert_eq!((hashes.at(0), hashes.newest()), (None, None));
        let kept = KEPT_MAX as u64;
        (5..5 + kept).for_each(|index| hashes.push(index, HistoryHash(index)));
        assert_eq!([4, 5, 4 + kept, 5 + kept].map(|index| hashes.at(index).is_some()), [false, true, true, false]);
        hashes.push(5 + kept, HistoryHash(1));
        assert_eq!((hashes.at(5), hashes.at(6)), (None, Some(HistoryHash(6))));
        hashes.push(9 + kept, HistoryHash(2));
        assert_eq!((hashes.at(5 + kept), hashes.newest()), (None, Some((9 + kept, HistoryHash(2)))));
    }
}
