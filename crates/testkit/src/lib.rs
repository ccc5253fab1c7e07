//! Tools for tests that run nodes as processes: for `tests`, `jepsen` and `bench`, and for the
//! tests of other crates.
//!
//! ```text
//!  process.rs  a server's process: start, signal, pause, kill, log
//!  ports.rs    ports that stay reserved while nodes are down
//!  links.rs    TCP proxies that cut, delay and break connections
//!  http.rs     a client for HTTP                  zookeeper/  a client for ZooKeeper's protocol
//!  until.rs    waiting for a condition            lines.rs    log lines of the test's own process
//!  authority.rs  certificates for tests of TLS  tls.rs  a client for TLS
//! ```
//!
//! Both clients send each request once and report the result. They never retry, as a retry would
//! hide the effect under test.

mod authority;
pub mod http;
mod lines;
mod links;
mod ports;
mod process;
mod tls;
mod until;
pub mod zookeeper;

pub use authority::{Authority, Files};
pub use lines::{Lines, print_log};
pub use links::{LinkRule, Links, Proxy, Rule, caller};
pub use ports::Ports;
pub use process::{Process, last_lines, reset_ignored_signals, serve, signal};
pub use tls::TlsClient;
pub use until::{Pace, until};
