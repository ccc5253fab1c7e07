//! The world outside of a node, as a simulation plays it: network, wall clock and disk.
//!
//! A simulation runs every node on one thread, each in a tokio runtime of its own with paused time,
//! and says with [`set_world`] in whose world the thread is before it lets one run. Where there is
//! a world, connections and the time of day come from it, and blocking steps are taken in place.
//! Nothing else of this crate knows of simulations. On the threads of a program there is no world.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use storage::LogWrites;
use storage::memory::MemoryParts;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

thread_local! {
    static WORLD: RefCell<Option<Arc<dyn World>>> = const { RefCell::new(None) };
}

/// A connection to a peer.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Duplex for T {}

/// Network and wall clock of one node.
pub trait World: Send + Sync {
    /// Connects to the peer that listens at `addr`.
    fn connect(&self, addr: &str) -> BoxFuture<'static, io::Result<Box<dyn Duplex>>>;

    /// Milliseconds since 1970.
    fn wall_clock_ms(&self) -> u64;
}

/// Says whose code this thread runs from now on.
pub fn set_world(world: Option<Arc<dyn World>>) {
    WORLD.set(world);
}

pub(crate) fn world() -> Option<Arc<dyn World>> {
    WORLD.with_borrow(Clone::clone)
}

/// What a simulated node is given to start with.
pub struct Machine<L> {
    /// Connections of peers.
    pub listener: mpsc::Receiver<Box<dyn Duplex>>,
    /// The Raft log.
    pub log: L,
    /// Its writes that wait for the disk.
    pub log_writes: LogWrites,
    /// Everything else on the disk.
    pub disk: MemoryParts,
}
