//! Log lines of the test's own process: printed for the case that the test fails, and captured.

use std::fmt;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, fmt as printed, registry};

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

/// Captures of the whole process.
static GATHERED: Mutex<Vec<Lines>> = Mutex::new(Vec::new());

/// Prints log lines of nodes that run in the test's own process. A runner shows them if the test
/// fails.
pub fn print_log() {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| {
        let quiet = ["openraft", "raft_log", "chunked_wal", "sled"].map(|library| (library, LevelFilter::ERROR));
        let levels = Targets::new().with_default(LevelFilter::INFO).with_targets(quiet);
        let lines = printed::layer().with_ansi(false).with_test_writer().with_filter(levels);
        let subscriber = registry().with(lines).with(Gatherer.with_filter(LevelFilter::INFO));
        // A test may have a subscriber of its own.
        let _ = tracing::subscriber::set_global_default(subscriber);
    });
}

impl Lines {
    /// Makes an empty capture of lines whose target begins with `target`.
    pub fn of(target: &'static str, level: Level) -> Lines {
        Lines { target, level, lines: Arc::default() }
    }

    /// Captures the lines of the whole process from now on.
    pub fn gather(self) -> Lines {
        print_log();
        GATHERED.lock().unwrap_or_else(PoisonError::into_inner).push(self.clone());
        self
    }

    /// Captures the lines of this thread until the guard is dropped.
    pub fn gather_here(&self) -> DefaultGuard {
        tracing::subscriber::set_default(registry().with(self.clone()))
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

    fn capture(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        if *metadata.level() <= self.level && metadata.target().starts_with(self.target) {
            let mut line = Line::default();
            event.record(&mut line);
            self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
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

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.capture(event);
    }
}

/// Layer that passes each line to all captures of the process.
struct Gatherer;

impl<S: Subscriber> Layer<S> for Gatherer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        GATHERED.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|lines| lines.capture(event));
    }
}
