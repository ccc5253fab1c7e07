//! Settings and bounds of the HTTP server.

use accept::{Certificates, Networks};

replica::settings! {
    /// Settings of the HTTP server. Durations are in milliseconds. docs/http-api.md lists the
    /// answer that a client gets at each bound.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RestConfig {
        /// Digest of the super user, `user:base64(sha1(user:password))`: a client that proves to be
        /// this user may do everything. Empty: there is no super user.
        pub super_digest: String = String::new(),
        /// Certificate subjects of clients that may use the operators' routes, in the form of
        /// `x509` ACLs.
        pub operators: Vec<String> = Vec::new(),
        /// Names and addresses by which clients may call this node, in the form that
        /// [`crate::normal_host`] returns. A listener on loopback accepts these and the names of
        /// its machine. Other listeners accept any address, and any name when this list is empty. A
        /// request with another name gets 421.
        pub http_hosts: Vec<String> = Vec::new(),
        /// Host of the address that this node gives to clients, in the form that
        /// [`crate::normal_host`] returns. Listeners off loopback always accept this host.
        pub own_host: String = String::new(),
        /// Origins whose web pages may send requests, in the form that [`crate::normal_origin`]
        /// returns. The node's own origin needs no entry. A request of another origin gets 403.
        pub http_origins: Vec<String> = Vec::new(),
        /// Largest number of connections. Beyond: a connection that sent no request or is idle is
        /// closed for the new connection; without one, the new connection gets 503 with
        /// `Retry-After` and is closed.
        pub connections_max: usize = 16_384,
        /// Largest number of connections from one address; 0 means no bound while the server has
        /// fewer than `connections_max`, and then a quarter of it. Beyond: as for
        /// `connections_max`.
        pub connections_per_address_max: usize = 0,
        /// Largest number of new sessions a second from one address; a burst may have ten times as
        /// many. 0 means no bound. Beyond: 429.
        pub session_rate_max: u32 = 500,
        /// Addresses that stand for many clients, such as proxies. They are exempt from the bounds
        /// for one address.
        pub exempt: Networks = Networks::default(),
        /// Certificates of all ports of the node, which `/metrics`, `/readyz` and `/v1/cluster`
        /// show.
        pub certificates: Certificates = Certificates::default(),
        /// Bounds of the configuration that `/metrics` shows as `zlock_limit`, by the key's name.
        pub limits_shown: Vec<(&'static str, u64)> = Vec::new(),
        /// Largest number of long-polls and waiting acquires. Beyond: 429 with `Retry-After`.
        pub waits_max: usize = 16_384,
        /// Longest `wait` of a request. Beyond: 400.
        pub wait_max_ms: u64 = 600_000,
        /// Largest size of a request's body. Beyond: 413.
        pub body_bytes_max: usize = 4 << 20,
        /// Memory for request bodies, counted by the bytes received so far, and for long answers
        /// that clients have not received yet. Answers get up to half of it. Beyond: the request
        /// with the oldest incomplete body gets 503 with `Retry-After`; without an incomplete body,
        /// the new request gets it.
        pub bodies_bytes_max: usize = 256 << 20,
        /// Time from the first byte of a body to its last. Beyond: 408, and the connection is
        /// closed.
        pub body_read_timeout_ms: u64 = 15_000,
        /// Largest length of a request's URI. Beyond: 414.
        pub uri_bytes_max: usize = 8 << 10,
        /// Largest length of a request's header names and values together. Beyond: 431.
        pub header_bytes_max: usize = 16 << 10,
        /// Largest number of headers of a request. Beyond: 431.
        pub headers_max: usize = 64,
        /// Time from the first byte of a request's head to its last, and from the start of a
        /// connection to its first request. Beyond: the connection is closed.
        pub header_read_timeout_ms: u64 = 30_000,
        /// Time from an answer to the next request of the connection; shorter when
        /// `connections_max` is reached. Beyond: the connection is closed.
        // Balancers keep connections for up to 600 s (docs/operating.md).
        pub idle_timeout_ms: u64 = 620_000,
        /// Longest time for which a client may accept no byte of its answer. Beyond: the connection
        /// is closed.
        pub write_timeout_ms: u64 = 30_000,
        /// Longest time that a write may take. Beyond: 504, and the client does not know whether
        /// the write was done.
        pub propose_timeout_ms: u64 = 5_000,
        /// Longest time that a read may take. Beyond: 503.
        pub read_timeout_ms: u64 = 5_000,
        /// Largest number of children, sessions, waiters or locks in one answer, and the default of
        /// `page_size`. Longer lists are answered in pages.
        pub page_max: usize = 1_000,
        /// Time for which the server tries to withdraw a ticket from the lock's queue after its
        /// client has hung up.
        pub withdraw_timeout_ms: u64 = 60_000,
        /// Time at shutdown, before `drain_time_ms`, during which the node reports itself as not
        /// ready and still serves everything.
        pub drain_delay_ms: u64 = 0,
        /// Time at shutdown during which the server still serves, reports itself as not ready, and
        /// closes each connection after its next answer.
        pub drain_time_ms: u64 = 0,
        /// Time that requests in progress may take to end at shutdown.
        pub shutdown_timeout_ms: u64 = 5_000,
        /// Timeout of a session whose opening request names no timeout.
        pub session_timeout_default_ms: u32 = 30_000,
    }
}
