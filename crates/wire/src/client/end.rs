//! Ends of a connection.

/// The way in which a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Ends the connection once the bytes in the outbox are written.
    Finished,
    /// Ends the connection at once.
    Cut(&'static str),
    /// Ends the connection at once, by a bound that the client meets again when it comes back.
    Bound(&'static str),
}

/// The end where there is no way to go on behind a packet. Clients that send all their watches in
/// one packet come here.
pub(crate) const TOO_LONG: End = End::Bound("a packet is longer than zookeeper.packet_bytes_max");
/// The end where half a packet has no place.
pub(crate) const NO_ROOM_FOR_A_PACKET: End =
    End::Bound("its packet is not whole, and zookeeper.incomplete_packets_bytes_max is reached");
