//! How a connection ends.

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// What is in the outbox is still written.
    Finished,
    /// At once.
    Cut(&'static str),
}

/// There is no way to go on behind it.
pub(crate) const TOO_LONG: End = End::Cut("a packet is too long");
