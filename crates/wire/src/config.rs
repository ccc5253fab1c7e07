//! Bounds of the door that an operator sets.

use accept::Networks;

/// Settings of the door. Durations are in milliseconds. What each bound answers is in
/// docs/zookeeper.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireConfig {
    /// Connections at once. Beyond: one without a session gives way, else closed at once, and the
    /// client goes to another node.
    pub connections_max: usize,
    /// Connections from one address; 0 is a quarter of all. Beyond: the same.
    pub connections_per_address_max: usize,
    /// New sessions a second from one address, and ten times as many at once; 0 is no bound.
    /// Beyond: the connection is closed.
    pub session_rate_max: u32,
    /// Addresses that stand for many clients: none of the bounds for one address are theirs.
    pub exempt: Networks,
    /// A packet of a client, and the answer to a multiRead, without its length: ZooKeeper's
    /// `jute.maxbuffer`. Beyond: the connection is closed, and the multiRead refused.
    pub packet_bytes_max: usize,
    /// Packets of all connections of which the rest has not come yet, in bytes. Beyond: the
    /// connection whose packet was begun first is closed.
    pub incomplete_packets_bytes_max: usize,
    /// Requests of one connection that are not answered yet. Beyond: they wait in the socket, and
    /// so do pings behind them.
    pub outstanding_max: usize,
    /// Bytes of those requests. Half a packet counts where it comes behind a write that is held
    /// back.
    pub outstanding_bytes_max: usize,
    /// Bytes of such requests of all connections, without 16 KiB of each; those of one address have
    /// a quarter. Beyond: longer packets wait.
    pub requests_bytes_max: usize,
    /// Writes of all connections that are being proposed. Beyond: they wait.
    pub writes_max: usize,
    /// Watches of all connections; those of one address have a quarter. Beyond: `SystemError`; a
    /// client that brings its watches along is sent away.
    pub watches_max: usize,
    /// Bytes that those watches take with their paths; those of one address have a quarter. Beyond:
    /// the same.
    pub watch_bytes_max: usize,
    /// Watches of one connection. Beyond: the same.
    pub connection_watches_max: usize,
    /// Answers and events that a client has not taken yet. Beyond half of it no request is read.
    /// Beyond it the connection is closed, where an answer that is longer than half of it does not
    /// count: one may always be sent, and the bound is for what waits behind it.
    pub unread_bytes_max: usize,
    /// Answers that are being made, and answers and events that clients have not taken yet, of all
    /// connections; those of one address have a quarter of it, or one answer that is longer.
    /// Beyond: reads wait, and clients that take nothing are closed. One answer has at most half of
    /// it: a longer one is `BadArguments`.
    pub answers_bytes_max: usize,
    /// Time from accepting a connection to its first whole packet. Beyond: the connection is
    /// closed.
    pub handshake_timeout_ms: u64,
    /// Time in which a client may take nothing of what is written to it. Beyond: the connection is
    /// closed.
    pub write_timeout_ms: u64,
    /// Time that a write, or `sync`, may take. Beyond: the connection is closed, for the outcome is
    /// not known.
    pub propose_timeout_ms: u64,
    /// `host:port` that clients are told to connect to, in `/zookeeper/config`; nothing when empty
    /// or `none`.
    pub addr: String,
    /// The identity that may do everything: a digest, `user:base64(sha1(user:password))`; nobody
    /// when empty.
    pub super_digest: String,
    /// Four-letter words that are answered, separated by commas; `*` is all of them.
    pub words: String,
}

impl WireConfig {
    /// Connections that one address may have, where it is not exempt.
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
