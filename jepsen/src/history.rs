//! Histories in Jepsen's format: what was asked, what was answered, when.
//!
//! An operation is two entries, an invocation and a completion by the same process. A completion is `ok` (it happened),
//! `fail` (it did not happen) or `info` (nobody knows). A process whose operation ended as `info` never invokes again: the
//! worker goes on as a new process.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What an entry says about its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The client is about to send it.
    Invoke,
    /// It happened, with this value.
    Ok,
    /// It did not happen, and never will.
    Fail,
    /// It may have happened, or may yet.
    Info,
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Process {
    /// A logical single-threaded client.
    Client(u64),
    /// The one that breaks things.
    Nemesis(NemesisTag),
}

/// The word that stands for the nemesis in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NemesisTag {
    /// `:nemesis`.
    #[serde(rename = "nemesis")]
    Nemesis,
}

/// One entry of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its place in the history, from 0.
    pub index: u64,
    /// Nanoseconds since the run began, on the harness's monotonic clock.
    pub time: u64,
    /// Who.
    pub process: Process,
    /// Which side of the operation.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The function: `read`, `write`, `acquire`, ...
    pub f: String,
    /// Argument at the invocation, result at the completion. The workload says its shape.
    pub value: Value,
    /// Why it failed or is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An operation: an invocation with its completion. Times are indexes into the history, so they never tie.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Who.
    pub process: u64,
    /// The function.
    pub f: String,
    /// What was asked.
    pub argument: Value,
    /// How it ended; `Info` when there is no completion.
    pub outcome: Kind,
    /// What was answered; null unless `outcome` is `Ok`.
    pub result: Value,
    /// The index of the invocation.
    pub call: u64,
    /// The index of the completion; `u64::MAX` for `Info`, which may take effect at any later time.
    pub complete: u64,
    /// Nanoseconds at the invocation and at the completion (the end of the history when there is none).
    pub time: (u64, u64),
}

/// Why a list of entries is no history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A process invoked before its last operation was completed.
    #[error("entry {index}: process {process} has an operation under way")]
    Overlap {
        /// Where.
        index: u64,
        /// Who.
        process: u64,
    },
    /// A completion without an invocation.
    #[error("entry {index}: process {process} completes what it did not invoke")]
    Orphan {
        /// Where.
        index: u64,
        /// Who.
        process: u64,
    },
    /// A process went on after an operation of unknown outcome.
    #[error("entry {index}: process {process} goes on after an unknown outcome")]
    Zombie {
        /// Where.
        index: u64,
        /// Who.
        process: u64,
    },
}

/// Pairs invocations with completions, in the order of invocation. Entries of the nemesis are left out.
///
/// # Errors
/// When a process does two things at once, completes what it did not begin, or goes on after an unknown outcome.
pub fn operations(entries: &[Entry]) -> Result<Vec<Operation>, Malformed> {
    let mut operations: Vec<Operation> = Vec::new();
    let mut open = std::collections::BTreeMap::<u64, usize>::new();
    let mut crashed = std::collections::BTreeSet::new();
    let end = entries.last().map_or(0, |entry| entry.time);
    for entry in entries {
        let Process::Client(process) = entry.process else { continue };
        let index = entry.index;
        if crashed.contains(&process) {
            return Err(Malformed::Zombie { index, process });
        }
        if entry.kind == Kind::Invoke {
            if open.insert(process, operations.len()).is_some() {
                return Err(Malformed::Overlap { index, process });
            }
            operations.push(Operation {
                process,
                f: entry.f.clone(),
                argument: entry.value.clone(),
                outcome: Kind::Info,
                result: Value::Null,
                call: index,
                complete: u64::MAX,
                time: (entry.time, end),
            });
            continue;
        }
        let position = open.remove(&process).ok_or(Malformed::Orphan { index, process })?;
        let operation = &mut operations[position];
        operation.outcome = entry.kind;
        operation.time.1 = entry.time;
        match entry.kind {
            Kind::Info => {
                crashed.insert(process);
            }
            Kind::Ok => {
                operation.result = entry.value.clone();
                operation.complete = index;
            }
            Kind::Fail | Kind::Invoke => operation.complete = index,
        }
    }
    Ok(operations)
}

impl Entry {
    /// One line of EDN, as Jepsen, Knossos and Elle read it.
    pub fn to_edn(&self) -> String {
        let mut line = String::from("{:type ");
        let kind = match self.kind {
            Kind::Invoke => "invoke",
            Kind::Ok => "ok",
            Kind::Fail => "fail",
            Kind::Info => "info",
        };
        write!(line, ":{kind}, :f :{}, :value {}", self.f, Edn(&self.value)).expect("writing to a string");
        match self.process {
            Process::Client(process) => write!(line, ", :process {process}"),
            Process::Nemesis(_) => write!(line, ", :process :nemesis"),
        }
        .expect("writing to a string");
        write!(line, ", :time {}, :index {}", self.time, self.index).expect("writing to a string");
        if let Some(error) = &self.error {
            write!(line, ", :error {}", Edn(&Value::String(error.clone()))).expect("writing to a string");
        }
        line.push('}');
        line
    }
}

/// A JSON value in EDN: nil, vectors, and keywords for the keys of maps.
struct Edn<'a>(&'a Value);

impl fmt::Display for Edn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("nil"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(value) => write!(f, "{value}"),
            Value::String(text) => write_text(f, text),
            Value::Array(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        f.write_str(" ")?;
                    }
                    write!(f, "{}", Edn(item))?;
                }
                f.write_str("]")
            }
            Value::Object(map) => {
                f.write_str("{")?;
                for (i, (key, value)) in map.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, ":{} {}", key.replace('_', "-"), Edn(value))?;
                }
                f.write_str("}")
            }
        }
    }
}

/// EDN's strings know the escapes of JSON but `\/`, `\b` and `\f`, which serde_json does not need for plain text.
fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_str("\"")
}
