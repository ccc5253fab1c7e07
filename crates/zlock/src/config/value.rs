//! Kinds of values in the configuration, one module for each kind. `parse` converts the text of a
//! flag, a variable or the file to a value. `show` converts a value to text that `parse` converts
//! back.

pub mod members;
pub mod node_id;

use std::net::SocketAddr;
use std::path::PathBuf;

/// A whole number.
pub mod count {
    /// Name of this kind of value in the help.
    pub const NAME: &str = "COUNT";

    /// Reads a whole number; `_` may separate its digits.
    ///
    /// # Errors
    /// A message when the text is no whole number, or the number is too large for its key.
    pub fn parse<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
        let number: u64 =
            text.replace('_', "").parse().map_err(|_| format!("`{text}` is not a whole number, 0 or more"))?;
        super::fit(number, text)
    }

    /// Returns the value as text that `parse` reads back.
    pub fn show<T: ToString>(value: &T) -> String {
        value.to_string()
    }
}

/// A value that is true or false.
pub mod flag {
    pub use super::count::show;

    /// Name of this kind of value in the help.
    pub const NAME: &str = "true|false";

    /// Reads `true` or `false`.
    ///
    /// # Errors
    /// A message when the text is neither.
    pub fn parse(text: &str) -> Result<bool, String> {
        text.parse().map_err(|_| format!("`{text}` is neither true nor false"))
    }
}

/// Zxid base of a new cluster, which is added to log indexes to form zxids. The value is a number,
/// or `time` (`None`) for a base that is computed from the time.
pub mod zxid_base {
    use replica::ZXID_BASE_MAX;

    const TIME: &str = "time";

    /// Name of this kind of value in the help.
    pub const NAME: &str = "ZXID";

    /// Reads `time`, or a whole number.
    ///
    /// # Errors
    /// A message when the text is neither, or the number is above [`ZXID_BASE_MAX`].
    pub fn parse(text: &str) -> Result<Option<u64>, String> {
        if text == TIME {
            return Ok(None);
        }
        match super::count::parse(text) {
            Ok(base @ 0..=ZXID_BASE_MAX) => Ok(Some(base)),
            _ => Err(format!("`{text}` is neither `{TIME}` nor a whole number up to {ZXID_BASE_MAX}")),
        }
    }

    /// Returns the value as text that `parse` reads back.
    pub fn show(base: &Option<u64>) -> String {
        base.map_or_else(|| TIME.to_owned(), |base| base.to_string())
    }
}

/// A duration. The value is in milliseconds.
pub mod duration {
    const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

    /// Name of this kind of value in the help.
    pub const NAME: &str = "DURATION";

    /// Reads `250ms`, `30s`, `5m`, `1h` or `0`.
    ///
    /// # Errors
    /// When the text is no duration, or the duration is too long for its key.
    pub fn parse<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
        super::scaled(text, &UNITS, "a duration with its unit, such as `250ms`, `30s` or `5m`")
    }

    /// Returns the value as text that `parse` reads back.
    pub fn show<T: Copy + TryInto<u64>>(value: &T) -> String {
        super::in_largest_unit(*value, &UNITS)
    }
}

/// A size. The value is in bytes.
pub mod size {
    const UNITS: [(&str, u64); 5] = [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

    /// Name of this kind of value in the help.
    pub const NAME: &str = "SIZE";

    /// Reads `64MiB`, `16KiB`, `1GiB`, or plain bytes.
    ///
    /// # Errors
    /// When the text is no size, or the size is too large for its key.
    pub fn parse<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
        super::scaled(text, &UNITS, "a size such as `64MiB`, `16KiB` or plain bytes")
    }

    /// Returns the value as text that `parse` reads back.
    pub fn show<T: Copy + TryInto<u64>>(value: &T) -> String {
        super::in_largest_unit(*value, &UNITS)
    }
}

/// Any text but an empty one.
pub mod text {
    /// Name of this kind of value in the help.
    pub const NAME: &str = "TEXT";

    /// Returns the text unchanged.
    ///
    /// # Errors
    /// When it is empty.
    pub fn parse(text: &str) -> Result<String, String> {
        if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.to_owned()) }
    }

    /// Returns the value as text that `parse` reads back.
    pub fn show(value: &str) -> String {
        value.to_owned()
    }
}

/// A secret text. It is parsed like [`text`], and never printed.
pub mod secret {
    pub use super::text::{parse, show};

    /// Name of this kind of value in the help.
    pub const NAME: &str = "SECRET";
}

/// A filter of the log lines, by level and by part of the program.
pub mod filter {
    pub use super::text::show;

    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    /// Targets of log lines: parts of the program and libraries.
    const TARGETS: [&str; 10] =
        ["zlock", "rest", "wire", "replica", "storage", "accept", "openraft", "raft_log", "chunked_wal", "sled"];

    /// Name of this kind of value in the help.
    pub const NAME: &str = "FILTER";

    /// Checks a list such as `info,rest=debug`: levels, and parts of the program with levels.
    /// `EnvFilter` itself would accept an unknown part as a filter that matches no line.
    ///
    /// # Errors
    /// A message when a level or a part of the program is unknown.
    pub fn parse(text: &str) -> Result<String, String> {
        for one in text.split(',').map(str::trim) {
            let (target, level) = match one.split_once('=') {
                Some((target, level)) => (Some(target.trim()), level.trim()),
                None => (None, one),
            };
            let part = target.map(|target| target.split("::").next().unwrap_or_default());
            if let Some(part) = part.filter(|part| !TARGETS.contains(part)) {
                return Err(format!("`{part}` is not a part of zlock that logs; these are: {}", TARGETS.join(", ")));
            }
            if !LEVELS.contains(&&*level.to_ascii_lowercase()) {
                let hint = match level.to_ascii_lowercase().as_str() {
                    "json" | "text" => "; for the form of the lines there is log.format",
                    level if TARGETS.contains(&level) => "; give a part its level, as in `rest=debug`",
                    _ => "",
                };
                return Err(format!("`{level}` is not a level; these are: {}{hint}", LEVELS.join(", ")));
            }
        }
        Ok(text.to_owned())
    }
}

/// A format of the log lines.
pub mod log_format {
    use crate::config::LogFormat;

    /// Name of this kind of value in the help.
    pub const NAME: &str = "FORMAT";

    /// Reads `text` or `json`.
    ///
    /// # Errors
    /// A message when the text is neither.
    pub fn parse(text: &str) -> Result<LogFormat, String> {
        let named = LogFormat::ALL.into_iter().find(|format| format.as_str() == text);
        named.ok_or_else(|| format!("`{text}` is neither text nor json"))
    }

    /// Returns the value as text that `parse` reads back.
    pub fn show(value: &LogFormat) -> String {
        value.as_str().to_owned()
    }
}

/// Host names and addresses, separated by commas; empty by default.
pub mod hosts {
    /// Name of this kind of value in the help.
    pub const NAME: &str = "HOST,...";

    /// Reads a list such as `node1,zlock.example,10.0.0.1`, and normalizes each host for
    /// comparisons.
    ///
    /// # Errors
    /// A message when an element is not valid as a host in a request.
    pub fn parse(text: &str) -> Result<Vec<String>, String> {
        super::each(text, rest::normal_host, "a name or an address, without a scheme or a port")
    }

    /// Returns the value as text that `parse` reads back.
    pub fn show(value: &[String]) -> String {
        value.join(",")
    }
}

/// Web origins, separated by commas; empty by default.
pub mod origins {
    pub use super::hosts::show;

    /// Name of this kind of value in the help.
    pub const NAME: &str = "ORIGIN,...";

    /// Reads a list such as `https://ui.example,http://localhost:8080`, and normalizes each origin
    /// to the form that browsers send.
    ///
    /// # Errors
    /// A message when an element is no origin.
    pub fn parse(text: &str) -> Result<Vec<String>, String> {
        super::each(text, rest::normal_origin, "an origin like https://ui.example:8443, without a path")
    }
}

/// Subjects of certificates, separated by semicolons, because a subject contains commas; empty by
/// default.
pub mod subjects {
    /// Name of this kind of value in the help.
    pub const NAME: &str = "SUBJECT;...";

    /// Reads a list such as `CN=ops,O=Example;CN=root`, with each subject in the form of ACLs of
    /// the scheme `x509`. A semicolon within a subject is escaped by a backslash.
    ///
    /// # Errors
    /// A message when an element is no subject.
    pub fn parse(text: &str) -> Result<Vec<String>, String> {
        let (mut found, mut begin, mut escaped) = (Vec::new(), 0, false);
        for (at, c) in text.char_indices() {
            if c == ';' && !escaped {
                found.push(&text[begin..at]);
                begin = at + 1;
            }
            escaped = c == '\\' && !escaped;
        }
        found.push(&text[begin..]);
        found.into_iter().map(|one| subject(one.trim())).collect()
    }

    /// Checks a subject, and returns it unchanged. Subjects are compared as text, so a different
    /// spelling would match no client.
    fn subject(text: &str) -> Result<String, String> {
        let parts = text.split_once('=').filter(|(word, value)| !value.is_empty() && super::is_attribute(word));
        let wrong = || format!("`{text}` is not a subject like `CN=ops,O=Example`, as x509 ACLs write it");
        parts.map(|_| text.to_owned()).ok_or_else(wrong)
    }

    /// Returns the value as text that `parse` reads back.
    pub fn show(value: &[String]) -> String {
        value.join(";")
    }
}

/// Networks, separated by commas; empty by default.
pub mod networks {
    use accept::Networks;

    pub use super::count::show;

    /// Name of this kind of value in the help.
    pub const NAME: &str = "NETWORK,...";

    /// Reads a list such as `10.0.0.0/8,192.0.2.7,2001:db8::/32`.
    ///
    /// # Errors
    /// A message when an element is no network.
    pub fn parse(text: &str) -> Result<Networks, String> {
        text.parse()
    }
}

/// Path of a file; empty by default.
pub mod file {
    use super::PathBuf;

    /// Name of this kind of value in the help.
    pub const NAME: &str = "FILE";

    /// Returns the path unchanged. A relative path is relative to the working directory of the
    /// program.
    ///
    /// # Errors
    /// When the text is empty.
    pub fn parse(text: &str) -> Result<PathBuf, String> {
        super::text::parse(text).map(PathBuf::from)
    }

    /// Returns the value as text that `parse` reads back.
    pub fn show(value: &std::path::Path) -> String {
        value.display().to_string()
    }
}

/// Path of a directory.
pub mod directory {
    pub use crate::config::value::file::{parse, show};

    /// Name of this kind of value in the help.
    pub const NAME: &str = "DIR";
}

/// An address to listen on; absent by default.
pub mod listen {
    use super::SocketAddr;

    /// Name of this kind of value in the help.
    pub const NAME: &str = "IP:PORT";

    /// Reads `127.0.0.1:7001` or `[::1]:7001`.
    ///
    /// # Errors
    /// A message when the text is no IP address with a port. Names are not resolved.
    pub fn parse(text: &str) -> Result<Option<SocketAddr>, String> {
        text.parse()
            .map(Some)
            .map_err(|_| format!("`{text}` is not an IP address with a port, such as `127.0.0.1:7001`"))
    }

    /// Returns the value as text that `parse` reads back; empty for an absent address.
    pub fn show(value: &Option<SocketAddr>) -> String {
        value.map(|addr| addr.to_string()).unwrap_or_default()
    }
}

/// Tells whether a text can be the name of an attribute in a subject: letters, digits and dots.
fn is_attribute(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
}

/// Splits a text at its commas, and normalizes each element with `normal`. `what` describes a valid
/// element, for the error.
fn each(text: &str, normal: fn(&str) -> Option<String>, what: &str) -> Result<Vec<String>, String> {
    let one = |one: &str| normal(one).ok_or_else(|| format!("`{one}` is not {what}"));
    text.split(',').map(|part| one(part.trim())).collect()
}

/// Parses a number followed by one of the `units`; 0 needs no unit. `what` describes a valid text,
/// for the error.
fn scaled<T: TryFrom<u64>>(text: &str, units: &[(&str, u64)], what: &str) -> Result<T, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit.trim()).map(|(_, factor)| *factor);
    let number = number.replace('_', "").parse::<u64>().ok();
    let factor = factor.or(number.filter(|number| *number == 0 && unit.is_empty()));
    let (Some(factor), Some(number)) = (factor, number) else {
        return Err(format!("`{text}` is not {what}"));
    };
    fit(number.checked_mul(factor).ok_or_else(|| format!("`{text}` is too large"))?, text)
}

fn fit<T: TryFrom<u64>>(number: u64, text: &str) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("`{text}` is too large"))
}

fn in_largest_unit<T: TryInto<u64>>(value: T, units: &[(&str, u64)]) -> String {
    let Ok(value) = value.try_into() else {
        return String::new();
    };
    let best = units.iter().rev().find(|(_, factor)| value % factor == 0 && value >= *factor);
    best.map_or_else(|| value.to_string(), |(name, factor)| format!("{}{name}", value / factor))
}
