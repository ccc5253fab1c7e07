//! Numbers that must follow real time: zxids, sequence numbers, tokens.

use crate::history::Operation;
use crate::verdict::Verdict;

/// An operation with the number that it was answered.
#[derive(Clone, Copy, Debug)]
pub struct Numbered<'a> {
    /// The operation.
    pub operation: &'a Operation,
    /// Its number.
    pub number: u64,
    /// Whether a later operation may be answered the same number: reads may, writes may not.
    pub may_repeat: bool,
}

/// Finds operations that were answered a number not above one that had been answered before they
/// were invoked.
pub fn check_rising(kind: &str, what: &str, items: &[Numbered<'_>], verdict: &mut Verdict) {
    let mut by_call = items.to_vec();
    by_call.sort_by_key(|item| item.operation.call);
    let mut by_complete = items.to_vec();
    by_complete.sort_by_key(|item| item.operation.complete);
    let mut before = by_complete.into_iter().peekable();
    let mut highest: Option<Numbered<'_>> = None;
    for item in by_call {
        while let Some(done) = before.next_if(|done| done.operation.complete < item.operation.call) {
            if highest.is_none_or(|highest| highest.number < done.number) {
                highest = Some(done);
            }
        }
        let Some(highest) = highest else { continue };
        let falls = if item.may_repeat { item.number < highest.number } else { item.number <= highest.number };
        if falls {
            let detail = format!("{what} {} was answered after {} had been", item.number, highest.number);
            verdict.found(kind, detail, &[highest.operation, item.operation]);
        }
    }
}

/// The zxids of writes and linearizable reads follow real time.
///
/// `is_read` says which functions are linearizable reads; `None` leaves an operation out.
pub fn check_zxids(operations: &[Operation], is_read: impl Fn(&str) -> Option<bool>, verdict: &mut Verdict) {
    let items = operations.iter().filter(|operation| operation.is_ok()).filter_map(|operation| {
        Some(Numbered { operation, number: operation.zxid?, may_repeat: is_read(&operation.f)? })
    });
    let items: Vec<Numbered<'_>> = items.collect();
    verdict.figure("zxids-in-order", items.len());
    check_rising("zxid-order", "zxid", &items, verdict);
}
