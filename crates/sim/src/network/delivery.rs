//! Delivery of bytes over connections, which close, break, or wait until a link heals.

use super::{Connection, ConnectionId, Flow, MachineId, Pipe};
use crate::hub::{Event, Shared};
use crate::trace::hash_bytes;

/// Length in bytes from which on a packet is long, such as a chunk of a snapshot.
const LONG: usize = 16 << 10;

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

    /// Sets up a connection from `from` to `to`. Returns its two directions.
    pub fn connect(&mut self, from: MachineId, to: MachineId) -> [Pipe; 2] {
        self.network.last_connection += 1;
        let connection = self.network.last_connection;
        let flows = [Flow::default(), Flow::default()];
        self.network.connections.insert(connection, Connection { machines: [from, to], flows });
        [0, 1].map(|side| Pipe { connection, side })
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
        self.release(|_| true, 400);
    }

    /// Heals one direction of a link. Bytes that were held arrive soon.
    pub fn heal_link(&mut self, from: MachineId, to: MachineId) {
        self.network.cut.remove(&(from, to));
        self.release(|link| link == [from, to], 10);
    }

    /// Sends the bytes that were held on these links again, within this time.
    fn release(&mut self, links: impl Fn([MachineId; 2]) -> bool, within_ms: u64) {
        for pipe in self.pipes(|_, flow| flow.held) {
            if self.machines(pipe).is_some_and(&links) {
                if let Some(flow) = self.flow(pipe) {
                    flow.held = false;
                }
                let delay_ms = 1 + self.random.u64(..within_ms);
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
