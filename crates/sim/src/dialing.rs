//! Due events of the network between machines. For the setup of a connection a request travels to
//! the listening machine, and an answer travels back.

use std::io;

use replica::simulation::Duplex;

use crate::hub::{Dialing, Event, Hub};
use crate::network::MachineId;
use crate::stream::SimStream;

/// Handles the due events of the network between machines. Returns the first due event of another
/// kind.
pub fn next_event(hub: &Hub) -> Option<Event> {
    loop {
        // The hub must be unlocked before an event is dropped, because the drop may lock the hub.
        let due = hub.lock().due();
        match due? {
            Event::Arrival(pipe) => hub.lock().arrive(pipe),
            Event::Connect { from, to, dialing } => connect(hub, from, to, dialing),
            Event::Connected { from, to, result, dialing } => {
                if !hub.lock().network.is_cut(from, to) {
                    drop(dialing.send(result));
                }
            }
            event => return Some(event),
        }
    }
}

/// Handles a request to connect that arrives at `to`.
fn connect(hub: &Hub, from: MachineId, to: MachineId, dialing: Dialing) {
    let door = {
        let shared = hub.lock();
        // A request that does not arrive gets no answer, and the caller notices by its own timeout.
        // The caller treats the dropped channel as an answer that never comes.
        if shared.network.is_cut(from, to) || !shared.network.is_up(to) {
            return;
        }
        shared.network.presence.get(&to).and_then(|presence| presence.door.clone())
    };
    let result = match door {
        None => Err(io::ErrorKind::ConnectionRefused.into()),
        Some(door) => {
            let stream = |pipe| -> Box<dyn Duplex> { Box::new(SimStream::new(hub.clone(), pipe)) };
            let [dialed, accepted] = hub.lock().connect(from, to).map(stream);
            match door.peers.try_send(accepted) {
                Ok(()) => Ok(dialed),
                Err(_) => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        }
    };
    let mut shared = hub.lock();
    let delay_ms = shared.latency_ms(to, from);
    shared.schedule(delay_ms, Event::Connected { from: to, to: from, result, dialing });
}
