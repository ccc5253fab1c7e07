//! Ways in which a connection ends, with their reasons.

use replica::Bound;

/// A way in which a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Ends after the bytes in the outbox (queue of bytes to send) are written.
    Finished,
    /// Ends at once. The text is the reason, for the log.
    Cut(&'static str),
    /// Ends at once because of a bound. The client will meet the same bound when it reconnects.
    Bound(Bound),
}

/// End after a packet longer than `packet_bytes_max`, because the rest of the stream cannot be
/// parsed. A setWatches request with all watches of a client may be so long.
pub(crate) const TOO_LONG: End = End::Bound(Bound::PacketBytes);
/// End of a connection whose incomplete packet exceeds the memory for such packets.
pub(crate) const NO_ROOM_FOR_A_PACKET: End = End::Bound(Bound::IncompletePacketBytes);
/// End of a connection whose long read has no thread any more, because the server stops.
pub(crate) const NO_THREAD: End = End::Cut("the thread for long reads is gone");
