//! Trace of a run: a hash of all events, and optionally their text.

use std::collections::VecDeque;

/// Number of events whose text is kept, to show the end of a failed run.
const KEPT: usize = 200;

/// Part of a trace that is put into words. The hash is the same for every choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// No text, only the hash: the fastest.
    Hash,
    /// The text of the last events is kept.
    Last,
    /// The text of every event is printed as it happens.
    All,
}

/// The trace of one run.
#[derive(Debug)]
pub struct Trace {
    detail: Detail,
    hash: u64,
    events: u64,
    last: VecDeque<String>,
}

impl Trace {
    /// Returns an empty trace.
    pub fn new(detail: Detail) -> Trace {
        Trace { detail, hash: 0xcbf2_9ce4_8422_2325, events: 0, last: VecDeque::new() }
    }

    /// Adds an event: numbers for the hash, and words for people.
    pub fn event(&mut self, at_ms: u64, numbers: &[u64], words: impl FnOnce() -> String) {
        self.events += 1;
        self.mix(at_ms);
        numbers.iter().for_each(|number| self.mix(*number));
        if self.detail == Detail::Hash {
            return;
        }
        let line = format!("{:>6}.{:03} {}", at_ms / 1_000, at_ms % 1_000, words());
        if self.detail == Detail::All {
            println!("{line}");
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// The hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The number of events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The last events in words.
    pub fn last(&self) -> impl Iterator<Item = &str> {
        self.last.iter().map(String::as_str)
    }

    fn mix(&mut self, number: u64) {
        self.hash = mix(self.hash, number);
    }
}

/// Mixes one 64-bit word into the hash by FNV-1a. The added shift makes low bits depend on high
/// ones.
fn mix(hash: u64, number: u64) -> u64 {
    let hash = (hash ^ number).wrapping_mul(0x0000_0100_0000_01b3);
    hash ^ (hash >> 29)
}

/// Returns the hash of bytes.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
}
