//! Tools for tests that run nodes as processes: for `tests`, `jepsen` and `bench`, and for the
//! tests of other crates.
//!
//! ```text
//!  process.rs  a server's process: start, signal, pause, kill, log
//!  ports.rs    ports that stay ours while nodes are down
//!  links.rs    TCP proxies between nodes, or before one, that cut, delay and break
//!  http.rs     a client of the HTTP door           zookeeper/  a client of the ZooKeeper door
//!  until.rs    waiting for a condition            lines.rs    log lines of the test's own process
//! ```
//!
//! Both clients send each request once and report the result. They never retry, as a retry would
//! hide the effect under test.

pub mod http;
mod lines;
mod links;
mod ports;
mod process;
mod until;
pub mod zookeeper;

pub use lines::Lines;
pub use links::{LinkRule, Links, Proxy, Rule};
pub use ports::Ports;
pub use process::{Process, last_lines, reset_ignored_signals, serve, signal};
pub use until::{Pace, until};
