//! How a connection ends.

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// What is in the outbox is still written.
    Finished,
    /// At once.
    Cut(&'static str),
    /// The same, by a bound that the client meets again when it comes back.
    Bound(&'static str),
}

/// There is no way to go on behind it. Clients that send all their watches in one packet come here.
pub(crate) const TOO_LONG: End = End::Bound("a packet is longer than zookeeper_packet_max");
/// Half a packet has no place.
pub(crate) const NO_ROOM_FOR_A_PACKET: End =
    End::Bound("its packet is not whole, and zookeeper_incomplete_packets_max is reached");
