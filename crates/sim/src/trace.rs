//! Trace of a run: a hash of all events, and optionally their text.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher as _};

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
    hash: DefaultHasher,
    events: u64,
    last: VecDeque<String>,
}

impl Trace {
    /// Returns an empty trace.
    pub fn new(detail: Detail) -> Trace {
        Trace { detail, hash: DefaultHasher::new(), events: 0, last: VecDeque::new() }
    }

    /// Adds an event: numbers for the hash, and words for people.
    pub fn event(&mut self, at_ms: u64, numbers: &[u64], words: impl FnOnce() -> String) {
        self.events += 1;
        self.hash.write_u64(at_ms);
        numbers.iter().for_each(|number| self.hash.write_u64(*number));
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
        self.hash.finish()
    }

    /// The number of events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The last events in words.
    pub fn last(&self) -> impl Iterator<Item = &str> {
        self.last.iter().map(String::as_str)
    }
}

/// Returns the hash of bytes.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = DefaultHasher::new();
    hash.write(bytes);
    hash.finish()
}
