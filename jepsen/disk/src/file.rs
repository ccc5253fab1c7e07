//! Content of one file, twice: as processes see it now, and as it is on the medium (durable).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;

/// Size of a page in bytes. At a loss of power, a page survives or is lost as a whole.
pub const PAGE_BYTES: usize = 4096;

const PAGE: u64 = PAGE_BYTES as u64;

type Page = Arc<[u8; PAGE_BYTES]>;

/// Content of a file: its pages by their number. A missing page is a hole and reads as zeros.
#[derive(Clone, Debug, Default)]
struct Content {
    pages: BTreeMap<u64, Page>,
    size: u64,
}

impl Content {
    /// Truncates or grows the content to `size`. Bytes behind the end are cleared, because they
    /// must be zero when the file grows again. Returns the page whose end was cleared, if any.
    fn resize(&mut self, size: u64) -> Option<u64> {
        self.size = size;
        drop(self.pages.split_off(&size.div_ceil(PAGE)));
        let (last, kept) = (size / PAGE, (size % PAGE) as usize);
        let page = self.pages.get_mut(&last)?;
        Arc::make_mut(page)[kept..].fill(0);
        Some(last)
    }

    /// Takes over a page of another content, or the hole in its place.
    fn copy(&mut self, number: u64, from: &Content) {
        match from.pages.get(&number) {
            Some(page) => self.pages.insert(number, page.clone()),
            None => self.pages.remove(&number),
        };
    }
}

/// A file with its present content and its durable content.
#[derive(Debug, Default)]
pub(crate) struct File {
    now: Content,
    durable: Content,
    /// Pages that were changed after their last fsync.
    unsynced: BTreeSet<u64>,
    /// Pages of a failed fsync. The next fsync skips them, as on Linux, which marks such pages as
    /// clean.
    forgotten: BTreeSet<u64>,
}

/// Counts of the unsynced changes at a loss of power: those that survived it and those that were
/// lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Number of unsynced pages that survived.
    pub pages_kept: u64,
    /// Number of unsynced pages that were lost. Their content is that of the last fsync again.
    pub pages_lost: u64,
    /// Number of unsynced changes of directories that survived.
    pub names_kept: u64,
    /// Number of unsynced changes of directories that were lost.
    pub names_lost: u64,
}

impl File {
    /// Size in bytes, as processes see it.
    pub(crate) fn size(&self) -> u64 {
        self.now.size
    }

    /// Number of allocated bytes. Holes take no space.
    pub(crate) fn allocated(&self) -> u64 {
        self.now.pages.len() as u64 * PAGE
    }

    /// Reads `length` bytes from `offset`; fewer at the end of the file.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let end = offset.saturating_add(length as u64).min(self.now.size);
        let mut bytes = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let (number, from) = (at / PAGE, (at % PAGE) as usize);
            let to = PAGE_BYTES.min(from + (end - at) as usize);
            match self.now.pages.get(&number) {
                Some(page) => bytes.extend_from_slice(&page[from..to]),
                None => bytes.resize(bytes.len() + to - from, 0),
            }
            at += (to - from) as u64;
        }
        bytes
    }

    /// Writes `bytes` at `offset`. The file grows if they go beyond its end.
    pub(crate) fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        self.now.size = self.now.size.max(offset + bytes.len() as u64);
        let mut at = offset;
        while !bytes.is_empty() {
            let (number, from) = (at / PAGE, (at % PAGE) as usize);
            let (part, rest) = bytes.split_at(bytes.len().min(PAGE_BYTES - from));
            let page = self.now.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[from..from + part.len()].copy_from_slice(part);
            self.touched(number);
            at += part.len() as u64;
            bytes = rest;
        }
    }

    /// Truncates or grows the file. A new part is a hole.
    pub(crate) fn resize(&mut self, size: u64) {
        let gone: Vec<u64> = self.now.pages.range(size.div_ceil(PAGE)..).map(|(number, _)| *number).collect();
        gone.into_iter().for_each(|number| self.touched(number));
        if let Some(last) = self.now.resize(size) {
            self.touched(last);
        }
    }

    /// Overwrites a range with zeros, without changing the size.
    pub(crate) fn punch(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.now.size);
        let mut at = offset;
        while at < end {
            let to = end.min((at / PAGE + 1) * PAGE);
            if self.now.pages.contains_key(&(at / PAGE)) {
                self.write(at, &vec![0; (to - at) as usize]);
            }
            at = to;
        }
    }

    fn touched(&mut self, number: u64) {
        self.forgotten.remove(&number);
        self.unsynced.insert(number);
    }

    /// Makes the written bytes and the size durable, as fsync and fdatasync do.
    pub(crate) fn sync(&mut self) {
        for number in std::mem::take(&mut self.unsynced) {
            self.durable.copy(number, &self.now);
        }
        self.durable.size = self.now.size;
        self.durable.resize(self.now.size);
    }

    /// Fails an fsync: nothing becomes durable. A later fsync makes the unsynced pages durable only
    /// if processes write them again.
    pub(crate) fn sync_failed(&mut self) {
        self.forgotten.append(&mut self.unsynced);
    }

    /// Drops the pages of failed fsyncs from the cache. From then on, reads return the durable
    /// content of these pages.
    pub(crate) fn drop_forgotten(&mut self) {
        for number in std::mem::take(&mut self.forgotten) {
            self.now.copy(number, &self.durable);
        }
        self.now.resize(self.now.size);
    }

    /// Cuts the power. Some of the unsynced pages survive. The size becomes that of the last sync,
    /// the present size, or a size between.
    pub(crate) fn cut(&mut self, rng: &mut Rng, cut: &mut Cut) {
        let (low, high) = (self.durable.size.min(self.now.size), self.durable.size.max(self.now.size));
        let size = match rng.u8(..4) {
            0 => self.durable.size,
            1 => rng.u64(low..=high),
            _ => self.now.size,
        };
        let survive = rng.f64();
        for number in std::mem::take(&mut self.unsynced) {
            if rng.f64() < survive {
                self.durable.copy(number, &self.now);
                cut.pages_kept += 1;
            } else {
                cut.pages_lost += 1;
            }
        }
        cut.pages_lost += self.forgotten.len() as u64;
        self.forgotten.clear();
        self.durable.resize(size);
        self.now = self.durable.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(file: &File) -> Vec<u8> {
        file.read(0, usize::MAX)
    }

    #[test]
    fn what_a_failed_sync_has_forgotten_is_read_until_it_is_dropped() {
        let mut file = File::default();
        file.write(0, b"old");
        file.sync();
        file.write(0, b"new");
        file.write(PAGE, b"more");
        file.sync_failed();
        file.write(2 * PAGE, b"later");
        file.sync();
        assert_eq!((&all(&file)[..3], &all(&file)[4096..4100]), (&b"new"[..], &b"more"[..]));
        file.drop_forgotten();
        assert_eq!((&all(&file)[..3], &all(&file)[4096..4100]), (&b"old"[..], &[0; 4][..]));
        assert_eq!(&all(&file)[8192..], b"later");
    }

    #[test]
    fn reads_see_writes_at_once_and_holes_as_zeros() {
        let mut file = File::default();
        file.write(PAGE - 1, b"abc");
        file.resize(3 * PAGE);
        assert_eq!(file.read(PAGE - 2, 5), b"\0abc\0");
        assert_eq!((file.size(), file.allocated()), (3 * PAGE, 2 * PAGE));
        file.punch(PAGE, 1);
        assert_eq!(file.read(PAGE - 1, 3), b"a\0c");
    }

    #[test]
    fn what_was_synced_survives_every_cut() {
        for seed in 0..200 {
            let mut file = File::default();
            file.write(0, &[1; 3 * PAGE_BYTES]);
            file.sync();
            file.cut(&mut Rng::with_seed(seed), &mut Cut::default());
            assert_eq!(all(&file), [1; 3 * PAGE_BYTES], "seed {seed}");
        }
    }

    #[test]
    fn unsynced_pages_survive_one_by_one_and_leave_holes() {
        let (mut holes, mut shorter, mut whole, mut nothing) = (0, 0, 0, 0);
        for seed in 0..500 {
            let mut file = File::default();
            file.write(0, b"old");
            file.sync();
            file.write(PAGE, &[1; 4 * PAGE_BYTES]);
            file.cut(&mut Rng::with_seed(seed), &mut Cut::default());
            let bytes = all(&file);
            assert_eq!(&bytes[..3], b"old", "seed {seed}");
            assert!(bytes[3..].iter().all(|byte| *byte <= 1), "seed {seed}");
            let survived: Vec<bool> = (1..5).map(|page| file.read(page * PAGE, 1) == [1]).collect();
            holes += usize::from(survived.windows(2).any(|pair| pair == [false, true]));
            shorter += usize::from((4..5 * PAGE).contains(&file.size()));
            whole += usize::from(survived == [true; 4]);
            nothing += usize::from(file.size() == 3);
        }
        assert!(holes > 50 && shorter > 50 && whole > 10 && nothing > 50, "{holes} {shorter} {whole} {nothing}");
    }

    #[test]
    fn a_page_that_is_overwritten_is_the_old_one_or_the_new_one() {
        let (mut old, mut new) = (0, 0);
        for seed in 0..100 {
            let mut file = File::default();
            file.write(0, &[1; PAGE_BYTES]);
            file.sync();
            file.write(0, &[2; PAGE_BYTES]);
            let mut cut = Cut::default();
            file.cut(&mut Rng::with_seed(seed), &mut cut);
            old += usize::from(all(&file) == [1; PAGE_BYTES]);
            new += usize::from(all(&file) == [2; PAGE_BYTES]);
            assert_eq!(cut.pages_kept + cut.pages_lost, 1);
        }
        assert_eq!(old + new, 100);
        assert!(old > 10 && new > 10, "{old} {new}");
    }

    #[test]
    fn what_was_cut_off_does_not_come_back_behind_the_end() {
        for seed in 0..200 {
            let mut file = File::default();
            file.write(0, &[1; 2 * PAGE_BYTES]);
            file.sync();
            file.resize(10);
            file.sync();
            file.resize(PAGE);
            file.cut(&mut Rng::with_seed(seed), &mut Cut::default());
            let bytes = all(&file);
            assert_eq!(&bytes[..10], [1; 10], "seed {seed}");
            assert!(bytes[10..].iter().all(|byte| *byte == 0), "seed {seed}");
        }
    }

    #[test]
    fn a_page_whose_fsync_failed_is_not_written_by_the_next() {
        for seed in 0..50 {
            let mut file = File::default();
            file.write(0, &[1; 2 * PAGE_BYTES]);
            file.sync();
            file.write(0, &[2; PAGE_BYTES]);
            file.sync_failed();
            file.sync();
            assert_eq!(file.read(0, 1), [2], "it is still in the cache");
            file.cut(&mut Rng::with_seed(seed), &mut Cut::default());
            assert_eq!(file.read(0, 1), [1], "seed {seed}");
        }
    }

    #[test]
    fn the_same_seed_loses_the_same() {
        let after = |seed| {
            let mut file = File::default();
            file.write(0, &[7; 20 * PAGE_BYTES]);
            file.cut(&mut Rng::with_seed(seed), &mut Cut::default());
            all(&file)
        };
        assert_eq!(after(3), after(3));
        assert!((0..20).any(|seed| after(seed) != after(3)));
    }
}
