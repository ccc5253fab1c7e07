//! Environment of a simulated node: network, wall clock and disk.
//!
//! A simulation runs all nodes on one thread, each in a separate tokio runtime with paused time.
//! Each node has a [`World`], which gives it its connections and the time of day. Blocking steps
//! run on the calling thread.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use storage::LogWrites;
use storage::simulation::Parts;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// A connection to a peer.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Duplex for T {}

/// Simulated network and wall clock of one node.
pub trait World: Send + Sync {
    /// Connects to the peer that listens at `addr`.
    fn connect(&self, addr: &str) -> BoxFuture<'static, io::Result<Box<dyn Duplex>>>;

    /// Milliseconds since 1970, by the simulated wall clock.
    fn wall_clock_ms(&self) -> u64;
}

/// Network, clock, log and disk with which a simulated node starts.
pub struct Machine<L> {
    /// Network and clock of the node.
    pub world: Arc<dyn World>,
    /// Connections that peers open to this node, as they come.
    pub listener: mpsc::Receiver<Box<dyn Duplex>>,
    /// The Raft log.
    pub log: L,
    /// Counts of the log's writes that have begun, and of those that are on disk.
    pub log_writes: LogWrites,
    /// Stores of the node's snapshots and of its identity.
    pub disk: Parts,
}
