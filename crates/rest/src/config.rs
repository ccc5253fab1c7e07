//! Every bound of the door.

use accept::Networks;

/// Settings of the door. Durations are in milliseconds. What each bound answers is in
/// docs/http-api.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestConfig {
    /// Who proves to be this one may do everything: a digest, `user:base64(sha1(user:password))`;
    /// nobody when empty.
    pub super_digest: String,
    /// Subjects of certificates, as `x509` ACLs write them, whose clients may do what is for
    /// operators.
    pub operators: Vec<String>,
    /// Names and addresses by which clients may call this node, as [`crate::normal_host`] gives
    /// them. A listener on loopback takes these and the names of its machine. Others take any name
    /// when there are none here, and any address. Beyond: 421.
    pub http_hosts: Vec<String>,
    /// The host of the address that this node gives to clients, in the same form; a listener that
    /// is not on loopback takes it.
    pub own_host: String,
    /// Origins whose pages may ask, besides the node's own, as [`crate::normal_origin`] gives them.
    /// Beyond: 403.
    pub http_origins: Vec<String>,
    /// Connections at once. Beyond: a silent one gives way, else 503 with `Retry-After`, and the
    /// connection is closed.
    pub connections_max: usize,
    /// Those from one address; 0 is a quarter of all. Beyond: the same.
    pub connections_per_address_max: usize,
    /// New sessions a second from one address, and ten times as many at once; 0 is no bound.
    /// Beyond: 429.
    pub session_rate_max: u32,
    /// Addresses that stand for many clients: none of the bounds for one address are theirs.
    pub exempt: Networks,
    /// Long-polls and waiting acquires at once. Beyond: 429 with `Retry-After`.
    pub waits_max: usize,
    /// The longest `wait`. Beyond: 400.
    pub wait_max_ms: u64,
    /// A request's body. Beyond: 413.
    pub body_bytes_max: usize,
    /// Bodies that have come, as far as they have, and long answers being taken, together; the
    /// latter up to half of it. Beyond: the body that was begun first and is not whole is given up;
    /// 503 with `Retry-After`.
    pub bodies_bytes_max: usize,
    /// From the first byte of a body to its last. Beyond: 408, and the connection is closed.
    pub body_read_timeout_ms: u64,
    /// A request's URI. Beyond: 414.
    pub uri_bytes_max: usize,
    /// Names and values of a request's headers together. Beyond: 431.
    pub header_bytes_max: usize,
    /// The number of headers. Beyond: 431.
    pub headers_max: usize,
    /// For the whole head of a request, from its first byte; and from a connection's beginning to
    /// its first request. Beyond: the connection is closed.
    pub header_read_timeout_ms: u64,
    /// From an answer to the next request of the connection. Beyond: it is closed; where the door
    /// is full, sooner.
    pub idle_timeout_ms: u64,
    /// How long a client may take nothing of its answer. Beyond: the connection is closed.
    pub write_timeout_ms: u64,
    /// How long a write may take. Beyond: 504, outcome unknown.
    pub propose_timeout_ms: u64,
    /// How long a read may take. Beyond: 503.
    pub read_timeout_ms: u64,
    /// Children, sessions, waiters or locks in one answer, also the default of `limit`. Beyond:
    /// pages.
    pub page_max: usize,
    /// How long the door tries to take a waiter out of the queue whose client has gone.
    pub withdraw_timeout_ms: u64,
    /// At shutdown, before `drain_time_ms`: how long the node is not ready, and all else goes on.
    pub drain_delay_ms: u64,
    /// At shutdown: how long the door serves on, is not ready, and ends each connection with its
    /// next answer.
    pub drain_time_ms: u64,
    /// How long open requests may take to end at shutdown.
    pub shutdown_timeout_ms: u64,
    /// The timeout of a session whose client named none.
    pub session_timeout_default_ms: u32,
}

impl Default for RestConfig {
    fn default() -> Self {
        RestConfig {
            super_digest: String::new(),
            operators: Vec::new(),
            http_hosts: Vec::new(),
            own_host: String::new(),
            http_origins: Vec::new(),
            connections_max: 16_384,
            connections_per_address_max: 0,
            session_rate_max: 500,
            exempt: Networks::default(),
            waits_max: 16_384,
            wait_max_ms: 600_000,
            body_bytes_max: 4 << 20,
            bodies_bytes_max: 256 << 20,
            body_read_timeout_ms: 15_000,
            uri_bytes_max: 8 << 10,
            header_bytes_max: 16 << 10,
            headers_max: 64,
            header_read_timeout_ms: 30_000,
            // Balancers keep connections for up to 600 s (docs/operating.md).
            idle_timeout_ms: 620_000,
            write_timeout_ms: 30_000,
            propose_timeout_ms: 5_000,
            read_timeout_ms: 5_000,
            page_max: 1_000,
            withdraw_timeout_ms: 60_000,
            drain_delay_ms: 0,
            drain_time_ms: 0,
            shutdown_timeout_ms: 5_000,
            session_timeout_default_ms: 30_000,
        }
    }
}
