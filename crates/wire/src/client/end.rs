//! Reasons and ways for which a connection ends.

/// A way in which a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Ends when the bytes in the outbox are written.
    Finished,
    /// Ends at once. The text is the reason, for the log.
    Cut(&'static str),
    /// Ends at once because of the named bound, which the client will meet again when it
    /// reconnects.
    Bound(&'static str),
}

/// End after a packet above `packet_bytes_max`, because the rest of the stream cannot be parsed. A
/// client that sets all its watches again in one packet may cause it.
pub(crate) const TOO_LONG: End = End::Bound("a packet is longer than zookeeper.packet_bytes_max");
/// End of a connection whose incomplete packet exceeds the memory for such packets.
pub(crate) const NO_ROOM_FOR_A_PACKET: End =
    End::Bound("its packet is not whole, and zookeeper.incomplete_packets_bytes_max is reached");
