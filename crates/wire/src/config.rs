//! Settings of the server for ZooKeeper clients.

use accept::Networks;

replica::settings! {
    /// Settings of the server for ZooKeeper clients. Durations are in milliseconds.
    /// docs/zookeeper.md describes what a client sees at each bound.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct WireConfig {
        /// Largest number of connections. At the bound, a connection without a session is closed
        /// for the new one; if there is none, the new one is closed, and its client tries another
        /// node.
        pub connections_max: usize = 4_096,
        /// Largest number of connections from one address; 0 stands for no bound while the server
        /// has fewer than `connections_max`, and then for a quarter of it. At the bound, the same
        /// happens as at `connections_max`.
        pub connections_per_address_max: usize = 0,
        /// Largest number of new sessions a second from one address; a burst may have ten times as
        /// many. 0 means no bound. At the bound, the connection is closed.
        pub session_rate_max: u32 = 500,
        /// Addresses that stand for many clients. The bounds for one address do not apply to them.
        pub exempt: Networks = Networks::default(),
        /// Largest size in bytes of a client's packet and of the answer to a multiRead, without the
        /// length in front: ZooKeeper's `jute.maxbuffer`. A client that sends a longer packet is
        /// disconnected; a longer multiRead is refused.
        pub packet_bytes_max: usize = 0xf_ffff,
        /// Largest number of bytes of incomplete packets in all connections. At the bound, the
        /// connection with the oldest incomplete packet is closed.
        pub incomplete_packets_bytes_max: usize = 64 << 20,
        /// Largest number of unanswered requests of one connection. At the bound, further requests
        /// wait in the socket, and so do pings after them.
        pub outstanding_max: usize = 1_000,
        /// Largest number of bytes of one connection's unanswered requests. An incomplete packet
        /// counts, too, if it follows a write that is held back until earlier requests are
        /// answered.
        pub outstanding_bytes_max: usize = 4 << 20,
        /// Largest number of bytes of unanswered requests in all connections; the first 16 KiB of
        /// each connection are not counted. One address may have a quarter of these bytes. At the
        /// bound, long requests wait.
        pub requests_bytes_max: usize = 64 << 20,
        /// Largest number of writes in progress in all connections. Further writes wait.
        pub writes_max: usize = 2_048,
        /// Largest number of watches of all connections; one address may have a quarter of them. At
        /// the bound, a new watch is refused with `SystemError`, and a client that sets its watches
        /// again after a reconnect is disconnected.
        pub watches_max: usize = 1_000_000,
        /// Largest number of bytes of all watches with their paths; one address may have a quarter
        /// of them. At the bound, the same happens as at `watches_max`.
        pub watch_bytes_max: usize = 256 << 20,
        /// Largest number of watches of one connection. At the bound, the same happens as at
        /// `watches_max`.
        pub connection_watches_max: usize = 100_000,
        /// Largest number of bytes of answers and events that one client has not read. Above half
        /// of this bound, no request of the client is taken; above the bound, the connection is
        /// closed. A single answer longer than half of the bound is not counted, so that it can be
        /// sent.
        pub unread_bytes_max: usize = 8 << 20,
        /// Largest number of bytes of answers in preparation, and of answers and events that
        /// clients have not read, in all connections. One address may have a quarter of these
        /// bytes, or one longer answer. At the bound, reads wait, and clients that do not read are
        /// closed. One answer may have half of these bytes; a longer answer is refused with
        /// `BadArguments`.
        pub answers_bytes_max: usize = 64 << 20,
        /// Longest time from accepting a connection to its first complete packet. Then the
        /// connection is closed.
        pub handshake_timeout_ms: u64 = 10_000,
        /// Longest time for which a client may accept no byte that is sent to it. Then the
        /// connection is closed.
        pub write_timeout_ms: u64 = 10_000,
        /// Longest time that a write or `sync` may take. Then the connection is closed, because the
        /// outcome is unknown.
        pub propose_timeout_ms: u64 = 10_000,
        /// Address `host:port` of this node in `/zookeeper/config`, for clients. Empty or `none`
        /// stands for no address.
        pub addr: String = String::new(),
        /// Digest of the super user, who may do everything: `user:base64(sha1(user:password))`.
        /// Empty for no super user.
        pub super_digest: String = String::new(),
        /// Four-letter words that are answered, separated by commas; `*` allows all.
        pub words: String = "srvr".to_owned(),
    }
}
