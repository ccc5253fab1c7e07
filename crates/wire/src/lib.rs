//! The ZooKeeper door: unmodified ZooKeeper clients on the same znodes, sessions and locks as HTTP
//! clients.
//!
//! ```text
//! socket ── Frames ──> take ──> write: InTurn, proposed at once, many on their way ──> in order ──> Outbox ── socket
//!                       │         read: from this node's state, in its turn ────────────^   ^
//!                       └──> Liveness ──> touch: the leader hears of the session          Hub ─┘ events, as they are applied
//! ```
//!
//! What always holds:
//! - Answers leave in the order of their requests, but for pings and auth packets.
//! - Writes of a connection are applied in its order. When it breaks, those that were applied are a
//!   beginning of it.
//! - An event is in the outbox before any answer that shows the change; of a change after a watch
//!   was set, none is missed.
//! - A client that hears from this node has a session, as far as a leader with a quorum knew a
//!   fraction of its timeout ago.
//! - No queue without a bound from [`WireConfig`] or a constant beside it, and no bytes from
//!   strangers hurt.
//!
//! Folders are layers: each uses only itself and those above it in this list.
//!
//! ```text
//! config.rs  bounds
//! client/    Client: the part of a connection that other tasks share · inbox.rs what a client has sent
//!            outbox.rs what it will be sent · liveness.rs what was heard of it · end.rs how a connection ends
//!            incomplete_packets.rs a bound on packets that are not whole yet
//!            shared_bytes.rs a bound on bytes of all clients · read_into.rs reading from a socket
//!            select_lazy.rs two futures of a connection · auth.rs identities, ACLs · codes.rs errors
//!            counters.rs numbers for operators
//! watch/     hub.rs all connections and their watches · watch_table.rs who watches what
//!            audience.rs who is still to be told of an event · read_points.rs states for reads behind writes
//!            evictions.rs who is given up for bytes · departures.rs clients of a node that cannot serve
//! request/   operations.rs a row for each operation · writes.rs writes, there and back · reads.rs reads
//!            watches.rs requests about watches
//!            write_order.rs writes that came too early · pending.rs requests that wait · done.rs how those are answered
//!            slices.rs long reads, in slices · reading_thread.rs their thread
//! session/   door.rs what connections share · connection.rs how its answers leave
//!            requests.rs writes and syncs on their way · long_reads.rs answers of long reads
//!            conversation.rs what is said on one connection · keep_alive.rs signs of life on their way to the leader
//! operate/   four_letter_words.rs · monitor.rs mntr · system_znodes.rs /zookeeper
//! listen/    serve.rs listener, bounds, end · handshake.rs from the first byte to a session
//! ```

mod client;
mod config;
mod listen;
mod operate;
mod request;
mod session;
mod watch;

pub use config::WireConfig;
pub use listen::serve::serve;
pub use operate::system_znodes::announce_no_door;
