//! The ZooKeeper door: unmodified ZooKeeper clients on the same znodes, sessions and locks as HTTP clients.
//!
//! ```text
//! socket ── Frames ──> take ──> write: InTurn, proposed at once, many on their way ──> in order ──> Outbox ── socket
//!                       │         read: from this node's state, in its turn ────────────^   ^
//!                       └──> Pulse ──> touch: the leader hears of the session          Hub ─┘ events, as they are applied
//! ```
//!
//! What always holds:
//! - Answers leave in the order of their requests, but for pings and auth packets.
//! - Writes of a connection are applied in its order. When it breaks, those that were applied are a beginning of it.
//! - An event is in the outbox before any answer that shows the change; of a change after a watch was set, none is missed.
//! - A client that hears from this node has a session, as far as a leader with a quorum knew a fraction of its timeout ago.
//! - No queue without a bound from [`WireConfig`] or a constant beside it, and no bytes from strangers hurt.
//!
//! ```text
//! serve.rs       listener, bounds, end         handshake.rs   from the first byte to a session
//! connection.rs  one connection                requests.rs    what becomes of single requests
//! client.rs      what a connection is known by pulse.rs       signs of life on their way to the leader
//! inbox.rs       what a client has sent        hub.rs         all connections and their watches
//! outbox.rs      what a client will be sent
//! watches.rs     requests about watches        watch_table.rs who watches what
//! writes.rs      writes, there and back        reads.rs       reads
//! auth.rs        identities, ACLs              codes.rs       errors
//! words.rs       four-letter words             monitor.rs     mntr
//! counts.rs      numbers for them
//! door.rs        what connections share        config.rs      bounds
//! own.rs         /zookeeper                     turns.rs       writes that came too early
//! moments.rs     states for reads behind writes  pending.rs  requests that wait
//! half_packets.rs  a bound on packets that are not whole yet
//! slices.rs      long reads, in slices         long_reads.rs  their thread, and their answers
//! unread.rs      a bound on what all clients have not taken yet   evictions.rs   who is given up for it
//! beside.rs      two futures of a connection   read_into.rs  reading from a socket
//! ```

mod auth;
mod beside;
mod client;
mod codes;
mod config;
mod connection;
mod counts;
mod door;
mod evictions;
mod half_packets;
mod handshake;
mod hub;
mod inbox;
mod long_reads;
mod moments;
mod monitor;
mod outbox;
mod own;
mod pending;
mod pulse;
mod read_into;
mod reads;
mod requests;
mod serve;
mod slices;
mod turns;
mod unread;
mod watch_table;
mod watches;
mod words;
mod writes;

pub use config::WireConfig;
pub use own::announce_no_door;
pub use serve::serve;
