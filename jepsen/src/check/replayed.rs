//! Check of the nodes' logs. The program `replay` prints facts from the log of each node. They are
//! judged for each node, compared between nodes, and compared with the answers to clients.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::Workload;
use crate::history::Operation;
use crate::verdict::Verdict;

/// Facts that `replay` found in the log of one node: grants, ends of holds, and begins and ends of
/// sessions, each with its zxid.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Number of the node, from 1.
    pub node: u64,
    facts: Vec<Fact>,
    began: u64,
    applied: u64,
    digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(tag = "fact", rename_all = "kebab-case")]
enum Fact {
    Began { zxid: u64 },
    SessionOpened { zxid: u64, session: u64 },
    SessionEnded { zxid: u64, session: u64 },
    Granted(Granted),
    Ended { zxid: u64, lock: String, ticket: String, session: u64, token: u64 },
    Applied { zxid: u64, digest: String },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Granted {
    zxid: u64,
    lock: String,
    ticket: String,
    session: u64,
    token: u64,
    mode: Mode,
    #[serde(default)]
    permits: u64,
    #[serde(default)]
    limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Exclusive,
    Read,
    Write,
    Latch,
    Lease,
}

impl Granted {
    fn is_alone(&self) -> bool {
        !matches!(self.mode, Mode::Read | Mode::Lease)
    }

    fn fits_beside(&self, other: &Granted) -> bool {
        self.session == other.session || (self.mode == other.mode && !self.is_alone())
    }
}

impl Fact {
    fn zxid(&self) -> u64 {
        match self {
            Fact::Began { zxid }
            | Fact::SessionOpened { zxid, .. }
            | Fact::SessionEnded { zxid, .. }
            | Fact::Granted(Granted { zxid, .. })
            | Fact::Ended { zxid, .. }
            | Fact::Applied { zxid, .. } => *zxid,
        }
    }
}

impl NodeFacts {
    /// Parses the output of the program `replay`, one fact a line.
    ///
    /// # Errors
    /// When a line is not understood, or the first line is not `began` or the last not `applied`.
    pub fn read(node: u64, text: &str) -> Result<NodeFacts, String> {
        let line = |line: &str| serde_json::from_str(line).map_err(|error| format!("{line}: {error}"));
        let facts = text.lines().map(line).collect::<Result<Vec<Fact>, _>>()?;
        match (facts.first(), facts.last()) {
            (Some(&Fact::Began { zxid: began }), Some(Fact::Applied { zxid, digest })) => {
                let (applied, digest) = (*zxid, digest.clone());
                Ok(NodeFacts { node, facts, began, applied, digest })
            }
            _ => Err("the facts do not reach from a beginning to an end".into()),
        }
    }

    /// Returns the facts of log entries after zxid `from` and up to zxid `to`.
    fn between(&self, from: u64, to: u64) -> BTreeSet<&Fact> {
        let inner = self.facts.iter().filter(|fact| !matches!(fact, Fact::Began { .. } | Fact::Applied { .. }));
        inner.filter(|fact| fact.zxid() > from && fact.zxid() <= to).collect()
    }
}

/// Zxids of the grant and of the end of a hold in the log.
#[derive(Clone, Copy, Debug)]
struct Hold {
    granted: u64,
    ended: Option<u64>,
}

/// Judges the facts from the logs of all nodes: within each log, between the logs, and against the
/// answers to clients.
pub fn check(workload: Workload, nodes: &[NodeFacts], operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut holds = BTreeMap::new();
    for node in nodes {
        walk(node, &mut holds, &mut verdict);
    }
    for (i, one) in nodes.iter().enumerate() {
        nodes[i + 1..].iter().for_each(|other| compare(one, other, &mut verdict));
    }
    let told = against(nodes, &holds, operations, &mut verdict);
    let facts: usize = nodes.iter().map(|node| node.facts.len()).sum();
    verdict.figure("replayed-facts", facts);
    verdict.figure("replayed-grants-told", told);
    // A log that begins after a snapshot may have no grant that could be compared.
    if workload.has_locks() && told == 0 && nodes.iter().any(|node| node.began == 0) {
        verdict.doubt("no grant that a client was told of was looked for in the log");
    }
    verdict
}

/// Checks one node's facts: one lock has one holder, tokens rise, and a session that has ended
/// holds nothing.
fn walk(node: &NodeFacts, holds: &mut BTreeMap<(String, u64, u64), Hold>, verdict: &mut Verdict) {
    let mut locks: BTreeMap<&str, BTreeMap<&str, &Granted>> = BTreeMap::new();
    let mut tokens: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut gone = BTreeSet::new();
    let from = node.node;
    for fact in &node.facts {
        match fact {
            Fact::Granted(granted) => {
                let holders = locks.entry(&granted.lock).or_default();
                for other in holders.values().filter(|other| !granted.fits_beside(other)) {
                    let detail = format!("node {from}: {} is held by two at zxid {}", granted.lock, granted.zxid);
                    verdict.found_outside("log-two-holders", detail, vec![told(other), told(granted)]);
                }
                holders.insert(&granted.ticket, granted);
                let leases = || holders.values().filter(|held| held.mode == Mode::Lease);
                if granted.mode == Mode::Lease && leases().map(|held| held.permits).sum::<u64>() > granted.limit {
                    let detail = format!("node {from}: {} has too many permits out", granted.lock);
                    verdict.found_outside("log-over-limit", detail, leases().copied().map(told).collect());
                }
                let (any, alone) = tokens.entry(&granted.lock).or_default();
                let falls = if granted.is_alone() { granted.token <= *any } else { granted.token < *alone };
                if falls && granted.zxid > node.began {
                    let detail =
                        format!("node {from}: {} was granted with {} after {any}", granted.lock, granted.token);
                    verdict.found_outside("log-token-falls", detail, vec![told(granted)]);
                }
                *any = granted.token.max(*any);
                if granted.is_alone() {
                    *alone = granted.token.max(*alone);
                }
                if gone.contains(&granted.session) {
                    let detail = format!("node {from}: session {} had ended", granted.session);
                    verdict.found_outside("log-holder-without-session", detail, vec![told(granted)]);
                }
                let key = (granted.lock.clone(), granted.session, granted.token);
                holds.entry(key).or_insert(Hold { granted: granted.zxid, ended: None });
            }
            Fact::Ended { zxid, lock, ticket, session, token } => {
                locks.entry(lock).or_default().remove(ticket.as_str());
                if let Some(hold) = holds.get_mut(&(lock.clone(), *session, *token)) {
                    hold.ended.get_or_insert(*zxid);
                }
            }
            Fact::SessionEnded { session, .. } => _ = gone.insert(*session),
            Fact::Began { .. } | Fact::SessionOpened { .. } | Fact::Applied { .. } => {}
        }
    }
}

fn told(granted: &Granted) -> String {
    let Granted { zxid, ticket, session, token, mode, .. } = granted;
    format!("at {zxid} {mode:?} to session {session} with token {token}: {ticket}")
}

/// Compares two nodes: the log entries that both have applied must give equal facts.
fn compare(one: &NodeFacts, other: &NodeFacts, verdict: &mut Verdict) {
    let (from, to) = (one.began.max(other.began), one.applied.min(other.applied));
    let (left, right) = (one.between(from, to), other.between(from, to));
    if left != right {
        let differing = left.symmetric_difference(&right).take(6).map(|fact| format!("{fact:?}")).collect();
        let detail = format!("nodes {} and {} tell different facts", one.node, other.node);
        verdict.found_outside("logs-differ", detail, differing);
    }
    if one.applied == other.applied && one.digest != other.digest {
        let detail = format!("nodes {} and {} replay to different states", one.node, other.node);
        verdict.found_outside("replays-differ", detail, vec![one.digest.clone(), other.digest.clone()]);
    }
}

/// Checks that each hold in an answer to a client is in the log at the zxid of the answer. Returns
/// the number of holds that were compared.
fn against(
    nodes: &[NodeFacts],
    holds: &BTreeMap<(String, u64, u64), Hold>,
    operations: &[Operation],
    verdict: &mut Verdict,
) -> u64 {
    // A log lacks holds that ended before its snapshot, and the log of a removed node ends early.
    // So an answer is judged only if its zxid is in a log. Without a zxid, a log must have all
    // entries up to the token.
    let is_logged = |at: Option<u64>, token: u64| {
        nodes.iter().any(|node| match at {
            Some(at) => node.began < at && at <= node.applied,
            None => node.began == 0 && token <= node.applied,
        })
    };
    let mut judged = 0;
    for operation in operations.iter().filter(|operation| operation.is_ok()) {
        let what = match operation.f.as_str() {
            "acquire" | "enqueue" | "await" | "again" | "upgrade" | "downgrade" | "append" => What::Holds,
            "release" if operation.number("holds").is_none_or(|holds| holds == 0) => What::Released,
            _ => continue,
        };
        for (lock, session, token) in parts(operation) {
            if !is_logged(operation.zxid, token) {
                continue;
            }
            judged += 1;
            let case = format!("{lock}, session {session}, token {token}");
            let Some(hold) = holds.get(&(lock, session, token)) else {
                verdict.found("not-in-log", format!("{case}: no log has that grant"), &[operation]);
                continue;
            };
            let Some(at) = operation.zxid else { continue };
            let is_over = hold.ended.is_some_and(|ended| ended <= at);
            match what {
                _ if hold.granted > at => {
                    verdict.found("told-before-grant", format!("{case}: granted at {}", hold.granted), &[operation]);
                }
                What::Holds if is_over => {
                    verdict.found("told-after-end", format!("{case}: ended at {:?}", hold.ended), &[operation]);
                }
                What::Released if !is_over => {
                    verdict.found("release-not-in-log", format!("{case}: ended at {:?}", hold.ended), &[operation]);
                }
                What::Holds | What::Released => {}
            }
        }
    }
    judged
}

#[derive(Clone, Copy)]
enum What {
    Holds,
    Released,
}

/// Returns lock, session and token of each lock of an operation.
fn parts(operation: &Operation) -> Vec<(String, u64, u64)> {
    let Some(session) = operation.number("owner") else { return Vec::new() };
    let part = |value: &serde_json::Value| {
        Some((value.get("lock")?.as_str()?.to_owned(), session, value.get("token")?.as_u64()?))
    };
    match operation.field("locks").and_then(serde_json::Value::as_array) {
        Some(locks) => locks.iter().filter_map(part).collect(),
        None => part(&operation.result).into_iter().collect(),
    }
}
