//! Verdicts of checkers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::history::Operation;

/// Largest number of findings (broken promises) that are written out. Further findings are only
/// counted.
const FINDINGS_MAX: usize = 20;

/// Validity of a history: whether the cluster kept the promise of the history's workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Validity {
    /// The promise was kept in this history.
    #[default]
    Valid,
    /// The checker could not decide, or too little happened in the history.
    Unknown,
    /// The promise was broken.
    Invalid,
}

impl Validity {
    /// Word for a report.
    pub fn word(self) -> &'static str {
        match self {
            Validity::Valid => "valid",
            Validity::Invalid => "INVALID",
            Validity::Unknown => "unknown",
        }
    }
}

/// One broken promise with a small part of the history that shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Kind of the finding: `lost-create`, `two-holders`, ...
    pub kind: String,
    /// Description of the case, for people.
    pub detail: String,
    /// The operations that show the finding, one a line, in order of invocation.
    pub part: Vec<String>,
}

/// Verdict of the checkers of one workload on one history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Validity of the whole history.
    pub valid: Validity,
    /// The first findings, at most twenty.
    pub findings: Vec<Finding>,
    /// Number of all findings.
    pub finding_count: usize,
    /// Reasons for which something could not be judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Counts and measured times of the history, by name. They do not decide the verdict.
    pub figures: BTreeMap<String, Value>,
}

impl Verdict {
    /// Adds a finding: a broken promise, with the operations that show it.
    pub fn found(&mut self, kind: &str, detail: impl Into<String>, part: &[&Operation]) {
        self.valid = Validity::Invalid;
        self.finding_count += 1;
        if self.findings.len() < FINDINGS_MAX {
            let mut part = part.to_vec();
            part.sort_by_key(|op| op.call);
            part.dedup_by_key(|op| op.call);
            let part = part.into_iter().map(Operation::describe).collect();
            self.findings.push(Finding { kind: kind.to_owned(), detail: detail.into(), part });
        }
    }

    /// Adds a finding about events outside of the history, with lines of text as proof.
    pub fn found_outside(&mut self, kind: &str, detail: impl Into<String>, lines: Vec<String>) {
        self.found(kind, detail, &[]);
        if let Some(finding) =
            self.findings.last_mut().filter(|finding| finding.kind == kind && finding.part.is_empty())
        {
            finding.part = lines;
        }
    }

    /// Notes why something could not be judged. A valid verdict becomes unknown.
    pub fn doubt(&mut self, why: impl Into<String>) {
        self.valid = self.valid.max(Validity::Unknown);
        if self.doubts.len() < FINDINGS_MAX {
            self.doubts.push(why.into());
        }
    }

    /// Sets a count or measured time of the report.
    pub fn figure(&mut self, name: &str, value: impl Into<Value>) {
        self.figures.insert(name.to_owned(), value.into());
    }

    /// Adds the verdict of another checker.
    pub fn join(&mut self, other: Verdict) {
        self.valid = self.valid.max(other.valid);
        self.finding_count += other.finding_count;
        let room = FINDINGS_MAX.saturating_sub(self.findings.len());
        self.findings.extend(other.findings.into_iter().take(room));
        let room = FINDINGS_MAX.saturating_sub(self.doubts.len());
        self.doubts.extend(other.doubts.into_iter().take(room));
        self.figures.extend(other.figures);
    }

    /// Tells whether a finding of this kind was made.
    pub fn has(&self, kind: &str) -> bool {
        self.findings.iter().any(|finding| finding.kind == kind)
    }
}
