//! Kinds of values. Each kind parses a text, wherever it was given, and shows a value as text that
//! parses to the same value.

use std::net::SocketAddr;
use std::path::PathBuf;

use replica::Member;

/// A whole number.
pub mod count {
    /// Name of the kind in the help.
    pub const NAME: &str = "COUNT";

    /// Reads a whole number; `_` may separate its digits.
    ///
    /// # Errors
    /// When the text is no whole number, or the number is too large for its key.
    pub fn parse<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
        let number: u64 =
            text.replace('_', "").parse().map_err(|_| format!("`{text}` is not a whole number, 0 or more"))?;
        super::fit(number, text)
    }

    /// Writes the value as `parse` reads it.
    pub fn show<T: ToString>(value: &T) -> String {
        value.to_string()
    }
}

/// A value that is true or false.
pub mod flag {
    pub use super::count::show;

    /// Name of the kind in the help.
    pub const NAME: &str = "true|false";

    /// Reads `true` or `false`.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn parse(text: &str) -> Result<bool, String> {
        text.parse().map_err(|_| format!("`{text}` is neither true nor false"))
    }
}

/// Base of the zxids of a new cluster: `time`, or a number.
pub mod zxid_base {
    use replica::ZXID_BASE_MAX;

    const TIME: &str = "time";

    /// Name of the kind in the help.
    pub const NAME: &str = "ZXID";

    /// Reads `time`, or a whole number.
    ///
    /// # Errors
    /// When the text is neither, or the number is above 2^52.
    pub fn parse(text: &str) -> Result<Option<u64>, String> {
        if text == TIME {
            return Ok(None);
        }
        match super::count::parse(text) {
            Ok(base @ 0..=ZXID_BASE_MAX) => Ok(Some(base)),
            _ => Err(format!("`{text}` is neither `{TIME}` nor a whole number up to {ZXID_BASE_MAX}")),
        }
    }

    /// Writes the value as `parse` reads it.
    pub fn show(base: &Option<u64>) -> String {
        base.map_or_else(|| TIME.to_owned(), |base| base.to_string())
    }
}

/// A duration, kept in milliseconds.
pub mod duration {
    const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

    /// Name of the kind in the help.
    pub const NAME: &str = "DURATION";

    /// Reads `250ms`, `30s`, `5m`, `1h` or `0`.
    ///
    /// # Errors
    /// When the text is no duration, or the duration is too long for its key.
    pub fn parse<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
        super::scaled(text, &UNITS, "a duration with its unit, such as `250ms`, `30s` or `5m`")
    }

    /// Writes the value as `parse` reads it.
    pub fn show<T: Copy + TryInto<u64>>(value: &T) -> String {
        super::in_largest_unit(*value, &UNITS)
    }
}

/// A number of bytes.
pub mod size {
    const UNITS: [(&str, u64); 5] = [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

    /// Name of the kind in the help.
    pub const NAME: &str = "SIZE";

    /// Reads `64MiB`, `16KiB`, `1GiB`, or plain bytes.
    ///
    /// # Errors
    /// When the text is no size, or the size is too large for its key.
    pub fn parse<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
        super::scaled(text, &UNITS, "a size such as `64MiB`, `16KiB` or plain bytes")
    }

    /// Writes the value as `parse` reads it.
    pub fn show<T: Copy + TryInto<u64>>(value: &T) -> String {
        super::in_largest_unit(*value, &UNITS)
    }
}

/// Any text but an empty one.
pub mod text {
    /// Name of the kind in the help.
    pub const NAME: &str = "TEXT";

    /// Takes the text as it is.
    ///
    /// # Errors
    /// When it is empty.
    pub fn parse(text: &str) -> Result<String, String> {
        if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.to_owned()) }
    }

    /// Writes the value as `parse` reads it.
    pub fn show(value: &str) -> String {
        value.to_owned()
    }
}

/// A secret text: read as [`text`] is, and never written.
pub mod secret {
    pub use super::text::{parse, show};

    /// Name of the kind in the help.
    pub const NAME: &str = "SECRET";
}

/// A filter of the log.
pub mod filter {
    pub use super::text::show;

    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    /// The parts of the program that log, and the libraries that do.
    const TARGETS: [&str; 10] =
        ["zlock", "rest", "wire", "replica", "storage", "accept", "openraft", "raft_log", "chunked_wal", "sled"];

    /// Name of the kind in the help.
    pub const NAME: &str = "FILTER";

    /// Checks a list of levels, and of parts of the program with levels. The library that reads the
    /// filter would accept an unknown part, and mute all others.
    ///
    /// # Errors
    /// When a name is no level and no part of the program.
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

/// A form of the lines of the log.
pub mod log_format {
    use crate::config::LogFormat;

    /// Name of the kind in the help.
    pub const NAME: &str = "FORMAT";

    /// Reads `text` or `json`.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn parse(text: &str) -> Result<LogFormat, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!("`{text}` is neither text nor json")),
        }
    }

    /// Writes the value as `parse` reads it.
    pub fn show(value: &LogFormat) -> String {
        match value {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
        .to_owned()
    }
}

/// Names and addresses with commas between; empty by default.
pub mod hosts {
    /// Name of the kind in the help.
    pub const NAME: &str = "HOST,...";

    /// Reads `node1,zlock.example,10.0.0.1`, and brings each into the form in which hosts are
    /// compared.
    ///
    /// # Errors
    /// When one of them is no host that a request can name.
    pub fn parse(text: &str) -> Result<Vec<String>, String> {
        super::each(text, rest::normal_host, "a name or an address, without a scheme or a port")
    }

    /// Writes the value as `parse` reads it.
    pub fn show(value: &[String]) -> String {
        value.join(",")
    }
}

/// Origins with commas between; empty by default.
pub mod origins {
    pub use super::hosts::show;

    /// Name of the kind in the help.
    pub const NAME: &str = "ORIGIN,...";

    /// Reads `https://ui.example,http://localhost:8080` into the form in which browsers write them.
    ///
    /// # Errors
    /// When one of them is no origin.
    pub fn parse(text: &str) -> Result<Vec<String>, String> {
        super::each(text, rest::normal_origin, "an origin like https://ui.example:8443, without a path")
    }
}

/// Subjects of certificates with semicolons between, because they have commas; empty by default.
pub mod subjects {
    /// Name of the kind in the help.
    pub const NAME: &str = "SUBJECT;...";

    /// Reads `CN=ops,O=Example;CN=root`, each as ACLs of the scheme `x509` write it. A semicolon of
    /// a subject has a backslash before it.
    ///
    /// # Errors
    /// When one of them is no subject.
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

    /// Checks a subject, and keeps it as it is. Subjects are compared as text, so another spelling
    /// would let no client in.
    fn subject(text: &str) -> Result<String, String> {
        let parts = text.split_once('=').filter(|(word, value)| !value.is_empty() && super::is_attribute(word));
        let wrong = || format!("`{text}` is not a subject like `CN=ops,O=Example`, as x509 ACLs write it");
        parts.map(|_| text.to_owned()).ok_or_else(wrong)
    }

    /// Writes the value as `parse` reads it.
    pub fn show(value: &[String]) -> String {
        value.join(";")
    }
}

/// Networks with commas between; empty by default.
pub mod networks {
    use accept::Networks;

    pub use super::count::show;

    /// Name of the kind in the help.
    pub const NAME: &str = "NETWORK,...";

    /// Reads `10.0.0.0/8,192.0.2.7,2001:db8::/32`.
    ///
    /// # Errors
    /// When one of them is no network.
    pub fn parse(text: &str) -> Result<Networks, String> {
        text.parse()
    }
}

/// Path of a file; empty by default.
pub mod file {
    use super::PathBuf;

    /// Name of the kind in the help.
    pub const NAME: &str = "FILE";

    /// Takes the path as it is. A relative path starts in the directory in which the program was
    /// started.
    ///
    /// # Errors
    /// When the text is empty.
    pub fn parse(text: &str) -> Result<PathBuf, String> {
        super::text::parse(text).map(PathBuf::from)
    }

    /// Writes the value as `parse` reads it.
    pub fn show(value: &std::path::Path) -> String {
        value.display().to_string()
    }
}

/// A directory.
pub mod directory {
    pub use crate::config::value::file::{parse, show};

    /// Name of the kind in the help.
    pub const NAME: &str = "DIR";
}

/// An address to listen on; absent by default.
pub mod listen {
    use super::SocketAddr;

    /// Name of the kind in the help.
    pub const NAME: &str = "IP:PORT";

    /// Reads `127.0.0.1:7001` or `[::1]:7001`.
    ///
    /// # Errors
    /// When the text is no IP address with a port; names are not resolved.
    pub fn parse(text: &str) -> Result<Option<SocketAddr>, String> {
        text.parse()
            .map(Some)
            .map_err(|_| format!("`{text}` is not an IP address with a port, such as `127.0.0.1:7001`"))
    }

    /// Writes the value as `parse` reads it; empty for an absent address.
    pub fn show(value: &Option<SocketAddr>) -> String {
        value.map(|addr| addr.to_string()).unwrap_or_default()
    }
}

/// The members of the ensemble.
pub mod members {
    use super::Member;

    /// Name of the kind in the help.
    pub const NAME: &str = "ID=PEER/HTTP,...";

    /// Reads `1=host:peer_port/host:http_port,2=...`.
    ///
    /// # Errors
    /// When a part is missing.
    pub fn parse(text: &str) -> Result<Vec<Member>, String> {
        text.split(',').map(str::trim).filter(|one| !one.is_empty()).map(member).collect()
    }

    fn member(text: &str) -> Result<Member, String> {
        let wrong = || format!("`{text}` is not `ID=PEER_HOST:PORT/HTTP_HOST:PORT`");
        let (id, addrs) = text.split_once('=').ok_or_else(wrong)?;
        let (peer_addr, http_addr) = addrs.split_once('/').ok_or_else(wrong)?;
        let id = id.trim().parse().map_err(|_| wrong())?;
        for addr in [peer_addr, http_addr] {
            port(addr).ok_or_else(|| format!("`{addr}` of member {id} is not `HOST:PORT`"))?;
        }
        Ok(Member { id, peer_addr: peer_addr.to_owned(), http_addr: http_addr.to_owned() })
    }

    /// Returns the port of `host:port`.
    pub(in crate::config) fn port(addr: &str) -> Option<u16> {
        let (host, port) = addr.rsplit_once(':')?;
        if host.is_empty() { None } else { port.parse().ok().filter(|port| *port != 0) }
    }

    /// Writes the value as `parse` reads it.
    pub fn show(value: &[Member]) -> String {
        let one = |member: &Member| format!("{}={}/{}", member.id, member.peer_addr, member.http_addr);
        value.iter().map(one).collect::<Vec<_>>().join(",")
    }
}

/// Tells whether a text is the name of an attribute of a subject: a word or numbers.
fn is_attribute(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
}

/// Parses texts with commas between, and brings each into its normal form.
fn each(text: &str, normal: fn(&str) -> Option<String>, what: &str) -> Result<Vec<String>, String> {
    let one = |one: &str| normal(one).ok_or_else(|| format!("`{one}` is not {what}"));
    text.split(',').map(|part| one(part.trim())).collect()
}

/// Parses a number with a unit behind it; 0 needs no unit.
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
