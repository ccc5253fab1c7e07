//! Output of commands: text for people, JSON for programs.

use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;
use zlock_client::ClientInfo;

use super::failure::Failure;
use super::seen::{plain, seen_json};

/// Printer of a command's result to stdout, as text or JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Whether the output is JSON: one document, or for a stream of results one document a line.
    pub(crate) json: bool,
    colour: bool,
}

/// Meaning of a coloured text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tone {
    /// A good state, in green.
    Good,
    /// A state that needs attention, in red.
    Bad,
    /// Less important text, printed faintly.
    Faint,
}

impl Output {
    /// Creates a printer. It uses colours only on a terminal, and not if `NO_COLOR` is set or
    /// `json` is true.
    pub(crate) fn new(json: bool) -> Output {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Output { json, colour: !json && !unwanted && std::io::stdout().is_terminal() }
    }

    /// Prints a line.
    pub(crate) fn line(&self, line: &str) -> Result<(), Failure> {
        self.bytes(format!("{line}\n").as_bytes())
    }

    /// Prints a JSON document in one line.
    pub(crate) fn document(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|error| Failure::refused(format!("cannot print: {error}")))?;
        self.line(&seen_json(&text))
    }

    /// Prints the result of a successful command: `document` as JSON with `--json`, otherwise the
    /// text that `tell` prints. Returns exit code 0.
    pub(crate) fn answer(
        &self,
        document: &impl Serialize,
        tell: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<u8, Failure> {
        if self.json {
            self.document(document)?
        } else {
            tell()?
        }
        Ok(0)
    }

    /// Prints bytes unchanged.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| Failure::unwritten(&error))
    }

    /// Returns the text in a colour, if the output has colours.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Prints a table with headings; nothing without rows. If the terminal is too narrow, the
    /// widest columns are shortened, except the last. Only cells of the last column may have
    /// colours.
    pub(crate) fn table(&self, headings: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        if rows.is_empty() {
            return Ok(());
        }
        let width = |column: usize| rows.iter().map(|row| visible(&row[column])).max().unwrap_or(0);
        let mut widths: Vec<usize> =
            headings.iter().enumerate().map(|(column, heading)| width(column).max(heading.len())).collect();
        if let Some(most) = terminal_width() {
            narrow(&mut widths, most);
        }
        let line = |cells: &[String]| -> String {
            let (last, others) = cells.split_last().expect("a table has columns");
            let others = others.iter().zip(&widths).map(|(cell, width)| format!("{:width$}  ", cut(cell, *width)));
            others.chain([last.clone()]).collect::<String>().trim_end().to_owned()
        };
        let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
        self.line(&self.paint(Tone::Faint, &line(&headings)))?;
        rows.iter().try_for_each(|row| self.line(&line(row)))
    }
}

/// Returns the number of columns of the terminal; `None` when stdout is no terminal.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Smallest width in characters to which a column is shortened.
const CUT_MIN: usize = 6;

/// Reduces the widest columns until a line, with two blanks between columns, has at most `most`
/// characters, or all columns have their smallest width. The last column keeps its width.
fn narrow(widths: &mut [usize], most: usize) {
    let Some((last, others)) = widths.split_last_mut() else { return };
    let mut over = (*last + others.iter().map(|width| width + 2).sum::<usize>()).saturating_sub(most);
    while over > 0
        && let Some(widest) = others.iter_mut().max().filter(|widest| **widest > CUT_MIN)
    {
        *widest -= 1;
        over -= 1;
    }
}

/// Shortens a text to `width` characters, with an ellipsis at the end. A shorter text is unchanged.
fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width.saturating_sub(1)) {
        Some((end, last)) if text.len() > end + last.len_utf8() => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

/// Returns the number of visible characters of a text. Escape sequences for colours do not count.
fn visible(text: &str) -> usize {
    let mut parts = text.split("\x1b[");
    let first = parts.next().map_or(0, |part| part.chars().count());
    first + parts.map(|part| part.split_once('m').map_or(0, |(_, seen)| seen.chars().count())).sum::<usize>()
}

/// Describes the client of a holder or waiter; `-` when it is unknown.
pub(crate) fn client(client: Option<&ClientInfo>) -> String {
    client.map_or("-".into(), |client| plain(&client.to_string()))
}

/// Returns an enum value of the HTTP API as its word in JSON.
pub(crate) fn word(word: &impl Serialize) -> String {
    match serde_json::to_value(word) {
        Ok(serde_json::Value::String(text)) => text,
        _ => "?".to_owned(),
    }
}

/// Formats a duration in milliseconds in short form: `4s`, `3m12s`, `5h02m`, `3d04h`.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Formats the time since `ms`, in milliseconds since 1970, by this machine's clock. The cluster's
/// clock may differ a little.
pub(crate) fn since(ms: u64) -> String {
    span(now_ms().saturating_sub(ms))
}

/// Returns the milliseconds until `ms`, in milliseconds since 1970, by this machine's clock; 0 for
/// a past time.
pub(crate) fn until(ms: u64) -> u64 {
    ms.saturating_sub(now_ms())
}

/// Returns the time of this machine's clock, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        let seconds = [0, 59, 60, 192, 3_600, 18_120, 86_400, 273_600];
        let said: Vec<String> = seconds.iter().map(|seconds| span(seconds * 1_000)).collect();
        assert_eq!(said, ["0s", "59s", "1m00s", "3m12s", "1h00m", "5h02m", "1d00h", "3d04h"]);
    }

    #[test]
    fn columns_are_cut_to_the_width_of_a_terminal() {
        let narrowed = |widths: &[usize], most| {
            let mut widths = widths.to_vec();
            narrow(&mut widths, most);
            widths
        };
        assert_eq!(narrowed(&[30, 8, 20, 5], 80), [30, 8, 20, 5]);
        assert_eq!(narrowed(&[30, 8, 20, 5], 59), [20, 8, 20, 5]);
        assert_eq!(narrowed(&[30, 8, 20, 5], 10), [6, 6, 6, 5]);
        assert_eq!(
            (cut("orders", 6), cut("orders", 5), cut("bücher", 3)),
            ("orders".into(), "orde…".into(), "bü…".into())
        );
        assert_eq!(visible("\x1b[32mholds\x1b[0m"), 5);
    }

    #[test]
    fn json_has_no_colours() {
        let output = Output { json: true, colour: false };
        assert_eq!(output.paint(Tone::Bad, "x"), "x");
        assert_eq!(Output { json: false, colour: true }.paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
    }
}
