//! What all simulated machines share: the time, what is due when, the seed's random numbers and the
//! trace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::call::{Call, CallId, Reply};
use crate::network::{Network, Pipe};
use crate::stream::SimStream;
use crate::trace::{Detail, Trace};
use crate::votes::Votes;

/// The time at which a simulation begins, in milliseconds since 1970.
const EPOCH_MS: u64 = 1_700_000_000_000;

/// A machine: nodes count from 1, clients from [`FIRST_CLIENT`].
pub type MachineId = u64;

/// The first client's machine.
pub const FIRST_CLIENT: MachineId = 100;

/// There are no more clients than that.
pub const CLIENTS_MAX: u64 = if cfg!(feature = "next-level") { 10 } else { 9 };

/// The operator's machine. It reaches every node that has a network.
pub const OPERATOR: MachineId = FIRST_CLIENT + CLIENTS_MAX;

/// Who waits for a connection.
pub type Dialing = oneshot::Sender<std::io::Result<SimStream>>;

/// Something that happens at a time.
pub enum Event {
    /// A flush of a node's log ends.
    Flush {
        /// The node.
        node: MachineId,
        /// The start of the node that began it.
        boot: u64,
    },
    /// Bytes arrive.
    Arrival(Pipe),
    /// A request to connect arrives.
    Connect {
        /// Who dials.
        from: MachineId,
        /// Who listens.
        to: MachineId,
        /// Who waits.
        dialing: Dialing,
    },
    /// The answer to it arrives.
    Connected {
        /// Who listens.
        from: MachineId,
        /// Who dialed.
        to: MachineId,
        /// The connection, or why there is none.
        result: std::io::Result<SimStream>,
        /// Who waits.
        dialing: Dialing,
    },
    /// A client's call arrives at a node.
    Call {
        /// The client.
        from: MachineId,
        /// The node.
        to: MachineId,
        /// The call.
        id: CallId,
        /// What is asked.
        call: Call,
    },
    /// A node's answer arrives at a client.
    Reply {
        /// The node.
        from: MachineId,
        /// The client.
        to: MachineId,
        /// The call.
        id: CallId,
        /// What is answered.
        reply: Reply,
    },
}

/// See [`Hub`]. Locked for moments only, and never while a node runs.
pub struct Shared {
    /// Milliseconds since the simulation began.
    pub now_ms: u64,
    /// How much time passes at once. Whatever is sent arrives in a later step.
    pub step_ms: u64,
    /// All randomness but that of Raft and of the clients.
    pub random: fastrand::Rng,
    /// What happened.
    pub trace: Trace,
    /// Who can reach whom.
    pub network: Network,
    /// Who voted for whom.
    pub votes: Votes,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
}

/// Shared by all machines. Clones are the same.
#[derive(Clone)]
pub struct Hub(Arc<Mutex<Shared>>);

impl Hub {
    /// A hub at the beginning of time.
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

    /// Any event, due or not, to clear up.
    pub fn any(&self) -> Option<Event> {
        self.lock().any()
    }

    /// The shared things, for a moment.
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
    /// Lets `event` happen in `delay_ms`, but not before the next step.
    pub fn schedule(&mut self, delay_ms: u64, event: Event) {
        self.sequence += 1;
        let at_ms = self.now_ms + delay_ms.max(self.step_ms);
        self.events.insert((at_ms, self.sequence), event);
    }

    /// The next event that is due.
    pub fn due(&mut self) -> Option<Event> {
        let first = self.events.first_entry()?;
        (first.key().0 <= self.now_ms).then(|| first.remove())
    }

    /// Any event, due or not, to clear up.
    pub fn any(&mut self) -> Option<Event> {
        self.events.pop_first().map(|(_, event)| event)
    }

    /// The true time, in milliseconds since 1970.
    pub fn wall_clock_ms(&self) -> u64 {
        EPOCH_MS + self.now_ms
    }

    /// An event for the trace.
    pub fn event(&mut self, numbers: &[u64], words: impl FnOnce() -> String) {
        self.trace.event(self.now_ms, numbers, words);
    }
}
