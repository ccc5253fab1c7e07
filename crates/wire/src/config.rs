//! Settings of the ZooKeeper door, which an operator configures.

use accept::Networks;

/// Settings of the ZooKeeper door. Durations are in milliseconds. docs/zookeeper.md says what a
/// client sees at each bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireConfig {
    /// Most connections at a time. At the bound a connection without a session makes room for a new
    /// one; if there is none, the new one is closed, and its client goes to another node.
    pub connections_max: usize,
    /// Most connections from one address; 0 stands for a quarter of `connections_max`. The bound
    /// has the effect of `connections_max`.
    pub connections_per_address_max: usize,
    /// Most new sessions a second from one address, with bursts of ten times as many; 0 for no
    /// bound. At the bound the connection is closed.
    pub session_rate_max: u32,
    /// Addresses that stand for many clients. The bounds for one address do not apply to them.
    pub exempt: Networks,
    /// The longest packet of a client, and the longest answer to a multiRead, without the length in
    /// front: ZooKeeper's `jute.maxbuffer`. For a longer packet the connection is closed; a longer
    /// multiRead is refused.
    pub packet_bytes_max: usize,
    /// Most bytes of incomplete packets, in all connections. At the bound the connection whose
    /// packet was begun first is closed.
    pub incomplete_packets_bytes_max: usize,
    /// Most unanswered requests of one connection. At the bound further ones wait in the socket,
    /// and so do pings after them.
    pub outstanding_max: usize,
    /// Most bytes of unanswered requests of one connection. An incomplete packet counts if it
    /// follows a write that is held back.
    pub outstanding_bytes_max: usize,
    /// Most bytes of unanswered requests in all connections, not counting 16 KiB of each; one
    /// address has a quarter of it. At the bound longer packets wait.
    pub requests_bytes_max: usize,
    /// Most writes that are being proposed, in all connections. Further ones wait.
    pub writes_max: usize,
    /// Most watches of all connections; one address has a quarter of it. At the bound a new watch
    /// is refused with `SystemError`, and a client that sets its former watches again is
    /// disconnected.
    pub watches_max: usize,
    /// Most bytes of all watches with their paths; one address has a quarter of it. The bound has
    /// the effects of `watches_max`.
    pub watch_bytes_max: usize,
    /// Most watches of one connection. The bound has the effects of `watches_max`.
    pub connection_watches_max: usize,
    /// Most bytes of answers and events that a client has not taken. Above half of it no request is
    /// read. Above it the connection is closed. One answer that is longer than half of it does not
    /// count, so that it can be sent; the bound is then for the bytes after it.
    pub unread_bytes_max: usize,
    /// Most bytes of answers that are being made, and of answers and events that clients have not
    /// taken, in all connections. One address has a quarter of it, or one longer answer. At the
    /// bound reads wait, and clients that take nothing are closed. One answer has at most half of
    /// it; a longer one is refused with `BadArguments`.
    pub answers_bytes_max: usize,
    /// Most time from accepting a connection to its first whole packet. Then the connection is
    /// closed.
    pub handshake_timeout_ms: u64,
    /// Most time for which a client may take none of the bytes that are written to it. Then the
    /// connection is closed.
    pub write_timeout_ms: u64,
    /// Most time that a write or `sync` may take. Then the connection is closed, because the
    /// outcome is unknown.
    pub propose_timeout_ms: u64,
    /// The address `host:port` that clients are told in `/zookeeper/config`; no address if empty or
    /// `none`.
    pub addr: String,
    /// The super user, who may do everything, as a digest `user:base64(sha1(user:password))`. Empty
    /// for no super user.
    pub super_digest: String,
    /// Four-letter words that are answered, separated by commas; `*` allows all.
    pub words: String,
}

impl WireConfig {
    /// Most connections of an address that is not exempt.
    pub(crate) fn address_connections_max(&self) -> usize {
        match self.connections_per_address_max {
            0 => (self.connections_max / 4).max(1),
            max => max,
        }
    }
}

impl Default for WireConfig {
    fn default() -> Self {
        WireConfig {
            connections_max: 4_096,
            connections_per_address_max: 0,
            session_rate_max: 500,
            exempt: Networks::default(),
            packet_bytes_max: 0xf_ffff,
            incomplete_packets_bytes_max: 64 << 20,
            outstanding_max: 1_000,
            outstanding_bytes_max: 4 << 20,
            requests_bytes_max: 64 << 20,
            writes_max: 2_048,
            watches_max: 1_000_000,
            watch_bytes_max: 256 << 20,
            connection_watches_max: 100_000,
            unread_bytes_max: 8 << 20,
            answers_bytes_max: 64 << 20,
            handshake_timeout_ms: 10_000,
            write_timeout_ms: 10_000,
            propose_timeout_ms: 10_000,
            addr: String::new(),
            super_digest: String::new(),
            words: "srvr".to_owned(),
        }
    }
}
