//! Links between machines: the times of delivery, and cut links.
//!
//! A connection behaves like TCP: its bytes arrive in order or not at all. The loss of a packet
//! delays a connection by the time of a retransmission. A cut link holds bytes back until it heals.
//! Connections between the same machines overtake each other. Calls of clients are datagrams that
//! may be lost, which stands for a broken connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;

use crate::hub::{Event, Hub, MachineId, Shared};
use crate::machine::Door;
use crate::stream::SimStream;
use crate::trace::hash_bytes;

/// Largest number of bytes under way in one direction of a connection. The sender waits while so
/// many are under way.
pub const IN_FLIGHT_MAX: usize = 1 << 20;

/// Length in bytes from which on a packet is long, such as a chunk of a snapshot.
const LONG: usize = 16 << 10;

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

impl Shared {
    /// Draws the time of a delivery from one machine to the other.
    pub fn latency_ms(&mut self, from: MachineId, to: MachineId) -> u64 {
        let spread_ms = self.network.spread_ms;
        let mut delay_ms = self.random.u64(..=spread_ms);
        if self.random.u8(..) < 4 {
            delay_ms += self.random.u64(..100);
        }
        if self.loses() {
            delay_ms += 200 + self.random.u64(..400);
        }
        delay_ms + self.network.slow.get(&(from, to)).copied().unwrap_or(0)
    }

    /// Draws whether a packet is lost.
    pub fn loses(&mut self) -> bool {
        self.network.lost_one_in > 0 && self.random.u32(..self.network.lost_one_in) == 0
    }

    /// Sets up a connection from `from` to `to`. Returns its two ends.
    pub fn connect(&mut self, hub: &Hub, from: MachineId, to: MachineId) -> [SimStream; 2] {
        self.network.last_connection += 1;
        let connection = self.network.last_connection;
        let flows = [Flow::default(), Flow::default()];
        self.network.connections.insert(connection, Connection { machines: [from, to], flows });
        [0, 1].map(|side| SimStream::new(hub.clone(), Pipe { connection, side }))
    }

    /// Sends bytes in one direction of a connection.
    pub(crate) fn send(&mut self, pipe: Pipe, bytes: &[u8]) {
        let Some([from, to]) = self.machines(pipe) else { return };
        let delay_ms = self.latency_ms(from, to);
        let at_ms = self.now_ms + delay_ms.max(self.step_ms);
        self.network.sent_ms.insert((from, to), self.now_ms);
        let mut bytes = bytes.to_vec();
        if bytes.len() >= LONG && self.network.flips.take_if(|link| *link == (from, to)).is_some() {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        let Some(flow) = self.flow(pipe) else { return };
        flow.last_ms = flow.last_ms.max(at_ms);
        flow.in_flight += bytes.len();
        flow.under_way.push_back((flow.last_ms, bytes));
        let delay_ms = flow.last_ms - self.now_ms;
        self.schedule(delay_ms, Event::Arrival(pipe));
    }

    /// Closes one end of a connection. The other end reads up to the end of the stream. If the
    /// closing machine has lost power, the other end is told nothing.
    pub(crate) fn close(&mut self, pipe: Pipe) {
        let Some([from, to]) = self.machines(pipe) else { return };
        let up = self.network.is_up(from);
        if self.flow(pipe).is_none_or(|flow| std::mem::replace(&mut flow.closed, true)) || !up {
            return;
        }
        let delay_ms = self.latency_ms(from, to);
        let at_ms = self.now_ms + delay_ms.max(self.step_ms);
        let Some(flow) = self.flow(pipe) else { return };
        flow.last_ms = flow.last_ms.max(at_ms);
        flow.ends_ms = Some(flow.last_ms);
        let delay_ms = flow.last_ms - self.now_ms;
        self.schedule(delay_ms, Event::Arrival(pipe));
        // Bytes on their way to the closed end are not read any more.
        let back = Pipe { side: 1 - pipe.side, ..pipe };
        if let Some(flow) = self.flow(back) {
            flow.under_way.clear();
            flow.readable.clear();
        }
    }

    /// Closes the connection ends of a machine whose process ends, in the order of the connections.
    /// tokio would drop them in an order that depends on the number of tasks in earlier runs.
    pub fn close_all(&mut self, machine: MachineId) {
        let ends = self.pipes(|machines, _| machines.contains(&machine));
        for pipe in ends {
            if self.machines(pipe).is_some_and(|[from, _]| from == machine) {
                self.close(pipe);
            }
        }
    }

    /// Delivers the bytes of a pipe that are due, unless the link is cut.
    pub(crate) fn arrive(&mut self, pipe: Pipe) {
        let Some([from, to]) = self.machines(pipe) else { return };
        let now_ms = self.now_ms;
        let cut = self.network.is_cut(from, to);
        let up = self.network.is_up(to);
        let Some(flow) = self.flow(pipe) else { return };
        if cut {
            flow.held = true;
            return;
        }
        let mut arrived = Vec::new();
        while flow.under_way.front().is_some_and(|(at_ms, _)| *at_ms <= now_ms) {
            let Some((_, bytes)) = flow.under_way.pop_front() else { break };
            flow.in_flight = flow.in_flight.saturating_sub(bytes.len());
            arrived.extend(bytes);
        }
        if up {
            flow.readable.extend(&arrived);
        }
        let ends = flow.ends_ms.is_some_and(|at_ms| at_ms <= now_ms) && !flow.ended;
        flow.ended |= ends;
        flow.wake();
        if !arrived.is_empty() || ends {
            let numbers = [1, from, to, pipe.connection, arrived.len() as u64, hash_bytes(&arrived), ends.into()];
            self.event(&numbers, || {
                let end = if ends { ", and the end" } else { "" };
                format!("{from} -> {to}: {} bytes on connection {}{end}", arrived.len(), pipe.connection)
            });
        }
        self.forget(pipe.connection);
    }

    /// Heals all links. Bytes that were held are sent again after a while.
    pub fn heal(&mut self) {
        let broken = !self.network.cut.is_empty() || !self.network.slow.is_empty();
        self.network.cut.clear();
        self.network.slow.clear();
        if broken {
            self.event(&[2], || "all links are healed".into());
        }
        let held: Vec<Pipe> = self.pipes(|_, flow| flow.held);
        for pipe in held {
            let delay_ms = 1 + self.random.u64(..400);
            if let Some(flow) = self.flow(pipe) {
                flow.held = false;
            }
            self.schedule(delay_ms, Event::Arrival(pipe));
        }
    }

    /// Heals one direction of a link. Bytes that were held arrive soon.
    pub fn heal_link(&mut self, from: MachineId, to: MachineId) {
        self.network.cut.remove(&(from, to));
        let held: Vec<Pipe> = self.pipes(|_, flow| flow.held);
        for pipe in held {
            if self.machines(pipe) == Some([from, to]) {
                if let Some(flow) = self.flow(pipe) {
                    flow.held = false;
                }
                let delay_ms = 1 + self.random.u64(..10);
                self.schedule(delay_ms, Event::Arrival(pipe));
            }
        }
    }

    /// Breaks the connections that `chosen` accepts: both ends get an error.
    pub fn break_connections(&mut self, chosen: impl Fn([MachineId; 2]) -> bool) {
        for pipe in self.pipes(|machines, _| chosen(machines)) {
            if let Some(flow) = self.flow(pipe) {
                flow.broken = true;
                flow.wake();
            }
        }
    }

    fn pipes(&self, chosen: impl Fn([MachineId; 2], &Flow) -> bool) -> Vec<Pipe> {
        let connections = self.network.connections.iter();
        let pipes = connections.flat_map(|(id, connection)| {
            let flows = connection.flows.iter().enumerate();
            flows.map(|(side, flow)| (Pipe { connection: *id, side }, connection.machines, flow))
        });
        pipes.filter(|(_, machines, flow)| chosen(*machines, flow)).map(|(pipe, ..)| pipe).collect()
    }

    pub(crate) fn flow(&mut self, pipe: Pipe) -> Option<&mut Flow> {
        Some(&mut self.network.connections.get_mut(&pipe.connection)?.flows[pipe.side])
    }

    /// The writing machine and the reading one.
    fn machines(&self, pipe: Pipe) -> Option<[MachineId; 2]> {
        let machines = self.network.connections.get(&pipe.connection)?.machines;
        Some([machines[pipe.side], machines[1 - pipe.side]])
    }

    /// Removes a connection that has ended in both directions.
    fn forget(&mut self, connection: ConnectionId) {
        let over = |flow: &Flow| flow.ended && flow.under_way.is_empty();
        if self.network.connections.get(&connection).is_some_and(|connection| connection.flows.iter().all(over)) {
            self.network.connections.remove(&connection);
        }
    }
}
