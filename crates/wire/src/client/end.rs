//! Ways in which a connection ends.

/// A way in which a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// An end once the bytes in the outbox are written.
    Finished,
    /// An end at once, for the given reason.
    Cut(&'static str),
    /// An end at once by a bound, which the client will meet again when it reconnects.
    Bound(&'static str),
}

/// The end for a packet above `packet_bytes_max`, after which the stream cannot be read. Clients
/// that set all their watches again in one packet may meet it.
pub(crate) const TOO_LONG: End = End::Bound("a packet is longer than zookeeper.packet_bytes_max");
/// The end when there is no memory left for the rest of an incomplete packet.
pub(crate) const NO_ROOM_FOR_A_PACKET: End =
    End::Bound("its packet is not whole, and zookeeper.incomplete_packets_bytes_max is reached");
