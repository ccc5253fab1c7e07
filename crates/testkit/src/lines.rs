//! Capture of the log lines of the test's own process.

use std::fmt;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Captured log lines of one crate, of one level and the more severe levels.
#[derive(Clone, Debug)]
pub struct Lines {
    target: &'static str,
    level: Level,
    lines: Arc<Mutex<Vec<Line>>>,
}

#[derive(Clone, Debug, Default)]
struct Line {
    message: String,
    /// The message and all other fields, each as `name=value`.
    text: String,
}

impl Lines {
    /// Returns a subscriber that captures lines whose target begins with `target`.
    pub fn of(target: &'static str, level: Level) -> Lines {
        Lines { target, level, lines: Arc::default() }
    }

    /// Installs the subscriber for the whole process.
    ///
    /// # Panics
    /// If the process already has a global subscriber.
    pub fn gather(self) -> Lines {
        tracing::subscriber::set_global_default(self.clone()).expect("one for each process");
        self
    }

    /// Returns the lines that contain `words` in their message or fields.
    pub fn with(&self, words: &str) -> Vec<String> {
        self.all().into_iter().map(|line| line.text).filter(|text| text.contains(words)).collect()
    }

    /// Returns the messages of all lines whose message is one of `messages`, in order.
    pub fn among(&self, messages: &[&str]) -> Vec<String> {
        self.all().into_iter().map(|line| line.message).filter(|message| messages.contains(&&**message)).collect()
    }

    fn all(&self) -> Vec<Line> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
        // Writing to a string does not fail.
        let _ = write!(self.text, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level && metadata.target().starts_with(self.target)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
