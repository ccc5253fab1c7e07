//! Histories in Jepsen's format: what was asked, what was answered, when.
//!
//! An operation is two entries, an invocation and a completion by the same process. A completion is
//! `ok` (it happened), `fail` (it did not happen) or `info` (the outcome is unknown). A process
//! with an operation that ended as `info` never invokes again: its worker goes on as a new process.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The client is about to send the operation.
    Invoke,
    /// The operation happened, and the entry has its result.
    Ok,
    /// The operation did not happen, and never will.
    Fail,
    /// The outcome is unknown: the operation may have happened, or may still happen.
    Info,
}

/// Source of a history entry: a client, or the nemesis, which makes the faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Process {
    /// A logical single-threaded client.
    Client(u64),
    /// The nemesis, which makes the faults.
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
    /// Position of the entry in the history, from 0.
    pub index: u64,
    /// Nanoseconds since the run began, on the harness's monotonic clock.
    pub time: u64,
    /// Process that performs the operation: a client or the nemesis.
    pub process: Process,
    /// Type of the entry: an invocation, or a completion with its outcome.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Name of the operation: `read`, `write`, `acquire`, ...
    pub f: String,
    /// Argument of the operation at the invocation, its result at the completion. The shape depends
    /// on the workload.
    pub value: Value,
    /// Reason why the operation failed, or why its outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Number of the node that was asked, from 1; `None` at an invocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u64>,
    /// Zxid of an `ok` answer; `None` where the workload's checker must not rely on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zxid: Option<u64>,
}

/// An operation: an invocation with its completion. `call` and `complete` are indexes of entries in
/// the history, so they also tell which of two operations came first.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Number of the client.
    pub process: u64,
    /// Name of the operation: `read`, `write`, `acquire`, ...
    pub f: String,
    /// Value of the invocation.
    pub argument: Value,
    /// Outcome; `Info` when there is no completion.
    pub outcome: Kind,
    /// Value of the completion: the result after `Ok`, and what the client recorded after `Info`.
    /// Null when the operation failed or has no completion.
    pub result: Value,
    /// The index of the invocation.
    pub call: u64,
    /// The index of the completion; `u64::MAX` for `Info`, which may take effect at any later time.
    pub complete: u64,
    /// Nanoseconds at the invocation and at the completion (the end of the history when there is
    /// none).
    pub time: (u64, u64),
    /// Reason why the operation failed, or why its outcome is unknown.
    pub error: Option<String>,
    /// Zxid of the answer; `None` for a failed or unknown outcome, or if the answer has no zxid.
    pub zxid: Option<u64>,
}

/// Pairs invocations with completions, in the order of invocation. Entries of the nemesis are left
/// out.
///
/// # Errors
/// When a process has two operations at once, completes one that it did not invoke, or goes on
/// after an unknown outcome.
pub fn operations(entries: &[Entry]) -> Result<Vec<Operation>, String> {
    let mut operations: Vec<Operation> = Vec::new();
    let mut open = std::collections::BTreeMap::<u64, usize>::new();
    let mut crashed = std::collections::BTreeSet::new();
    let end = entries.last().map_or(0, |entry| entry.time);
    for entry in entries {
        let Process::Client(process) = entry.process else { continue };
        let index = entry.index;
        if crashed.contains(&process) {
            return Err(wrong(entry, "goes on after an unknown outcome"));
        }
        if entry.kind == Kind::Invoke {
            if open.insert(process, operations.len()).is_some() {
                return Err(wrong(entry, "has an operation under way"));
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
                error: None,
                zxid: None,
            });
            continue;
        }
        let position = open.remove(&process).ok_or_else(|| wrong(entry, "completes what it did not invoke"))?;
        let operation = &mut operations[position];
        operation.outcome = entry.kind;
        operation.time.1 = entry.time;
        operation.error.clone_from(&entry.error);
        operation.zxid = entry.zxid;
        match entry.kind {
            Kind::Info => {
                crashed.insert(process);
                operation.result = entry.value.clone();
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

fn wrong(entry: &Entry, what: &str) -> String {
    format!("entry {}: process {:?} {what}", entry.index, entry.process)
}

impl Operation {
    /// Tells whether the operation happened for sure.
    pub fn is_ok(&self) -> bool {
        self.outcome == Kind::Ok
    }

    /// Tells whether the operation may have happened.
    pub fn is_possible(&self) -> bool {
        self.outcome != Kind::Fail
    }

    /// A field of the result, or else of the argument.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.result.get(name).filter(|value| !value.is_null()).or_else(|| self.argument.get(name))
    }

    /// A field of the result, or else of the argument, as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.as_u64()
    }

    /// A field of the result, or else of the argument, as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.field(name)?.as_str()
    }

    /// Describes the operation in one line of a report.
    pub fn describe(&self) -> String {
        let ended = match self.outcome {
            Kind::Ok => format!("ok {}", shortened(&self.result)),
            Kind::Fail => format!("fail {}", self.error.as_deref().unwrap_or_default()),
            Kind::Info | Kind::Invoke => format!("info {}", self.error.as_deref().unwrap_or_default()),
        };
        let complete = if self.complete == u64::MAX { "never".to_owned() } else { self.complete.to_string() };
        let zxid = self.zxid.map(|zxid| format!(" zxid {zxid}")).unwrap_or_default();
        format!("[{}..{complete}] process {} {} {} -> {ended}{zxid}", self.call, self.process, self.f, self.argument)
    }
}

/// Returns a value as text. A long text is shortened in the middle.
fn shortened(value: &Value) -> String {
    let text = value.to_string();
    let count = text.chars().count();
    if count <= DESCRIBED_MAX {
        return text;
    }
    let (head, tail) = (text.chars().take(DESCRIBED_MAX / 2), text.chars().skip(count - DESCRIBED_MAX / 2));
    head.chain(" ... ".chars()).chain(tail).collect()
}

/// Largest number of characters of a value in a line of a report.
const DESCRIBED_MAX: usize = 300;

/// Reads `history.jsonl`: one entry a line.
///
/// # Errors
/// The number of the first line, from 1, that is no entry, and why.
pub fn read_jsonl(text: &str) -> Result<Vec<Entry>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(i, line)| serde_json::from_str(line).map_err(|error| format!("line {}: {error}", i + 1))).collect()
}
