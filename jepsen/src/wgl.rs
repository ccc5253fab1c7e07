//! Linearizability by search: Wing and Gong's algorithm with Lowe's memoisation.
//!
//! The search keeps a list of calls and returns in real-time order. It takes any pending call whose
//! effect the model permits, removes the operation from the list and goes on from the front. At the
//! return of an operation that was not taken it backtracks. A configuration is the set of taken
//! operations with the model's state. It is visited once.
//!
//! An operation of unknown outcome has no return: it may be taken at any time after its call, or
//! never. A history with many of them has more subsets of them than any search can visit, and
//! nearly all of them lead to nothing new. So such an operation is taken
//! - only when it changes the state, because leaving it for later permits at least as much;
//! - before equal operations that were invoked later, because from then on nothing tells them
//!   apart;
//! - and only to a configuration that no visited one covers: a configuration with the same state
//!   and the same completed operations, but fewer operations of unknown outcome, can go on in every
//!   way that the new one can.
//!
//! The search can take exponential time, so the number of configurations is bounded. At the bound
//! the verdict is unknown.

use std::collections::HashMap;
use std::hash::Hash;

/// Sequential specification of an object: what its operations do when they run one after the other.
pub trait Model {
    /// State between two operations.
    type State: Clone + Eq + Hash;
    /// An operation together with its answer, or with the fact that its answer is unknown. Equal
    /// operations have equal effects.
    type Op: PartialEq;

    /// The state before the first operation.
    fn initial(&self) -> Self::State;

    /// Returns the state after the operation, or `None` when the operation cannot have this answer
    /// in this state.
    fn step(&self, state: &Self::State, op: &Self::Op) -> Option<Self::State>;
}

/// An operation with the times of its invocation and of its completion.
#[derive(Clone, Debug)]
pub struct Call<O> {
    /// The operation.
    pub op: O,
    /// Time of the invocation. All times of a history differ.
    pub call: u64,
    /// Time of the completion; `None` when it is unknown whether the operation completed.
    pub complete: Option<u64>,
}

/// Result of the search for an order of the operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Some order of the operations explains every answer.
    Linearizable,
    /// No order of the operations explains every answer.
    NotLinearizable {
        /// Positions of the operations in the longest partial order that the search found, in this
        /// order.
        explained: Vec<usize>,
        /// Position of the operation at whose return the search was stuck: after `explained`, no
        /// order takes this operation before it returns.
        stuck_at: usize,
    },
    /// The search reached its limit of configurations (sets of taken operations, with the model's
    /// state).
    Unknown {
        /// Number of configurations that the search had looked at.
        configurations: usize,
    },
}

const NONE: usize = usize::MAX;

/// The doubly linked list of the calls and returns of completed operations; node `2 * i` is the
/// call of operation `i`, `2 * i + 1` its return.
struct EventList {
    next: Vec<usize>,
    prev: Vec<usize>,
    head: usize,
}

impl EventList {
    fn new<O>(calls: &[Call<O>]) -> EventList {
        let mut events: Vec<(u64, usize)> = Vec::with_capacity(calls.len() * 2);
        for (i, call) in calls.iter().enumerate() {
            if let Some(complete) = call.complete {
                events.extend([(call.call, 2 * i), (complete, 2 * i + 1)]);
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

    /// Returns the operation with the first return in the list. The search must take it before that
    /// return.
    fn first_return(&self) -> usize {
        let mut node = self.head;
        while node.is_multiple_of(2) {
            node = self.next[node];
        }
        node / 2
    }

    fn unlink(&mut self, node: usize) {
        self.point(node, self.next[node], self.prev[node]);
    }

    /// Undoes `unlink`. Nodes must be relinked in the reverse order of unlinking.
    fn relink(&mut self, node: usize) {
        self.point(node, node, node);
    }

    /// Lets the neighbours of `node` point to these nodes: the one before it to `next`, and the one
    /// behind it to `prev`.
    fn point(&mut self, node: usize, next: usize, prev: usize) {
        match self.prev[node] {
            NONE => self.head = next,
            before => self.next[before] = next,
        }
        match self.next[node] {
            NONE => {}
            behind => self.prev[behind] = prev,
        }
    }
}

/// A set of positions of operations, one bit each.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Bits(Box<[u64]>);

impl Bits {
    fn new(len: usize) -> Bits {
        Bits(vec![0; len.div_ceil(64)].into_boxed_slice())
    }

    fn has(&self, i: usize) -> bool {
        self.0[i / 64] & (1 << (i % 64)) != 0
    }

    fn flip(&mut self, i: usize) {
        self.0[i / 64] ^= 1 << (i % 64);
    }

    fn is_subset(&self, of: &Bits) -> bool {
        self.0.iter().zip(&of.0).all(|(ours, theirs)| ours & !theirs == 0)
    }
}

/// Operations of unknown outcome, which the search may leave out.
struct Unknowns {
    /// Positions of the operations of unknown outcome in the history, sorted by the time of their
    /// calls.
    positions: Vec<usize>,
    /// For each item of `positions`, the index (in `positions`) of the last earlier equal
    /// operation.
    same_before: Vec<Option<usize>>,
}

impl Unknowns {
    fn new<O: PartialEq>(calls: &[Call<O>]) -> Unknowns {
        let mut positions: Vec<usize> = (0..calls.len()).filter(|i| calls[*i].complete.is_none()).collect();
        positions.sort_unstable_by_key(|i| calls[*i].call);
        let same = |i: usize| positions[..i].iter().rposition(|before| calls[*before].op == calls[positions[i]].op);
        let same_before = (0..positions.len()).map(same).collect();
        Unknowns { positions, same_before }
    }
}

/// Largest number of sets of operations of unknown outcome that [`Seen`] keeps for one set of
/// completed operations and one state. When a further set is added, the oldest is forgotten, and
/// its configurations may be visited and counted again.
const SMALLEST_MAX: usize = 128;

/// Visited configurations. For each set of completed operations and state, the smallest sets of
/// operations of unknown outcome.
struct Seen<S> {
    smallest: HashMap<(Bits, S), Vec<Bits>>,
    configurations: usize,
}

impl<S: Eq + Hash> Seen<S> {
    /// Adds a configuration to the visited ones. Returns false if a visited configuration covers
    /// it: one with the same state and completed operations, and a subset of the operations of
    /// unknown outcome.
    fn is_new(&mut self, completed: &Bits, state: S, unknown: &Bits) -> bool {
        let smallest = self.smallest.entry((completed.clone(), state)).or_default();
        if smallest.iter().any(|fewer| fewer.is_subset(unknown)) {
            return false;
        }
        smallest.retain(|more| !unknown.is_subset(more));
        if smallest.len() == SMALLEST_MAX {
            smallest.remove(0);
        }
        smallest.push(unknown.clone());
        self.configurations += 1;
        true
    }
}

/// Place at which the search looks next for an operation to take.
#[derive(Clone, Copy)]
enum Place {
    /// At this node of the list with the calls and returns of completed operations. The search
    /// tries these operations first.
    Node(usize),
    /// At this operation of unknown outcome.
    Unknown(usize),
}

/// State of a search: the operations taken so far, and the visited configurations.
struct Search<'a, M: Model> {
    model: &'a M,
    calls: &'a [Call<M::Op>],
    /// Calls and returns of the completed operations that the search has not taken yet.
    events: EventList,
    unknowns: Unknowns,
    completed: Bits,
    unknown: Bits,
    state: M::State,
    seen: Seen<M::State>,
    /// Operations that the search has taken, in order, each with the model's state before it.
    stack: Vec<(Place, M::State)>,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M, calls: &'a [Call<M::Op>]) -> Search<'a, M> {
        let unknowns = Unknowns::new(calls);
        Search {
            model,
            calls,
            events: EventList::new(calls),
            completed: Bits::new(calls.len()),
            unknown: Bits::new(unknowns.positions.len()),
            unknowns,
            state: model.initial(),
            seen: Seen { smallest: HashMap::new(), configurations: 0 },
            stack: Vec::new(),
        }
    }

    /// Takes the first operation, from `place` on, that leads to a configuration not visited yet.
    /// Returns false when there is none before the first return in the list.
    fn take(&mut self, mut place: Place) -> bool {
        loop {
            match place {
                Place::Node(node) if node % 2 == 1 => place = Place::Unknown(0),
                Place::Node(node) => {
                    self.completed.flip(node / 2);
                    if self.go_to_new(place) {
                        self.events.unlink(node + 1);
                        self.events.unlink(node);
                        return true;
                    }
                    self.completed.flip(node / 2);
                    place = Place::Node(self.events.next[node]);
                }
                Place::Unknown(i) => {
                    let by = self.calls[self.events.first_return()].complete;
                    let at = self.unknowns.positions.get(i).map(|i| self.calls[*i].call);
                    if at.is_none() || at > by {
                        return false;
                    }
                    let in_turn = self.unknowns.same_before[i].is_none_or(|before| self.unknown.has(before));
                    if in_turn && !self.unknown.has(i) {
                        self.unknown.flip(i);
                        if self.go_to_new(place) {
                            return true;
                        }
                        self.unknown.flip(i);
                    }
                    place = Place::Unknown(i + 1);
                }
            }
        }
    }

    /// Applies the operation, if it leads to a configuration that no visited configuration covers
    /// (see [`Seen::is_new`]). Returns whether it was applied.
    fn go_to_new(&mut self, place: Place) -> bool {
        let Some(after) = self.model.step(&self.state, &self.calls[self.position(place)].op) else { return false };
        let idle = matches!(place, Place::Unknown(_)) && after == self.state;
        if idle || !self.seen.is_new(&self.completed, after.clone(), &self.unknown) {
            return false;
        }
        self.stack.push((place, std::mem::replace(&mut self.state, after)));
        true
    }

    /// Takes the last operation back. Returns the place from which the search goes on.
    fn take_back(&mut self) -> Option<Place> {
        let (last, before) = self.stack.pop()?;
        self.state = before;
        Some(match last {
            Place::Node(node) => {
                self.completed.flip(node / 2);
                self.events.relink(node);
                self.events.relink(node + 1);
                Place::Node(self.events.next[node])
            }
            Place::Unknown(i) => {
                self.unknown.flip(i);
                Place::Unknown(i + 1)
            }
        })
    }

    fn position(&self, place: Place) -> usize {
        match place {
            Place::Node(node) => node / 2,
            Place::Unknown(i) => self.unknowns.positions[i],
        }
    }

    /// Positions of the taken operations.
    fn explained(&self) -> Vec<usize> {
        self.stack.iter().map(|(place, _)| self.position(*place)).collect()
    }
}

/// Looks for an order of the operations that explains every answer.
///
/// `configurations_max` bounds time and memory. Each configuration takes one bit for each operation
/// and one state, and is compared with `SMALLEST_MAX` others at most.
pub fn check<M: Model>(model: &M, calls: &[Call<M::Op>], configurations_max: usize) -> Verdict {
    let mut search = Search::new(model, calls);
    let mut deepest: (usize, Vec<usize>, usize) = (0, Vec::new(), 0);
    let mut place = Place::Node(search.events.head);
    while search.events.head != NONE {
        if search.take(place) {
            place = Place::Node(search.events.head);
        } else {
            // The operation with the first return must be taken before that return, but no choice
            // from here on allows this.
            if search.stack.len() >= deepest.0 {
                deepest = (search.stack.len(), search.explained(), search.events.first_return());
            }
            match search.take_back() {
                Some(next) => place = next,
                None => return Verdict::NotLinearizable { explained: deepest.1, stuck_at: deepest.2 },
            }
        }
        if search.seen.configurations > configurations_max {
            return Verdict::Unknown { configurations: search.seen.configurations };
        }
    }
    Verdict::Linearizable
}
