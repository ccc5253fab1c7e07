//! The server for ZooKeeper clients (called the ZooKeeper door): unmodified ZooKeeper clients use
//! the same znodes, sessions and locks as HTTP clients.
//!
//! ```text
//! socket > Frames > take a request, which is
//!     a write: turned into a proposal, and proposed at once, while earlier ones are in progress
//!     a read: answered from this node's state when all requests before it are answered
//! answers in the order of requests, and events as entries are applied (Hub) > Outbox > socket
//! every packet > Liveness > touch: tells the leader that the session is alive
//! ```
//!
//! Invariants:
//! - Answers leave in the order of their requests, except those to pings and auth packets.
//! - Writes of a connection are applied in the order in which they were sent. When the connection
//!   breaks, no write is applied without all writes before it.
//! - An event is in the outbox before any answer that shows its change. After a watch was set, no
//!   change is missed.
//! - A client that gets answers has a session that is open according to a leader with a quorum; the
//!   leader's knowledge is older by at most a fraction of the session's timeout.
//! - Every queue has a bound, from [`WireConfig`] or a constant in the queue's file. Bytes of a
//!   client that has no session are bounded, too.
//!
//! Folders are layers: each uses only itself and the folders above it in this list.
//!
//! ```text
//! config.rs  bounds
//! client/    Client: data of a connection that several tasks use
//!            inbox.rs packets that a client has sent · outbox.rs bytes to send to it
//!            liveness.rs its signs of life · end.rs how a connection ends
//!            incomplete_packets.rs a bound on incomplete packets
//!            shared_bytes.rs a bound on bytes of all clients · read_into.rs reading from a socket
//!            select_lazy.rs two futures of a connection · auth.rs identities, ACLs
//!            codes.rs errors · counters.rs numbers for operators
//! watch/     hub.rs all connections and their watches · watch_table.rs who watches what
//!            audience.rs clients that have yet to get an event
//!            read_points.rs states for reads that follow writes
//!            evictions.rs closes clients that do not read their answers
//!            departures.rs closes clients of a node that cannot serve
//! request/   operations.rs a row for each operation · writes.rs writes and their answers
//!            reads.rs reads · watches.rs requests about watches
//!            operation_times.rs durations, by operation
//!            write_order.rs refused writes, to propose again · pending.rs requests that wait
//!            outcome.rs results of waiting requests
//!            slices.rs long reads, in slices · reading_thread.rs the thread for them
//! session/   door.rs state that connections share · connection.rs sends the answers
//!            requests.rs writes and syncs in progress · long_reads.rs answers of long reads
//!            conversation.rs requests and answers of one connection
//!            keep_alive.rs tells the leader of signs of life
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
