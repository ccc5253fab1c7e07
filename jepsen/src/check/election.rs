//! Checker of the workload `election`: one leader at a time, rising tokens, and observers that see
//! leaders and their proclamations in order.

use std::collections::BTreeMap;

use super::holds::Hold;
use super::order::{self, Numbered};
use super::queue;
use crate::history::Operation;
use crate::verdict::Verdict;

/// Judges these operations:
///
/// * of candidates: `enqueue`, `await` (with a token when the candidate leads) and `release`
/// * of leaders: `proclaim`, and `append` to a znode under the token
/// * of observers: `observe`, answered with the leader's token `leads_with`, the text `said` of the
///   leader's last proclamation, and the cursor `upto`, which ends in the zxid of that proclamation
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let holds = queue::check_guarded(operations, "leaders", &mut verdict);
    let mut elections: BTreeMap<&str, Observed<'_>> = BTreeMap::new();
    for operation in operations {
        let Some(lock) = operation.text("lock") else { continue };
        let observed = elections.entry(lock).or_default();
        match operation.f.as_str() {
            "observe" if operation.is_ok() => observed.looks.push(operation),
            "proclaim" if operation.is_possible() => observed.said.push(operation),
            _ => {}
        }
    }
    for hold in &holds {
        elections.entry(hold.lock).or_default().holds.push(hold);
    }
    verdict.figure("observations", elections.values().map(|observed| observed.looks.len()).sum::<usize>());
    verdict.figure("proclamations", elections.values().map(|observed| observed.said.len()).sum::<usize>());
    for (lock, observed) in elections {
        observed.check_order(lock, &mut verdict);
        observed.looks.iter().for_each(|look| observed.check_look(lock, look, &mut verdict));
    }
    verdict
}

/// Observations and proclamations of one election, and the proven holds of its lock (the terms of
/// its leaders).
#[derive(Default)]
struct Observed<'a> {
    looks: Vec<&'a Operation>,
    said: Vec<&'a Operation>,
    holds: Vec<&'a Hold<'a>>,
}

/// Returns the leader's token and the zxid of its last proclamation, as an observation shows them.
fn seen(look: &Operation) -> Option<(u64, u64)> {
    let (_, spoke) = look.text("upto")?.split_once('.')?;
    Some((look.number("leads_with")?, spoke.parse().ok()?))
}

impl<'a> Observed<'a> {
    /// Checks that leaders are seen in order, and the proclamations of each leader in order, by
    /// every observer at every node.
    fn check_order(&self, lock: &str, verdict: &mut Verdict) {
        let mut leaders = Vec::new();
        let mut words: BTreeMap<u64, Vec<Numbered<'_>>> = BTreeMap::new();
        for operation in self.looks.iter().copied() {
            let Some((token, spoke)) = seen(operation) else { continue };
            leaders.push(Numbered::of(operation, token, true));
            words.entry(token).or_default().push(Numbered::of(operation, spoke, true));
        }
        order::check_rising("leader-order", &format!("{lock}: the leader with token"), &leaders, verdict);
        for (token, words) in words {
            let what = format!("{lock}: what the leader with token {token} said at");
            order::check_rising("proclamation-order", &what, &words, verdict);
        }
    }

    /// Checks that an observation shows the leader and its last proclamation as of the
    /// observation's zxid: nothing older, and nothing that was never proclaimed.
    fn check_look(&self, lock: &str, look: &Operation, verdict: &mut Verdict) {
        let Some(at) = look.zxid else { return };
        let token = look.number("leads_with");
        for hold in self.holds.iter().filter(|hold| hold.begin <= at) {
            let leads = at <= hold.until;
            let wrong = match token {
                None => leads,
                Some(token) => token < hold.token || leads && token != hold.token,
            };
            if wrong {
                let shown =
                    token.map_or_else(|| "no leader".to_owned(), |token| format!("the leader with token {token}"));
                let detail = format!("{lock}: {shown} was seen at zxid {at}, and token {} led before", hold.token);
                verdict.found("wrong-leader", detail, &[&hold.shown[..], &[look]].concat());
            }
        }
        let (Some((token, spoke)), Some(said)) = (seen(look), look.text("said")) else { return };
        let own = |words: &&&Operation| words.number("token") == Some(token);
        let newer = |words: &&&Operation| words.is_ok() && words.zxid.is_some_and(|zxid| spoke < zxid && zxid <= at);
        if let Some(words) = self.said.iter().filter(own).find(newer) {
            let detail = format!("{lock}: an answer at zxid {at} has not what the leader had said before");
            verdict.found("missed-proclamation", detail, &[words, look]);
        }
        // Before its first proclamation, a leader's data is its label, and not a number.
        let Ok(element) = said.parse::<u64>() else { return };
        let begun = |words: &&Operation| words.number("element") == Some(element) && words.call < look.complete;
        if !self.said.iter().copied().filter(|words| words.number("token") == Some(token)).any(|words| begun(&words)) {
            let detail = format!("{lock}: the leader with token {token} never said {element}");
            verdict.found("proclamation-from-nowhere", detail, &[look]);
        }
    }
}
