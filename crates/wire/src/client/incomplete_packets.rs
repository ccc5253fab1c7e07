//! Bound on the bytes of incomplete packets, over all connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use accept::Mutex;

use crate::client::Client;

/// Clients with an incomplete packet, and the bytes that each has sent of it so far.
///
/// If all incomplete packets together exceed `bytes_max`, the connection with the oldest one is
/// closed. So a client that sends slowly, or never completes a packet, cannot block other clients.
pub(crate) struct IncompletePackets {
    bytes_max: usize,
    packets: Mutex<HalfPackets>,
}

#[derive(Default)]
struct HalfPackets {
    bytes: usize,
    begun: u64,
    /// Incomplete packets, in the order in which they were begun.
    halves: BTreeMap<u64, HalfPacket>,
}

struct HalfPacket {
    bytes: usize,
    client: Arc<Client>,
}

/// Guard of the bytes counted for one connection's incomplete packet. Dropping it ends the
/// counting.
pub(crate) struct PacketShare<'a> {
    all: &'a IncompletePackets,
    client: &'a Arc<Client>,
    begun: Option<u64>,
}

impl IncompletePackets {
    pub(crate) fn new(bytes_max: usize) -> IncompletePackets {
        IncompletePackets { bytes_max, packets: Mutex::default() }
    }

    pub(crate) fn share<'a>(&'a self, client: &'a Arc<Client>) -> PacketShare<'a> {
        PacketShare { all: self, client, begun: None }
    }

    /// Returns the bytes of all incomplete packets.
    pub(crate) fn bytes(&self) -> usize {
        self.packets.lock().bytes
    }
}

impl PacketShare<'_> {
    /// Sets the number of bytes of this connection's incomplete packet; 0 if it has none. False if
    /// the connection was closed, because all incomplete packets exceed their bound and this one is
    /// among the oldest.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        if bytes == 0 {
            self.give_back();
            return true;
        }
        let mut packets = self.all.packets.lock();
        let begun = *self.begun.get_or_insert_with(|| {
            packets.begun += 1;
            packets.begun
        });
        let client = Arc::clone(self.client);
        let before = packets.halves.insert(begun, HalfPacket { bytes, client }).map_or(0, |half| half.bytes);
        packets.bytes = packets.bytes - before + bytes;
        while packets.bytes > self.all.bytes_max {
            let Some((first, half)) = packets.halves.pop_first() else { break };
            packets.bytes -= half.bytes;
            half.client.close();
            if first == begun {
                return false;
            }
        }
        true
    }

    fn give_back(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        let mut packets = self.all.packets.lock();
        // The packet may have been removed to make room.
        if let Some(half) = packets.halves.remove(&begun) {
            packets.bytes -= half.bytes;
        }
    }
}

impl Drop for PacketShare<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packet_that_was_begun_first_gives_way() {
        let all = IncompletePackets::new(10);
        let clients = [1, 2, 3].map(Client::alone);
        let [mut first, mut second, mut third] = [0, 1, 2].map(|at| all.share(&clients[at]));
        let closed = || [0, 1, 2].map(|at| clients[at].is_closed());
        assert!(first.set(4) && second.set(4) && first.set(6));
        assert_eq!((all.bytes(), closed()), (10, [false; 3]));
        // The first client completes its packet and begins another one, so its packet is no longer
        // the oldest.
        assert!(first.set(0) && first.set(1) && third.set(5));
        assert_eq!((all.bytes(), closed()), (10, [false; 3]));
        assert!(third.set(6));
        assert_eq!((all.bytes(), closed()), (7, [false, true, false]));
        assert!(!first.set(11), "one that has no room even alone");
        assert_eq!((all.bytes(), closed()), (6, [true, true, false]));
        drop((first, second, third));
        assert_eq!(all.bytes(), 0);
    }
}
