//! Checks for values that are valid alone but contradict each other.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use accept::Clients;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use replica::Member;
use znode::lock::TICKET_NAME_BYTES_MAX;

use super::value::members::port;
use super::{ConfigError, PeerTlsSettings, Settings};
use crate::DATA_BYTES_MAX;

/// Upper bound for the settings of the number of operations in one log entry. The operations and
/// their stored answer must stay far below the largest size of a log entry and of a snapshot record
/// (`znode::BYTES_MAX`): a larger record could be written but not read. [`DATA_BYTES_MAX`] has the
/// same reason.
const BATCH_MAX: usize = 4_096;
/// Largest setting of the number of threads. More threads only cost time, as they wake each other.
const THREADS_MAX: usize = 1_024;
/// Bounds for the setting of an HTTP connection's longest idle time, in milliseconds. A shorter
/// time would close connections between two requests of a client; clients need no longer time.
const IDLE_MS: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;
/// Length of a SHA-1 hash.
const SHA_1_BYTES: usize = 20;
/// Largest setting of `node.drain_delay` and of `node.drain_time`, in milliseconds.
const DRAIN_MS_MAX: u64 = 300_000;

impl Settings {
    /// Refuses contradictions, and fills in values that depend on other keys, such as the addresses
    /// of listeners.
    pub(super) fn check(&mut self) -> Result<(), ConfigError> {
        let own = self.own_member()?.clone();
        self.http_listen = Some(self.http_listen.unwrap_or_else(|| listen_like(&own.http_addr)));
        let peer_listen = self.peer_listen.unwrap_or_else(|| listen_like(&own.peer_addr));
        self.peer_listen = Some(peer_listen);
        self.replica.peer_listen = peer_listen;
        self.wire.addr = self.zookeeper_addr(&own)?;
        // Both servers for clients have these settings. The keys set those of the HTTP server,
        // which are copied here.
        self.wire.super_digest.clone_from(&self.rest.super_digest);
        self.wire.exempt.clone_from(&self.rest.exempt);
        self.tls.exempt.clone_from(&self.rest.exempt);
        self.wire.session_rate_max = self.rest.session_rate_max;
        let wanted =
            if self.tls_clients == "required" { Clients::MustHaveCertificates } else { Clients::MayHaveCertificates };
        let asked = !self.tls_client_ca.as_os_str().is_empty();
        self.tls.clients = asked.then(|| (self.tls_client_ca.clone(), wanted));
        self.tls.client_crl = Some(self.tls_client_crl.clone()).filter(|crl| !crl.as_os_str().is_empty());
        let limits = &mut self.replica.limits;
        if limits.sessions_per_address_max == 0 {
            limits.sessions_per_address_max = (limits.sessions_max / 4).max(1);
        }
        if limits.subtree_bytes_max == 0 {
            limits.subtree_bytes_max = limits.plain_bytes_max() / 4;
        }
        let own_host = own.http_addr.rsplit_once(':').and_then(|(host, _)| rest::normal_host(host));
        self.rest.own_host = own_host.unwrap_or_default();
        let found = [self.contradictions(), self.packets(), self.excesses(), self.half_tls(), self.half_peer_tls()];
        for (wrong, message) in found.into_iter().flatten() {
            if wrong {
                return Err(ConfigError::Contradiction(message));
            }
        }
        Ok(())
    }

    /// Returns the address `host:port` that ZooKeeper clients reach this node at, as
    /// `/zookeeper/config` shows it. `none` or an empty text means no address.
    fn zookeeper_addr(&self, own: &Member) -> Result<String, ConfigError> {
        // The address without TLS comes first, as clients without TLS cannot use the one with TLS.
        // Clients with TLS use this address only to find the hosts of members.
        let (given, listen) = (&*self.wire.addr, self.zookeeper_listen.or(self.zookeeper_tls_listen));
        Ok(match (given, listen) {
            ("none", _) => given.to_owned(),
            ("", None) => String::new(),
            ("", Some(listen)) if listen.ip().is_unspecified() => {
                let host = own.http_addr.rsplit_once(':').map_or("", |(host, _)| host);
                format!("{host}:{}", listen.port())
            }
            ("", Some(listen)) => listen.to_string(),
            (given, _) if port(given).is_some() => given.to_owned(),
            (given, _) => {
                let message = format!("zookeeper.advertised_addr ({given}) must be host:port, or none");
                return Err(ConfigError::Contradiction(message));
            }
        })
    }

    fn own_member(&self) -> Result<&Member, ConfigError> {
        let members = &self.replica.members;
        let refused = |message: String| Err(ConfigError::Contradiction(message));
        if self.replica.node_id == 0 {
            return refused("node.id is missing or 0: give this node's id, 1 or more".to_owned());
        }
        if members.is_empty() {
            return refused("node.members is missing: list every node's id, peer_addr and http_addr".to_owned());
        }
        let mut ids = BTreeSet::new();
        let mut addrs = BTreeSet::new();
        for member in members {
            if member.id == 0 || !ids.insert(member.id) {
                return refused(format!("node.members: the id {} is 0 or there twice", member.id));
            }
            for addr in [&member.peer_addr, &member.http_addr] {
                if !addrs.insert(addr) {
                    return refused(format!("node.members: the address {addr} is there twice"));
                }
            }
        }
        let own = members.iter().find(|member| member.id == self.replica.node_id);
        let listed: Vec<String> = ids.iter().map(u64::to_string).collect();
        let wrong = || format!("node.id {} is not among the members {}", self.replica.node_id, listed.join(", "));
        own.map_or_else(|| refused(wrong()), Ok)
    }

    fn contradictions(&self) -> Vec<(bool, String)> {
        let (replica, limits) = (&self.replica, &self.replica.limits);
        let (least, most) = (replica.election_timeout_min_ms, replica.election_timeout_max_ms);
        vec![
            (
                least >= most,
                format!("raft.election_timeout_min ({least}ms) must be below raft.election_timeout_max ({most}ms)"),
            ),
            (
                replica.heartbeat_ms == 0 || replica.heartbeat_ms * 8 > least,
                format!(
                    "raft.heartbeat_interval ({}ms) must be above 0 and at most an eighth of raft.election_timeout_min ({least}ms), or a leader that lives is not heard in time",
                    replica.heartbeat_ms
                ),
            ),
            (
                limits.session_timeout_min_ms > limits.session_timeout_max_ms,
                format!(
                    "limits.session_timeout_min ({}ms) must not be above limits.session_timeout_max ({}ms)",
                    limits.session_timeout_min_ms, limits.session_timeout_max_ms
                ),
            ),
            (
                u64::from(limits.session_timeout_min_ms) < most * 2,
                format!(
                    "limits.session_timeout_min ({}ms) must be at least twice raft.election_timeout_max ({most}ms), or sessions end before a new leader can hear them",
                    limits.session_timeout_min_ms
                ),
            ),
            (
                self.rest.body_bytes_max < limits.data_bytes_max as usize,
                format!(
                    "http.body_bytes_max ({}) must not be below limits.data_bytes_max ({})",
                    self.rest.body_bytes_max, limits.data_bytes_max
                ),
            ),
            (
                !(TICKET_NAME_BYTES_MAX as u32..limits.path_bytes_max).contains(&limits.name_bytes_max),
                format!(
                    "limits.name_bytes_max ({}) must be below limits.path_bytes_max ({}) and at least {TICKET_NAME_BYTES_MAX}, as long as tickets' names",
                    limits.name_bytes_max, limits.path_bytes_max
                ),
            ),
            (
                limits.waiters_max > limits.children_max,
                format!(
                    "limits.waiters_max ({}) must not be above limits.children_max ({}): waiters are children",
                    limits.waiters_max, limits.children_max
                ),
            ),
            (
                self.zookeeper_listen.is_some_and(|addr| [self.http_listen, self.peer_listen].contains(&Some(addr))),
                "zookeeper.listen is the same address as http.listen or peers.listen".to_owned(),
            ),
            (self.http_listen == self.peer_listen, "http.listen and peers.listen are the same address".to_owned()),
        ]
    }

    /// Checks that the limits of the ZooKeeper server allow packets of the largest permitted size.
    /// Returns a pair for each possible fault: true if the settings have it, and its message.
    fn packets(&self) -> Vec<(bool, String)> {
        let (wire, limits) = (&self.wire, &self.replica.limits);
        vec![
            (
                self.zookeeper_listen.or(self.zookeeper_tls_listen).is_some()
                    && wire.packet_bytes_max <= limits.data_bytes_max as usize,
                format!(
                    "zookeeper.packet_bytes_max ({}) must be above limits.data_bytes_max ({}), or the longest data cannot be read",
                    wire.packet_bytes_max, limits.data_bytes_max
                ),
            ),
            (
                wire.incomplete_packets_bytes_max.min(wire.requests_bytes_max)
                    < wire.packet_bytes_max.saturating_add(4),
                format!(
                    "zookeeper.incomplete_packets_bytes_max ({}) and zookeeper.requests_bytes_max ({}) must be above zookeeper.packet_bytes_max ({}), or the longest packet never comes",
                    wire.incomplete_packets_bytes_max, wire.requests_bytes_max, wire.packet_bytes_max
                ),
            ),
            (
                wire.packet_bytes_max > wire.answers_bytes_max / 2,
                format!(
                    "zookeeper.packet_bytes_max ({}) must be at most half of zookeeper.answers_bytes_max ({}), which is the longest answer",
                    wire.packet_bytes_max, wire.answers_bytes_max
                ),
            ),
        ]
    }

    /// Checks for incomplete or contradictory TLS settings. Returns a pair for each possible fault:
    /// true if the settings have it, and its message.
    fn half_tls(&self) -> Vec<(bool, String)> {
        let (tls, clients, digest) = (&self.tls, &*self.tls_clients, &self.rest.super_digest);
        let listens = self.http_tls_listen.is_some() || self.zookeeper_tls_listen.is_some();
        let given = |file: &std::path::Path| !file.as_os_str().is_empty();
        let own = [&tls.certificate, &tls.key].map(|file| given(file));
        let listeners = [self.http_listen, self.peer_listen, self.zookeeper_listen];
        let tls_listeners = [self.http_tls_listen, self.zookeeper_tls_listen];
        let secure = tls_listeners.iter().flatten();
        let twice = secure.clone().any(|addr| listeners.contains(&Some(*addr)));
        vec![
            (listens && own != [true; 2], "TLS needs tls.certificate and tls.key".to_owned()),
            (
                !listens && (own != [false; 2] || given(&self.tls_client_ca)),
                "tls.certificate, tls.key and tls.client_ca are for http.tls_listen and zookeeper.tls_listen: give one of them".to_owned(),
            ),
            (
                !["optional", "required"].contains(&clients),
                format!("tls.client_certificates ({clients}) must be optional or required"),
            ),
            (
                !self.rest.operators.is_empty() && !given(&self.tls_client_ca),
                "admin.operators needs tls.client_ca: without it no client is asked for a certificate".to_owned(),
            ),
            (clients == "required" && !given(&self.tls_client_ca), "tls.client_certificates = required needs tls.client_ca".to_owned()),
            (given(&self.tls_client_crl) && !given(&self.tls_client_ca), "tls.client_crl needs tls.client_ca".to_owned()),
            (
                twice || tls_listeners[0].is_some() && tls_listeners[0] == tls_listeners[1],
                "an address cannot have TLS and not: http.tls_listen and zookeeper.tls_listen need addresses of their own".to_owned(),
            ),
            (
                !digest.is_empty() && !is_digest(digest),
                "admin.super_digest must be user:base64(sha1(user:password)), as `zlock digest USER` prints it".to_owned(),
            ),
        ]
    }

    /// Checks for incomplete or contradictory settings of TLS with peers. Returns a pair for each
    /// possible fault: true if the settings have it, and its message.
    fn half_peer_tls(&self) -> Vec<(bool, String)> {
        let PeerTlsSettings { mode, dials, certificate, key, ca, crl, names } = &self.peer_tls;
        let is_off = mode == "off";
        let given = [certificate, key, ca, crl].map(|file| !file.as_os_str().is_empty());
        let cluster_id = &self.replica.cluster_id;
        let fits_a_uri = cluster_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
        vec![
            (
                !["off", "permit", "require"].contains(&&**mode),
                format!("peers.tls ({mode}) must be off, permit or require"),
            ),
            (!["node-id", "any"].contains(&&**names), format!("peers.tls_names ({names}) must be node-id or any")),
            (
                !is_off && given[..3] != [true; 3],
                format!("peers.tls = {mode} needs peers.tls_certificate, peers.tls_key and peers.tls_ca"),
            ),
            (
                is_off && (*dials || given != [false; 4]),
                "peers.tls is off, and other keys of TLS between members are given: set peers.tls to permit or require"
                    .to_owned(),
            ),
            (
                !is_off && names == "node-id" && !fits_a_uri,
                format!(
                    "node.cluster_id ({cluster_id}) is part of the URI in members' certificates, and may have only letters, digits and -._~ then"
                ),
            ),
        ]
    }

    /// Checks limits against their fixed bounds. Returns a pair for each possible fault: true if
    /// the settings have it, and its message.
    fn excesses(&self) -> Vec<(bool, String)> {
        let (replica, limits) = (&self.replica, &self.replica.limits);
        vec![
            (
                !(1..=BATCH_MAX).contains(&replica.reap_batch_max),
                format!(
                    "raft.reap_batch_max ({}) must be at most {BATCH_MAX}, and above 0, or sessions would never expire",
                    replica.reap_batch_max
                ),
            ),
            (
                limits.data_bytes_max > DATA_BYTES_MAX,
                format!("limits.data_bytes_max ({}) must be at most {DATA_BYTES_MAX} bytes", limits.data_bytes_max),
            ),
            (
                !IDLE_MS.contains(&self.rest.idle_timeout_ms),
                format!("http.idle_timeout ({}ms) must be between 1s and 1h", self.rest.idle_timeout_ms),
            ),
            (
                self.rest.drain_time_ms > DRAIN_MS_MAX,
                format!("node.drain_time ({}ms) must be at most 5m", self.rest.drain_time_ms),
            ),
            (
                self.rest.drain_delay_ms > DRAIN_MS_MAX,
                format!("node.drain_delay ({}ms) must be at most 5m", self.rest.drain_delay_ms),
            ),
            (self.threads > THREADS_MAX, format!("node.threads ({}) must be at most {THREADS_MAX}", self.threads)),
            (
                limits.ops_max as usize > BATCH_MAX,
                format!("limits.ops_max ({}) must be at most {BATCH_MAX}", limits.ops_max),
            ),
            (
                u64::from(limits.entry_cost_max) < limits.creates_cost_max(),
                format!(
                    "limits.entry_cost_max ({}) must be at least {}, or a transaction of limits.ops_max ({}) creates as deep as limits.path_depth_max ({}) is always refused",
                    limits.entry_cost_max,
                    limits.creates_cost_max(),
                    limits.ops_max,
                    limits.path_depth_max
                ),
            ),
            (
                self.rest.bodies_bytes_max / 2 < self.rest.body_bytes_max,
                format!(
                    "http.bodies_bytes_max ({}) must be at least twice http.body_bytes_max ({}), or one body that does not end keeps the others out",
                    self.rest.bodies_bytes_max, self.rest.body_bytes_max
                ),
            ),
        ]
    }
}

/// Tells whether `text` has the form `user:base64(sha1(user:password))`.
fn is_digest(text: &str) -> bool {
    let hash = |text| STANDARD.decode(text).is_ok_and(|hash| hash.len() == SHA_1_BYTES);
    text.split_once(':').is_some_and(|(user, text)| !user.is_empty() && hash(text))
}

/// Returns the address to listen on for the advertised address `addr`: `addr` itself if it has an
/// IP address, or its port on every interface if it has a host name.
fn listen_like(addr: &str) -> SocketAddr {
    addr.parse().unwrap_or_else(|_| {
        let port = port(addr).expect("members have ports, or their parser refused them");
        SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)
    })
}
