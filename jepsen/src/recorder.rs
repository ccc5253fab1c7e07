//! Recorder of a run's history, in memory and in `history.jsonl`.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;

use crate::history::{Entry, Kind, NemesisTag, Process};

/// Name of a pulse in the history. A pulse is not counted as an operation of the workload.
pub(crate) const PULSE: &str = "pulse";

/// Counts of operations by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations that happened.
    pub ok: u64,
    /// Operations that did not happen.
    pub fail: u64,
    /// Operations that may have happened.
    pub info: u64,
}

struct Tape {
    entries: Vec<Entry>,
    file: BufWriter<File>,
    counts: Counts,
    next_process: u64,
    /// First error in writing `history.jsonl`; [`Recorder::finish`] returns it.
    error: Option<io::Error>,
}

/// Recorder of the history of a run. A history entry gets its index and its time while one mutex is
/// held, so both rise together.
pub struct Recorder {
    began: Instant,
    tape: Mutex<Tape>,
}

impl Recorder {
    /// Begins a history that is also written to `history.jsonl` in `dir`, line by line.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(dir: &Path) -> io::Result<Recorder> {
        let file = BufWriter::new(File::create(dir.join("history.jsonl"))?);
        let tape = Tape { entries: Vec::new(), file, counts: Counts::default(), next_process: 0, error: None };
        Ok(Recorder { began: Instant::now(), tape: Mutex::new(tape) })
    }

    fn tape(&self) -> MutexGuard<'_, Tape> {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds since the run began.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the number of a process that the history does not have yet.
    pub fn new_process(&self) -> u64 {
        let mut tape = self.tape();
        tape.next_process += 1;
        tape.next_process - 1
    }

    /// Adds an entry to the history, with the next index and the present time.
    pub fn record(&self, mut entry: Entry) {
        let mut tape = self.tape();
        entry.index = tape.entries.len() as u64;
        entry.time = self.now_ns();
        if matches!(entry.process, Process::Client(_)) && entry.f != PULSE {
            match entry.kind {
                Kind::Ok => tape.counts.ok += 1,
                Kind::Fail => tape.counts.fail += 1,
                Kind::Info => tape.counts.info += 1,
                Kind::Invoke => {}
            }
        }
        let mut line = serde_json::to_vec(&entry).expect("an entry is JSON");
        line.push(b'\n');
        if let Err(error) = tape.file.write_all(&line) {
            tape.error.get_or_insert(error);
        }
        tape.entries.push(entry);
    }

    /// Adds an action of the nemesis as a single entry.
    pub fn nemesis(&self, f: &str, value: Value) {
        self.record(Entry {
            index: 0,
            time: 0,
            process: Process::Nemesis(NemesisTag::Nemesis),
            kind: Kind::Info,
            f: f.to_owned(),
            value,
            error: None,
            node: None,
            zxid: None,
        });
    }

    /// The counts of operations so far.
    pub fn counts(&self) -> Counts {
        self.tape().counts
    }

    /// Returns the whole history, after writing the rest of the file.
    ///
    /// # Errors
    /// When a write to the file has failed, now or before.
    pub fn finish(&self) -> io::Result<Vec<Entry>> {
        let mut tape = self.tape();
        tape.file.flush()?;
        if let Some(error) = tape.error.take() {
            return Err(error);
        }
        Ok(tape.entries.clone())
    }
}
