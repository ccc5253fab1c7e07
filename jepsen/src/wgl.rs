//! Linearizability by search: Wing and Gong's algorithm with Lowe's memoisation.
//!
//! The search keeps a list of calls and returns in real-time order. It takes any pending call whose effect the model
//! permits, lifts the operation out of the list and goes on from the front; at the return of an operation that was not taken
//! it goes back. A configuration, the set of taken operations with the model's state, is looked at once. An operation of
//! unknown outcome has no return: it may be taken at any time after its call, or never.
//!
//! The search can take exponential time, so it has a bound on configurations. At the bound the verdict is unknown.

use std::collections::HashSet;
use std::hash::Hash;

/// What the operations mean when they run one after the other.
pub trait Model {
    /// What there is between two operations.
    type State: Clone + Eq + Hash;
    /// An operation with its answer; an unknown answer is part of the operation.
    type Op;

    /// The state before the first operation.
    fn initial(&self) -> Self::State;

    /// The state after the operation, or `None` when it cannot have had this answer here.
    fn step(&self, state: &Self::State, op: &Self::Op) -> Option<Self::State>;
}

/// An operation with its place in real time.
#[derive(Clone, Debug)]
pub struct Call<O> {
    /// What.
    pub op: O,
    /// When it was invoked. All times of a history differ.
    pub call: u64,
    /// When it completed; `None` when nobody knows whether it did.
    pub complete: Option<u64>,
}

/// The answer of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains every answer.
    Linearizable,
    /// There is none. The positions of the operations in the longest prefix that could be explained, and of the first
    /// completed operation that no explanation reached.
    NotLinearizable {
        /// Positions of operations, in the order in which the deepest attempt took them.
        explained: Vec<usize>,
        /// The position of the operation whose return could not be passed.
        stuck_at: usize,
    },
    /// The search gave up.
    Unknown {
        /// How many configurations it had looked at.
        configurations: usize,
    },
}

const NONE: usize = usize::MAX;

/// The doubly linked list of calls and returns; node `2 * i` is the call of operation `i`, `2 * i + 1` its return.
struct EventList {
    next: Vec<usize>,
    prev: Vec<usize>,
    head: usize,
}

impl EventList {
    fn new<O>(calls: &[Call<O>]) -> EventList {
        let mut events: Vec<(u64, usize)> = Vec::with_capacity(calls.len() * 2);
        for (i, call) in calls.iter().enumerate() {
            events.push((call.call, 2 * i));
            if let Some(complete) = call.complete {
                events.push((complete, 2 * i + 1));
            }
        }
        events.sort_unstable();
        let mut list = EventList { next: vec![NONE; calls.len() * 2], prev: vec![NONE; calls.len() * 2], head: NONE };
        let mut last = NONE;
        for (_, node) in events {
            match last {
                NONE => list.head = node,
                last => list.next[last] = node,
            }
            list.prev[node] = last;
            last = node;
        }
        list
    }

    fn unlink(&mut self, node: usize) {
        let (prev, next) = (self.prev[node], self.next[node]);
        match prev {
            NONE => self.head = next,
            prev => self.next[prev] = next,
        }
        if next != NONE {
            self.prev[next] = prev;
        }
    }

    /// Undoes the last `unlink` that was not undone.
    fn relink(&mut self, node: usize) {
        let (prev, next) = (self.prev[node], self.next[node]);
        match prev {
            NONE => self.head = node,
            prev => self.next[prev] = node,
        }
        if next != NONE {
            self.prev[next] = node;
        }
    }
}

/// Looks for an order of the operations that explains every answer.
///
/// `configurations_max` bounds time and memory: each configuration takes one bit an operation and a state.
pub fn check<M: Model>(model: &M, calls: &[Call<M::Op>], configurations_max: usize) -> Verdict {
    let mut events = EventList::new(calls);
    let mut completed_left = calls.iter().filter(|call| call.complete.is_some()).count();
    let mut taken = vec![0u64; calls.len().div_ceil(64)];
    let mut seen: HashSet<(Box<[u64]>, M::State)> = HashSet::new();
    let mut state = model.initial();
    let mut stack: Vec<(usize, M::State)> = Vec::new();
    let mut deepest: (usize, Vec<usize>, usize) = (0, Vec::new(), 0);
    let mut node = events.head;
    while completed_left > 0 {
        let at_return = node == NONE || node % 2 == 1;
        if !at_return {
            let op = node / 2;
            let after = model.step(&state, &calls[op].op).filter(|after| {
                taken[op / 64] |= 1 << (op % 64);
                let new = seen.insert((taken.clone().into_boxed_slice(), after.clone()));
                if !new {
                    taken[op / 64] &= !(1 << (op % 64));
                }
                new
            });
            if seen.len() > configurations_max {
                return Verdict::Unknown { configurations: seen.len() };
            }
            let Some(after) = after else {
                node = events.next[node];
                continue;
            };
            stack.push((op, std::mem::replace(&mut state, after)));
            if calls[op].complete.is_some() {
                completed_left -= 1;
                events.unlink(2 * op + 1);
            }
            events.unlink(2 * op);
            node = events.head;
            continue;
        }
        // The front is a return: its operation had to be taken before, and nothing that was tried allows it.
        if node != NONE && stack.len() >= deepest.0 {
            deepest = (stack.len(), stack.iter().map(|(op, _)| *op).collect(), node / 2);
        }
        let Some((op, before)) = stack.pop() else {
            return Verdict::NotLinearizable { explained: deepest.1, stuck_at: deepest.2 };
        };
        state = before;
        taken[op / 64] &= !(1 << (op % 64));
        events.relink(2 * op);
        if calls[op].complete.is_some() {
            completed_left += 1;
            events.relink(2 * op + 1);
        }
        node = events.next[2 * op];
    }
    Verdict::Linearizable
}

/// The positions of a small part of a history that is not linearizable, found by leaving out what does not matter.
///
/// Everything invoked after the return that could not be passed goes first. Then units go, in halves, quarters and so on,
/// as long as the rest is still not linearizable. A unit is a set of operations without which a linearizable history
/// stays linearizable: a read, or an acquire with its release. So what is left is a contradiction of its own.
pub fn shrink<M: Model<Op: Clone>>(
    model: &M,
    calls: &[Call<M::Op>],
    units: &[Vec<usize>],
    stuck_at: usize,
    configurations_max: usize,
) -> Vec<usize> {
    let end = calls[stuck_at].complete.unwrap_or(u64::MAX);
    let mut kept: Vec<bool> = calls.iter().map(|call| call.call < end).collect();
    let still_wrong = |kept: &[bool]| {
        let part = calls.iter().zip(kept).filter(|(_, kept)| **kept).map(|(call, _)| {
            let complete = call.complete.filter(|complete| *complete <= end);
            Call { complete, ..call.clone() }
        });
        let part: Vec<Call<M::Op>> = part.collect();
        matches!(check(model, &part, configurations_max), Verdict::NotLinearizable { .. })
    };
    let units: Vec<&Vec<usize>> = units.iter().filter(|unit| !unit.contains(&stuck_at)).collect();
    let mut size = units.len().div_ceil(2);
    while size > 0 {
        for chunk in units.chunks(size) {
            let mut fewer = kept.clone();
            for i in chunk.iter().copied().flatten() {
                fewer[*i] = false;
            }
            if fewer != kept && still_wrong(&fewer) {
                kept = fewer;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    (0..calls.len()).filter(|i| kept[*i]).collect()
}
