//! Check of numbers that must rise in real time: zxids, sequence numbers, tokens.

use crate::history::Operation;
use crate::verdict::Verdict;

/// An operation with a number from its answer that must rise from operation to operation, such as a
/// zxid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbered<'a> {
    /// The operation.
    pub(super) operation: &'a Operation,
    /// Index in the history at which the number was asked for.
    pub(super) call: u64,
    /// Number from the answer, such as a zxid.
    pub(super) number: u64,
    /// Whether the number may equal that of an earlier operation: true for reads, false for writes.
    pub(super) may_repeat: bool,
}

impl Numbered<'_> {
    /// Returns an operation with a number from its answer, such as a zxid. The field `call` is the
    /// index of the operation's invocation.
    pub(super) fn of(operation: &Operation, number: u64, may_repeat: bool) -> Numbered<'_> {
        Numbered { operation, call: operation.call, number, may_repeat }
    }
}

/// Reports each operation with a number that is not above all numbers answered before its
/// invocation. If `may_repeat` is set, an equal number is accepted.
pub(super) fn check_rising(kind: &str, what: &str, items: &[Numbered<'_>], verdict: &mut Verdict) {
    let mut by_call = items.to_vec();
    by_call.sort_by_key(|item| item.call);
    let mut by_complete = items.to_vec();
    by_complete.sort_by_key(|item| item.operation.complete);
    let mut before = by_complete.into_iter().peekable();
    let mut highest: Option<Numbered<'_>> = None;
    for item in by_call {
        while let Some(done) = before.next_if(|done| done.operation.complete < item.call) {
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

/// Checks that the zxids of writes and linearizable reads rise in real time.
///
/// `is_read` gets an operation's name and returns true for a linearizable read, false for a write,
/// and `None` for an operation that is not checked.
pub(super) fn check_zxids(operations: &[Operation], is_read: impl Fn(&str) -> Option<bool>, verdict: &mut Verdict) {
    let items = operations
        .iter()
        .filter(|operation| operation.is_ok())
        .filter_map(|operation| Some(Numbered::of(operation, operation.zxid?, is_read(&operation.f)?)));
    let items: Vec<Numbered<'_>> = items.collect();
    verdict.figure("zxids-in-order", items.len());
    check_rising("zxid-order", "zxid", &items, verdict);
}
