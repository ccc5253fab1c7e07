//! Logging: lines of text or JSON, to stderr, which may be a stream to journald, or to a file that
//! can be reopened.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use accept::Mutex;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::config::{LogFormat, Settings};

/// Function that replaces the log filter of the running program.
type SetFilter = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// Handle for changing the log's file and filter while the program runs.
pub(crate) struct Logs {
    out: Out,
    set_filter: SetFilter,
}

/// Destination of the log lines. Clones share the file.
#[derive(Clone, Default)]
struct Out {
    /// The file; `None` for stderr.
    file: Arc<Mutex<Option<File>>>,
    /// Whether stderr is a stream to journald, which keeps a priority and a time for each line.
    to_journal: bool,
    /// Level of the line to be written, if it is known.
    level: Option<Level>,
}

impl Out {
    /// Opens `file` for further lines; an empty path stands for stderr. The same path is opened
    /// again, because log rotation may have renamed the file. After an error the previous file
    /// stays in use.
    fn open(&self, file: &Path) -> Result<(), String> {
        let opened = match file.as_os_str().is_empty() {
            true => None,
            false => {
                // Mode 0640, because log lines contain paths and addresses of clients.
                let opened = OpenOptions::new().append(true).create(true).mode(0o640).open(file);
                Some(opened.map_err(|error| format!("log.file: cannot open {}: {error}", file.display()))?)
            }
        };
        *self.file.lock() = opened;
        Ok(())
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    // The lock is held for the whole line, so that lines do not mix.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut *self.file.lock() {
            Some(file) => file.write_all(bytes),
            None if self.to_journal => io::stderr().write_all(&journal_line(self.level, bytes)),
            None => io::stderr().write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Out {
    type Writer = Out;

    fn make_writer(&self) -> Out {
        self.clone()
    }

    fn make_writer_for(&self, meta: &Metadata<'_>) -> Out {
        Out { level: Some(*meta.level()), ..self.clone() }
    }
}

/// Time at the beginning of a line of text, which a line to journald does not have.
impl FormatTime for Out {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        if self.to_journal && self.file.lock().is_none() { Ok(()) } else { SystemTime.format_time(writer) }
    }
}

/// Returns a line with its priority in front, as sd-daemon(3) defines it. Removes the leading
/// space, which only a line with a time needs.
fn journal_line(level: Option<Level>, line: &[u8]) -> Vec<u8> {
    let priority = match level {
        Some(Level::ERROR) => "<3>",
        Some(Level::WARN) => "<4>",
        Some(Level::INFO) | None => "<6>",
        Some(_) => "<7>",
    };
    [priority.as_bytes(), line.trim_ascii_start()].concat()
}

/// Tells whether stderr is the stream that `JOURNAL_STREAM` describes: device and inode of
/// journald's socket.
fn stderr_is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    rustix::fs::fstat(io::stderr()).is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

impl Logs {
    /// Applies the log filter and the log file of another configuration.
    pub(crate) fn change(&self, settings: &Settings) -> Result<(), String> {
        let filter = filter(settings)?;
        self.out.open(&settings.log_file)?;
        (self.set_filter)(filter)
    }
}

/// Starts logging. Also makes every panic abort the process, because a node with a bug must not go
/// on.
pub(crate) fn start(settings: &Settings) -> Result<Logs, String> {
    let filter = filter(settings)?;
    let out = Out { to_journal: stderr_is_journal(), ..Out::default() };
    out.open(&settings.log_file)?;
    let for_people = settings.log_file.as_os_str().is_empty() && io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(out.clone())
        .with_ansi(for_people && settings.log_format == LogFormat::Text)
        // Without this, an error of a closed stderr would be printed to stderr, which panics.
        .log_internal_errors(false);
    let set_filter: SetFilter = match settings.log_format {
        LogFormat::Text => {
            let builder = builder.with_timer(out.clone()).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_current_span(false).with_span_list(false);
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
        }
    };
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
    Ok(Logs { out, set_filter })
}

/// Parses the log filter, such as `info,replica=debug`.
fn filter(settings: &Settings) -> Result<EnvFilter, String> {
    let text = &settings.log;
    EnvFilter::try_new(text).map_err(|error| format!("log.level: `{text}` is not a filter: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_opened_anew_where_it_was_renamed_and_the_one_before_stays_where_it_cannot_be() {
        let dir = tempfile::tempdir().unwrap();
        let (file, old) = (dir.path().join("node.log"), dir.path().join("node.log.1"));
        let mut out = Out::default();
        out.open(&file).unwrap();
        out.write_all(b"one\n").unwrap();
        std::fs::rename(&file, &old).unwrap();
        out.write_all(b"two\n").unwrap();
        out.open(&file).unwrap();
        out.write_all(b"three\n").unwrap();
        let refused = out.open(&dir.path().join("missing/node.log")).unwrap_err();
        assert!(refused.starts_with("log.file: cannot open "), "{refused}");
        out.write_all(b"four\n").unwrap();
        let read = |file| std::fs::read_to_string(file).unwrap();
        assert_eq!([read(&old), read(&file)], ["one\ntwo\n", "three\nfour\n"]);
    }
}
