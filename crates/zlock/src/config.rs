//! Settings of a node at start: one table of keys, read from flags, `ZLOCK_*` variables and a TOML
//! file.
//!
//! [`KEYS`] is the only place where a key is declared. Its flag, its variable, its table and line
//! in the file, its default (that of the crate that uses the value), its help and its row in
//! docs/operating.md all come from there.

mod check;
mod file;
mod keys;
mod load;
pub mod value;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use keys::{KEYS, Key, effective};
pub use load::{Given, flags, from_matches, given, load, unknown_variables};

/// Settings of a node: the fields that [`KEYS`] read and write.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Settings of the replica, which is the node's part in the ensemble.
    pub replica: replica::Config,
    /// Settings of the HTTP door.
    pub rest: rest::RestConfig,
    /// Settings of the ZooKeeper door.
    pub wire: wire::WireConfig,
    /// Address of the ZooKeeper door's listener without TLS; `None` for no such listener.
    pub zookeeper_listen: Option<SocketAddr>,
    /// Address of the ZooKeeper door's listener with TLS.
    pub zookeeper_tls_listen: Option<SocketAddr>,
    /// Address of the HTTP door's listener with TLS.
    pub http_tls_listen: Option<SocketAddr>,
    /// Certificate, key and bounds of TLS at both doors.
    pub tls: accept::AcceptorConfig,
    /// File of the authorities that sign clients' certificates; empty when no client is asked for
    /// one.
    pub tls_client_ca: PathBuf,
    /// `optional` or `required`.
    pub tls_clients: String,
    /// Balancers whose connections begin with a header of the PROXY protocol.
    pub proxy_protocol_from: accept::Networks,
    /// Path of the admin socket; empty for no such socket.
    pub admin_socket: PathBuf,
    /// Address of the HTTP door's listener; the port of this node's `http_addr` when not given.
    pub http_listen: Option<SocketAddr>,
    /// Address of the listener for peers; the port of this node's `peer_addr` when not given.
    pub peer_listen: Option<SocketAddr>,
    /// Filter of the log, as tracing-subscriber's `EnvFilter` reads it.
    pub log: String,
    /// Form of each line of the log.
    pub log_format: LogFormat,
    /// File of the log; stderr when empty.
    pub log_file: PathBuf,
    /// Longest time of a clean stop before it is cut short. It begins after the HTTP door's
    /// `drain_delay_ms` and `drain_time_ms`.
    pub stop_timeout_ms: u64,
    /// Threads that serve clients and peers; zero for as many as suit the machine.
    pub threads: usize,
}

/// Form of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: time, level, part, message, fields.
    Text,
    /// One JSON object.
    Json,
}

impl Settings {
    /// The longest time from the signal to stop to the end of the program.
    pub fn stop_time_max(&self) -> Duration {
        let drains = self.rest.drain_delay_ms.saturating_add(self.rest.drain_time_ms);
        Duration::from_millis(drains.saturating_add(self.stop_timeout_ms))
    }
}

impl Default for Settings {
    fn default() -> Self {
        // No default id: two nodes without an id of their own would act as one node.
        let mut replica = replica::Config { node_id: 0, ..replica::Config::default() };
        replica.limits.sessions_per_address_max = 0;
        replica.limits.subtree_bytes_max = 0;
        Settings {
            replica,
            rest: rest::RestConfig::default(),
            wire: wire::WireConfig::default(),
            zookeeper_listen: None,
            zookeeper_tls_listen: None,
            http_tls_listen: None,
            tls: accept::AcceptorConfig {
                certificate: PathBuf::new(),
                key: PathBuf::new(),
                clients: None,
                handshakes_max: 256,
                exempt: accept::Networks::default(),
                handshake_timeout_ms: 10_000,
            },
            tls_client_ca: PathBuf::new(),
            tls_clients: "optional".to_owned(),
            proxy_protocol_from: accept::Networks::default(),
            admin_socket: PathBuf::new(),
            http_listen: None,
            peer_listen: None,
            log: "info,openraft=error,raft_log=warn,chunked_wal=warn,sled=warn".to_owned(),
            log_format: LogFormat::Text,
            log_file: PathBuf::new(),
            stop_timeout_ms: 10_000,
            threads: 0,
        }
    }
}

/// Reason for which a configuration is refused, in words for the operator.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Path of the file.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is no TOML.
    #[error("{file}: {message}")]
    Syntax {
        /// Path of the file.
        file: String,
        /// The fault and its place.
        message: String,
    },
    /// A key or a table that does not exist at this place of the file.
    #[error("{file}: unknown {what}{}", hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
    Unknown {
        /// Path of the file.
        file: String,
        /// The unknown key or table.
        what: String,
        /// The table that has a key of this name, or the known name that is most similar.
        hint: Option<String>,
    },
    /// A value that does not fit its key.
    #[error("{key} (from {origin}): {message}")]
    Value {
        /// Path of the key.
        key: String,
        /// The flag, variable or file that has the value.
        origin: String,
        /// The fault of the value.
        message: String,
    },
    /// Values that do not fit together.
    #[error("{0}")]
    Contradiction(String),
}

#[cfg(test)]
mod tests;
