//! Hub of all simulated machines: the time, the scheduled events, the seed's random numbers and the
//! trace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use replica::simulation::Duplex;
use tokio::sync::oneshot;

use crate::call::{Call, CallId, Reply};
use crate::network::{MachineId, Network, Pipe};
use crate::trace::{Detail, Trace};
use crate::votes::Votes;

/// The time at which a simulation begins, in milliseconds since 1970.
const EPOCH_MS: u64 = 1_700_000_000_000;

/// A connection, or the error.
pub type Dialed = std::io::Result<Box<dyn Duplex>>;

/// Channel to the task that waits for a connection.
pub type Dialing = oneshot::Sender<Dialed>;

/// An event that is scheduled for a time of the simulation.
pub enum Event {
    /// A flush of a node's log ends.
    Flush {
        /// The node.
        node: MachineId,
        /// The number of the node's start in which the flush began.
        boot: u64,
    },
    /// Bytes arrive at the reading end of a connection.
    Arrival(Pipe),
    /// A request to connect arrives.
    Connect {
        /// The machine that dials.
        from: MachineId,
        /// The machine that listens.
        to: MachineId,
        /// The channel to the dialing task.
        dialing: Dialing,
    },
    /// The answer to a request to connect arrives.
    Connected {
        /// The machine that listens.
        from: MachineId,
        /// The machine that dialed.
        to: MachineId,
        /// The connection, or the error.
        result: Dialed,
        /// The channel to the dialing task.
        dialing: Dialing,
    },
    /// A client's call arrives at a node.
    Call {
        /// The client.
        from: MachineId,
        /// The node.
        to: MachineId,
        /// The id of the call.
        id: CallId,
        /// The request.
        call: Call,
    },
    /// A node's answer arrives at a client.
    Reply {
        /// The node.
        from: MachineId,
        /// The client.
        to: MachineId,
        /// The id of the call.
        id: CallId,
        /// The answer.
        reply: Reply,
    },
}

/// State that all machines share through a [`Hub`]. Locked only briefly, and never for a whole step
/// of a node.
pub struct Shared {
    /// Milliseconds since the simulation began.
    pub now_ms: u64,
    /// The length of a step in milliseconds. Bytes that are sent arrive in a later step.
    pub step_ms: u64,
    /// Random numbers for everything but Raft and the clients.
    pub random: fastrand::Rng,
    /// The trace of events.
    pub trace: Trace,
    /// The network between all machines.
    pub network: Network,
    /// The votes of all nodes.
    pub votes: Votes,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
}

/// Handle of the state that all machines share. Clones share it.
#[derive(Clone)]
pub struct Hub(Arc<Mutex<Shared>>);

impl Hub {
    /// Returns a hub at the beginning of the simulated time, with no events.
    pub fn new(seed: u64, detail: Detail) -> Hub {
        let mut random = fastrand::Rng::with_seed(seed);
        let step_ms = [1, 2, 2, 3, 5][random.usize(..5)];
        let network = Network::new(&mut random);
        let trace = Trace::new(detail);
        let events = BTreeMap::new();
        Hub(Arc::new(Mutex::new(Shared {
            now_ms: 0,
            step_ms,
            random,
            trace,
            network,
            votes: Votes::default(),
            events,
            sequence: 0,
        })))
    }

    /// Removes the earliest event, due or not, to clear up after a run.
    pub fn any(&self) -> Option<Event> {
        self.lock().events.pop_first().map(|(_, event)| event)
    }

    /// Locks the shared state, for a moment.
    pub fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the simulation began.
    pub fn now_ms(&self) -> u64 {
        self.lock().now_ms
    }

    /// Lets the time of one step pass.
    pub fn pass_step(&self) {
        let mut shared = self.lock();
        shared.now_ms += shared.step_ms;
    }
}

impl Shared {
    /// Schedules `event` in `delay_ms`, but not before the next step.
    pub fn schedule(&mut self, delay_ms: u64, event: Event) {
        self.sequence += 1;
        let at_ms = self.now_ms + delay_ms.max(self.step_ms);
        self.events.insert((at_ms, self.sequence), event);
    }

    /// Removes the next event that is due.
    pub fn due(&mut self) -> Option<Event> {
        let first = self.events.first_entry()?;
        (first.key().0 <= self.now_ms).then(|| first.remove())
    }

    /// The true time, in milliseconds since 1970.
    pub fn wall_clock_ms(&self) -> u64 {
        EPOCH_MS + self.now_ms
    }

    /// Adds an event to the trace.
    pub fn event(&mut self, numbers: &[u64], words: impl FnOnce() -> String) {
        self.trace.event(self.now_ms, numbers, words);
    }
}
