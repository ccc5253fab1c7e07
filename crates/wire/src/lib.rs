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
//! ```text
//! session/   serve.rs listener, bounds, end · handshake.rs from the first byte to a session
//!            conversation.rs what is said on one connection · connection.rs how its answers leave
//!            keep_alive.rs signs of life on their way to the leader · liveness.rs what was heard of a client
//!            client.rs the part of a connection that other tasks share · door.rs what connections share
//!            inbox.rs what a client has sent · outbox.rs what it will be sent · end.rs how a connection ends
//!            incomplete_packets.rs a bound on packets that are not whole yet
//!            shared_bytes.rs a bound on bytes of all clients · evictions.rs who is given up for it
//!            departures.rs clients of a node that cannot serve
//!            select_lazy.rs two futures of a connection · read_into.rs reading from a socket
//! request/   operations.rs a row for each operation · requests.rs writes and syncs on their way
//!            writes.rs writes, there and back · reads.rs reads · slices.rs long reads, in slices
//!            write_order.rs writes that came too early · read_points.rs states for reads behind writes
//!            pending.rs requests that wait · done.rs how those are answered · reading_thread.rs long reads' thread
//!            long_reads.rs their answers · auth.rs identities, ACLs · codes.rs errors
//! watch/     hub.rs all connections and their watches · watches.rs requests about watches
//!            watch_table.rs who watches what · concerned.rs who is still to be told of an event
//! operate/   four_letter_words.rs · monitor.rs mntr · counters.rs numbers for them · system_znodes.rs /zookeeper
//! config.rs  bounds
//! ```

mod config;
mod operate;
mod request;
mod session;
mod watch;

pub use config::WireConfig;
pub use operate::system_znodes::announce_no_door;
pub use session::serve::serve;
