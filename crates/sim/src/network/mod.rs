//! Links between machines: the times of delivery, and cut links.
//!
//! A connection behaves like TCP: its bytes arrive in order or not at all. The loss of a packet
//! delays a connection by the time of a retransmission. A cut link holds bytes back until it heals.
//! Connections between the same machines overtake each other. Calls of clients are datagrams that
//! may be lost, which stands for a broken connection.

mod delivery;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;

use replica::simulation::Duplex;
use tokio::sync::mpsc;

use crate::call::{Call, CallId};

/// Id of a machine: nodes count from 1, clients from [`FIRST_CLIENT`].
pub type MachineId = u64;

/// Id of the first client's machine.
pub const FIRST_CLIENT: MachineId = 100;

/// The largest number of clients.
pub const CLIENTS_MAX: u64 = if cfg!(feature = "next-level") { 10 } else { 9 };

/// Id of the operator's machine, which can always connect to a node that has power and a network.
pub const OPERATOR: MachineId = FIRST_CLIENT + CLIENTS_MAX;

/// Largest number of bytes under way in one direction of a connection. The sender waits while so
/// many are under way.
pub const IN_FLIGHT_MAX: usize = 1 << 20;

/// Number of a connection.
pub type ConnectionId = u64;

/// One direction of a connection: the one into which `side` writes. The dialing machine is side 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pipe {
    /// The connection.
    pub connection: ConnectionId,
    /// The side that writes.
    pub side: usize,
}

/// Both directions of a connection.
pub(crate) struct Connection {
    machines: [MachineId; 2],
    pub(crate) flows: [Flow; 2],
}

/// One direction of a connection, with its bytes that are under way or not read yet.
#[derive(Default)]
pub(crate) struct Flow {
    under_way: VecDeque<(u64, Vec<u8>)>,
    pub(crate) in_flight: usize,
    pub(crate) readable: VecDeque<u8>,
    /// Arrival time of the last bytes sent. Later bytes arrive no earlier.
    last_ms: u64,
    /// Arrival time of the end of the stream; `None` while the writing end is open.
    ends_ms: Option<u64>,
    /// Whether the writing end is gone.
    closed: bool,
    pub(crate) ended: bool,
    pub(crate) broken: bool,
    held: bool,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
}

impl Flow {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// Channels by which a process receives connections and calls.
#[derive(Clone)]
pub struct Door {
    /// Connections of peers.
    pub peers: mpsc::Sender<Box<dyn Duplex>>,
    /// Calls of clients.
    pub calls: mpsc::Sender<(MachineId, CallId, Call)>,
}

/// Reachability of a machine.
#[derive(Default)]
pub struct Presence {
    /// Whether the machine has power and a network.
    pub up: bool,
    /// The channels to the machine's process; `None` while no process runs.
    pub door: Option<Door>,
}

/// The network between all machines.
#[derive(Default)]
pub struct Network {
    /// The presence of every machine.
    pub presence: BTreeMap<MachineId, Presence>,
    cut: BTreeSet<(MachineId, MachineId)>,
    slow: BTreeMap<(MachineId, MachineId), u64>,
    /// Time at which one machine last sent bytes to another.
    sent_ms: BTreeMap<(MachineId, MachineId), u64>,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    last_connection: ConnectionId,
    /// The longest delay of a usual delivery. A few deliveries take up to 100 ms longer.
    spread_ms: u64,
    /// Machines between which a bit of the next long packet flips, from the first to the second.
    flips: Option<(MachineId, MachineId)>,
    /// Inverse probability that a packet is lost: one in this many; 0 for no losses.
    lost_one_in: u32,
}

impl Network {
    pub(crate) fn new(random: &mut fastrand::Rng) -> Network {
        Network {
            spread_ms: [1, 3, 5, 10, 30][random.usize(..5)],
            flips: None,
            lost_one_in: [0, 0, 500, 100, 30][random.usize(..5)],
            ..Network::default()
        }
    }

    /// Ends losses, and makes most deliveries fast.
    pub fn calm(&mut self) {
        (self.spread_ms, self.lost_one_in) = (1, 0);
    }

    /// Tells whether the link from one machine to the other is cut.
    pub fn is_cut(&self, from: MachineId, to: MachineId) -> bool {
        self.cut.contains(&(from, to))
    }

    /// Tells whether the machine has power.
    pub fn is_up(&self, machine: MachineId) -> bool {
        self.presence.get(&machine).is_none_or(|presence| presence.up)
    }

    /// The time at which `from` last sent bytes to `to`; 0 if never.
    pub fn sent_ms(&self, from: MachineId, to: MachineId) -> u64 {
        self.sent_ms.get(&(from, to)).copied().unwrap_or(0)
    }

    /// Cuts one direction of a link.
    pub fn cut(&mut self, from: MachineId, to: MachineId) {
        self.cut.insert((from, to));
    }

    /// Flips a bit of the next long packet from one machine to the other, such as a part of a
    /// snapshot.
    pub fn flip(&mut self, from: MachineId, to: MachineId) {
        self.flips = Some((from, to));
    }

    /// Tells whether a bit is still to be flipped.
    pub fn is_to_flip(&self) -> bool {
        self.flips.is_some()
    }

    /// Makes one direction of a link slow.
    pub fn slow_down(&mut self, from: MachineId, to: MachineId, by_ms: u64) {
        self.slow.insert((from, to), by_ms);
    }
}
