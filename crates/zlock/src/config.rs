//! Settings of a node at start: one table of keys, read from flags, `ZLOCK_*` variables and a TOML
//! file.
//!
//! Each key is declared once, in [`KEYS`]. Its flag, its environment variable, its table and name
//! in the file, its help and its row in docs/operating.md follow from this declaration. Its default
//! is that of the crate that uses the value.

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

replica::settings! {
    /// Settings of a node. The functions in [`KEYS`] read and write its fields.
    #[derive(Clone, Debug)]
    pub struct Settings {
        /// Settings of the replica: Raft, state machine and storage.
        pub replica: replica::Config = replica_defaults(),
        /// Settings of the HTTP server.
        pub rest: rest::RestConfig = rest::RestConfig::default(),
        /// Settings of the ZooKeeper server.
        pub wire: wire::WireConfig = wire::WireConfig::default(),
        /// Address of the ZooKeeper server's listener without TLS; `None` for no such listener.
        pub zookeeper_listen: Option<SocketAddr> = None,
        /// Address of the ZooKeeper server's listener with TLS; `None` for no such listener.
        pub zookeeper_tls_listen: Option<SocketAddr> = None,
        /// Address of the HTTP server's listener with TLS; `None` for no such listener.
        pub http_tls_listen: Option<SocketAddr> = None,
        /// Certificate, key and limits of TLS at both servers.
        pub tls: accept::AcceptorConfig = accept::AcceptorConfig {
            certificate: PathBuf::new(),
            key: PathBuf::new(),
            clients: None,
            client_crl: None,
            handshakes_max: 256,
            exempt: accept::Networks::default(),
            handshake_timeout_ms: 10_000,
        },
        /// TLS with peers.
        pub peer_tls: PeerTlsSettings = PeerTlsSettings::default(),
        /// PEM file with lists of revoked certificates of clients; an empty path if there is none.
        pub tls_client_crl: PathBuf = PathBuf::new(),
        /// PEM file with the certificate authorities for clients' certificates; empty when clients
        /// are not asked for a certificate.
        pub tls_client_ca: PathBuf = PathBuf::new(),
        /// Whether clients must have a certificate: `optional` or `required`.
        pub tls_clients: String = "optional".to_owned(),
        /// Addresses of balancers, whose connections begin with a header of the PROXY protocol.
        pub proxy_protocol_from: accept::Networks = accept::Networks::default(),
        /// Path of the admin socket; empty for no such socket.
        pub admin_socket: PathBuf = PathBuf::new(),
        /// Address of the HTTP server's listener without TLS. When not given, `check` derives it
        /// from this node's `http_addr`.
        pub http_listen: Option<SocketAddr> = None,
        /// Address of the listener for peers. When not given, `check` derives it from this node's
        /// `peer_addr`.
        pub peer_listen: Option<SocketAddr> = None,
        /// Filter of the log, in the syntax of tracing-subscriber's `EnvFilter`.
        pub log: String = "info,openraft=error,raft_log=warn,chunked_wal=warn,sled=warn".to_owned(),
        /// Format of the log lines.
        pub log_format: LogFormat = LogFormat::Text,
        /// File of the log; stderr when empty.
        pub log_file: PathBuf = PathBuf::new(),
        /// Longest time of a clean stop in milliseconds, after which the node ends anyway. It
        /// begins after `drain_delay_ms` and `drain_time_ms` of the HTTP server.
        pub stop_timeout_ms: u64 = 10_000,
        /// Number of threads of the async runtime; 0 for one for every two cores.
        pub threads: usize = 0,
    }
}

replica::settings! {
    /// Settings of TLS with peers. A path that is not given is empty.
    #[derive(Clone, Debug)]
    pub struct PeerTlsSettings {
        /// Value of `peers.tls`: `off`, `permit` or `require`.
        pub mode: String = "off".to_owned(),
        /// True if the node opens its connections with TLS even with the mode `permit`.
        pub dials: bool = false,
        /// PEM file with the node's certificate.
        pub certificate: PathBuf = PathBuf::new(),
        /// PEM file with the certificate's private key.
        pub key: PathBuf = PathBuf::new(),
        /// PEM file with the authorities that sign peers' certificates.
        pub ca: PathBuf = PathBuf::new(),
        /// PEM file with lists of revoked certificates of peers.
        pub crl: PathBuf = PathBuf::new(),
        /// Value of `peers.tls_names`: `node-id` or `any`.
        pub names: String = "node-id".to_owned(),
    }
}

impl Settings {
    /// Reads the PEM files for TLS with peers. Returns `None` if peers.tls is `off`.
    pub(crate) fn load_peer_tls(&self) -> Result<Option<replica::PeerTls>, accept::Error> {
        let PeerTlsSettings { mode, dials, certificate, key, ca, crl, names } = self.peer_tls.clone();
        if mode == "off" {
            return Ok(None);
        }
        let checks_names = names == "node-id";
        let own_uri = checks_names.then(|| replica::node_uri(&self.replica.cluster_id, self.replica.node_id));
        let crl = Some(crl).filter(|crl| !crl.as_os_str().is_empty());
        let tls = accept::MutualTls::load(accept::MutualFiles { certificate, key, ca, crl, own_uri })?;
        let is_required = mode == "require";
        Ok(Some(replica::PeerTls { tls, dials: dials || is_required, is_required, checks_names }))
    }

    /// The longest time from the stop signal to the end of the program.
    pub fn stop_time_max(&self) -> Duration {
        let drains = self.rest.drain_delay_ms.saturating_add(self.rest.drain_time_ms);
        Duration::from_millis(drains.saturating_add(self.stop_timeout_ms))
    }
}

znode::named! {
    /// Format of a log line.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum LogFormat {
        /// Plain text: time, level, part of the program, message, fields.
        Text = "text",
        /// One JSON object.
        Json = "json",
    }
}

/// Returns the defaults of the replica's settings. The id 0 stands for a missing id. There is no
/// default, as two nodes with the same id would act as one node. `check` fills in the two limits.
fn replica_defaults() -> replica::Config {
    let mut replica = replica::Config { node_id: 0, ..replica::Config::default() };
    replica.limits.sessions_per_address_max = 0;
    replica.limits.subtree_bytes_max = 0;
    replica
}

/// Reason why a configuration is refused, with a message for the operator.
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
    /// The file is not valid TOML.
    #[error("{file}: {message}")]
    Syntax {
        /// Path of the file.
        file: String,
        /// The syntax error and its position.
        message: String,
    },
    /// A key or a table that does not exist at this place of the file.
    #[error("{file}: unknown {what}{}", hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
    Unknown {
        /// Path of the file.
        file: String,
        /// The unknown key or table.
        what: String,
        /// Suggestion: the table with a key of this name, or the most similar known name. `None`
        /// without a similar name.
        hint: Option<String>,
    },
    /// A value that is not valid for its key.
    #[error("{key} (from {origin}): {message}")]
    Value {
        /// Path of the key.
        key: String,
        /// Source of the value: a flag, an environment variable or the file.
        origin: String,
        /// Why the value is not valid.
        message: String,
    },
    /// Values that contradict each other, or that are missing.
    #[error("{0}")]
    Contradiction(String),
}

#[cfg(test)]
mod tests;
