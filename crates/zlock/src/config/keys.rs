//! The table of all configuration keys.

use super::{Settings, value};

/// One configuration key: table, name, help, and functions that set and show its value.
pub struct Key {
    /// Name of the table that contains the key in the TOML file.
    pub table: &'static str,
    /// The key's name in its table.
    pub name: &'static str,
    /// The key's table and name with a dot between them, as in TOML, in messages and in the docs.
    /// The flag has `-` in place of `.` and `_`. The environment variable is in capitals, begins
    /// with `ZLOCK_` and has `_` in place of `.`.
    pub path: &'static str,
    /// The heading of the key's table in the help.
    heading: &'static str,
    /// True for keys that every operator should know. The help and docs/operating.md show them
    /// first.
    pub is_basic: bool,
    /// Name of the value's kind in the help, such as `DURATION`.
    pub kind: &'static str,
    /// Meaning of the key, in one sentence.
    pub help: &'static str,
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
    /// Function that returns the value as text, which `set` parses to the same value. The text of a
    /// secret may only be compared, and never printed.
    pub show: fn(&Settings) -> String,
}

impl Key {
    /// Returns the name of the environment variable.
    pub fn variable(&self) -> String {
        format!("ZLOCK_{}", self.path.replace('.', "_").to_ascii_uppercase())
    }

    /// Tells whether the key's value is never printed.
    pub fn is_secret(&self) -> bool {
        self.kind == value::secret::NAME
    }

    /// Returns the name of the flag, without its two dashes.
    pub fn flag(&self) -> String {
        self.path.replace(['.', '_'], "-")
    }

    /// Returns the heading under which the help lists the key.
    pub fn heading(&self) -> &'static str {
        if self.is_basic { "Keys that every operator should know" } else { self.heading }
    }

    /// Returns the default value as text for the help; empty when there is none.
    pub fn default(&self, defaults: &Settings) -> String {
        // The default id 0 stands for a missing id.
        if self.path == "node.id" { String::new() } else { (self.show)(defaults) }
    }
}

/// Returns a TOML file with every key and its value. It gives the same settings when loaded, except
/// for secrets, which it leaves out.
pub fn effective(settings: &Settings) -> String {
    let line = |key: &Key| match key.is_secret() {
        true => format!("# {} is given, and not shown\n", key.name),
        false => format!("{} = {}\n", key.name, toml::Value::String((key.show)(settings))),
    };
    let tables = KEYS.chunk_by(|one, next| one.table == next.table).filter_map(|keys| {
        let lines: String = keys.iter().filter(|key| !(key.show)(settings).is_empty()).map(line).collect();
        (!lines.is_empty()).then(|| format!("[{}]\n{lines}", keys[0].table))
    });
    tables.collect::<Vec<_>>().join("\n")
}

macro_rules! keys {
    (@is_basic basic) => { true };
    (@is_basic) => { false };
    ($($table:ident, $heading:literal {
        $($name:ident: $kind:ident $(, $basic:ident)? = $($place:ident).+, $help:literal;)*
    })*) => {
        /// Every key, in the order of the help.
        pub static KEYS: &[Key] = &[$($(Key {
            table: stringify!($table),
            name: stringify!($name),
            path: concat!(stringify!($table), ".", stringify!($name)),
            heading: concat!("[", stringify!($table), "] ", $heading),
            is_basic: keys!(@is_basic $($basic)?),
            kind: value::$kind::NAME,
            help: $help,
            set: |settings, text| {
                settings.$($place).+ = value::$kind::parse(text)?;
                Ok(())
            },
            show: |settings| value::$kind::show(&settings.$($place).+),
        },)*)*];
    };
}

keys! {
    node, "Settings of this node" {
        id: node_id, basic = replica.node_id, "Id of this node, 1 or more; one of the ids in node.members. `hostname` is 1 plus the number that the hostname ends with: 1 for `zlock-0`.";
        cluster_id: text, basic = replica.cluster_id, "Name of the cluster. Peers and data directories of another cluster are refused.";
        members: members, basic = replica.members, "Members of a new cluster, this node included; the same list on every node. Once the cluster exists, its Raft log records the members, and this list only names the nodes to contact first.";
        joining: flag, basic = replica.join, "`true` for a node that joins an existing cluster and never starts a new one. node.members then lists some of that cluster's members and this node.";
        zxid_base: zxid_base = replica.zxid_base, "Number added to log indexes to make the zxids and fencing tokens of a new cluster, used only when the cluster first starts. `time` is 1,024 times the milliseconds since 1970, so that new zxids exceed those of an earlier cluster.";
        data_dir: directory, basic = replica.data_dir, "Directory of the Raft log, the snapshots and the node's metadata; created if missing.";
        threads: count = threads, "Number of threads that serve clients and peers; the disk has threads of its own. 0 means one thread for every two cores.";
        stop_timeout: duration = stop_timeout_ms, "Longest time of a clean stop before it is cut short. It is counted from the end of node.drain_delay and node.drain_time.";
        drain_delay: duration = rest.drain_delay_ms, "Time at the beginning of a clean stop in which `/readyz` answers 503 and the node otherwise works as before. node.drain_time comes next.";
        drain_time: duration = rest.drain_time_ms, "Time of a clean stop, after node.drain_delay, in which the node still serves and `/readyz` answers 503. Each HTTP connection ends with its next answer, so that balancers turn to other nodes.";
        proxies: networks = proxy_protocol_from, "Balancers, by IP address or network, whose HTTP and ZooKeeper connections begin with a header of the PROXY protocol, version 2. The node takes the client's address from the header.";
        exempt_addresses: networks, basic = rest.exempt, "IP addresses and networks of proxies and NATs, which stand for many clients, such as `10.0.0.0/8,192.0.2.7`. The bounds on one client address do not apply to these addresses and networks.";
        session_rate_max: count = rest.session_rate_max, "Largest number of new sessions per second from one client address, counted separately for HTTP and for ZooKeeper. After a pause, a burst of up to ten times this number is accepted; 0 means no bound.";
        proposals_max: count = replica.proposals_max, "Largest number of clients' writes in progress at this node at once. A further write is not executed: an HTTP client gets 503, and for a ZooKeeper client the node tries again until zookeeper.proposal_timeout.";
        proposals_bytes_max: size = replica.proposal_bytes_max, "Largest size of all clients' writes in progress at this node together. Further writes are treated as those beyond node.proposals_max.";
        reads_max: count = replica.reads_max, "Largest number of linearizable reads in progress at this node at once, and, counted separately, of session heartbeats that wait to be sent to the leader.";
        watches_max: count = replica.watches_max, "Largest number of watches at this node for HTTP long-polls and waiting acquires; zookeeper.watches_max bounds the watches of ZooKeeper clients.";
        kept_events_max: count = replica.event_ring_max, "Number of the newest znode events that the node keeps in memory, so that HTTP watches can resume after a pause.";
        kept_events_bytes_max: size = replica.event_ring_bytes_max, "Largest size of all paths in the znode events that node.kept_events_max counts.";
    }
    http, "Settings for HTTP clients" {
        listen: listen, basic = http_listen, "IP address and port for HTTP clients. Unset: http_addr of this node in node.members; if the host in http_addr is a name, the port of http_addr on every interface.";
        tls_listen: listen, basic = http_tls_listen, "IP address and port for HTTP clients with TLS (https). Unset: none.";
        hosts: hosts = rest.http_hosts, "Host names, such as `node1,zlock.example`, that requests may have in `Host`, besides IP addresses, `localhost` and the host of http_addr. Unset: any. A listener on a loopback address accepts only these names, `localhost` and loopback addresses.";
        origins: origins = rest.http_origins, "Web origins, such as `https://ui.example`, whose pages may send requests from a browser. The node's own origin always may.";
        connections_max: count = rest.connections_max, "Largest number of HTTP connections at once. At the bound a new connection takes the place of one that is idle or has sent no request; if there is none, the new connection gets 503.";
        connections_per_address_max: count = rest.connections_per_address_max, "Largest number of HTTP connections from one IPv4 address or one /64 network of IPv6; 0 is a quarter of http.connections_max while the server has all its connections, else no bound.";
        waits_max: count = rest.waits_max, "Largest number of HTTP long-polls and waiting acquires at once. Further ones get 429.";
        wait_max: duration = rest.wait_max_ms, "Longest `wait` that an HTTP request may ask for; a longer one gets 400.";
        body_bytes_max: size = rest.body_bytes_max, "Largest size of one HTTP request's body; a larger one gets 413.";
        bodies_bytes_max: size = rest.bodies_bytes_max, "Largest size of all received request bodies of HTTP clients and all their unread answers above 16 KiB together. The answers alone may take half of this bound. One address may take half of either bound (of the total, and of the answers), or a quarter while other addresses also have request bodies or unread answers above 16 KiB.";
        body_read_timeout: duration = rest.body_read_timeout_ms, "Longest time from the first byte of an HTTP request's body to its last; then the request gets 408.";
        uri_bytes_max: size = rest.uri_bytes_max, "Largest size of an HTTP request's URI; a longer one gets 414.";
        headers_bytes_max: size = rest.header_bytes_max, "Largest size of all header names and values of one HTTP request together; a larger one gets 431.";
        headers_max: count = rest.headers_max, "Largest number of headers of one HTTP request; more get 431.";
        header_read_timeout: duration = rest.header_read_timeout_ms, "Longest time from the first byte of an HTTP request's head to its last, and from the start of a connection to its first request. Then the connection is closed.";
        idle_timeout: duration = rest.idle_timeout_ms, "Longest time that an HTTP connection may be idle between two requests, from `1s` to `1h`. It should exceed the idle timeout of any balancer before the node.";
        write_timeout: duration = rest.write_timeout_ms, "Longest time for which an HTTP client may read nothing of its answer; then its connection is closed.";
        proposal_timeout: duration = rest.propose_timeout_ms, "Longest time of a write over HTTP; then the client gets 504, and the write's outcome is unknown.";
        read_timeout: duration = rest.read_timeout_ms, "Longest time of a read over HTTP; then the client gets 503.";
        page_size_max: count = rest.page_max, "Largest number of children, sessions, waiters or locks in one HTTP answer, and the default of `page_size`. Longer lists come in pages.";
        withdrawal_timeout: duration = rest.withdraw_timeout_ms, "Longest time for which the node tries to take the waiter of a disconnected HTTP client out of a lock's queue.";
        shutdown_timeout: duration = rest.shutdown_timeout_ms, "Longest time that the node waits at a clean stop for open HTTP requests to end.";
        session_timeout_default: duration = rest.session_timeout_default_ms, "Timeout of a new session if the HTTP client sets none.";
    }
    zookeeper, "Settings for clients that speak ZooKeeper's protocol" {
        listen: listen, basic = zookeeper_listen, "IP address and port for ZooKeeper clients, such as `127.0.0.1:2181`. Unset: none.";
        tls_listen: listen = zookeeper_tls_listen, "IP address and port for ZooKeeper clients with TLS, like ZooKeeper's `secureClientPort`. Unset: none.";
        advertised_addr: text = wire.addr, "Address `host:port` of this node for ZooKeeper clients in the znode `/zookeeper/config`; `none` shows no address. Unset: zookeeper.listen, else zookeeper.tls_listen; the host of http_addr replaces a wildcard address.";
        connections_max: count = wire.connections_max, "Largest number of ZooKeeper connections at once. At the bound a new connection takes the place of the oldest one that has not sent its first packet; if there is none, the new connection is closed.";
        connections_per_address_max: count = wire.connections_per_address_max, "Largest number of ZooKeeper connections from one IPv4 address or one /64 network of IPv6; 0 is a quarter of zookeeper.connections_max while the server has all its connections, else no bound.";
        packet_bytes_max: size = wire.packet_bytes_max, "Largest size of a ZooKeeper client's packet, like ZooKeeper's `jute.maxbuffer`; a longer one closes the connection.";
        incomplete_packets_bytes_max: size = wire.incomplete_packets_bytes_max, "Largest size of all incomplete packets of ZooKeeper clients together. Beyond it the connection with the oldest incomplete packet is closed.";
        connection_requests_max: count = wire.outstanding_max, "Largest number of unanswered requests of one ZooKeeper connection. At the bound the node reads no more from the connection until some requests are answered.";
        connection_requests_bytes_max: size = wire.outstanding_bytes_max, "Largest size of all unanswered requests of one ZooKeeper connection. At the bound the node reads no more from the connection until some requests are answered.";
        requests_bytes_max: size = wire.requests_bytes_max, "Largest size of all ZooKeeper clients' unanswered requests together, without the first 16 KiB of each connection; one address may take a quarter. At the bound packets beyond these 16 KiB wait.";
        writes_max: count = wire.writes_max, "Largest number of ZooKeeper clients' writes in progress at this node at once. Further writes wait.";
        watches_max: count = wire.watches_max, "Largest number of ZooKeeper clients' watches at this node; one address may take a quarter. Further watches are refused.";
        watches_bytes_max: size = wire.watch_bytes_max, "Largest memory of ZooKeeper clients' watches at this node: their paths, and 240 bytes for each watch. One address may take a quarter.";
        connection_watches_max: count = wire.connection_watches_max, "Largest number of watches of one ZooKeeper connection. Further watches are refused.";
        connection_answers_bytes_max: size = wire.unread_bytes_max, "Largest size of answers and events that one ZooKeeper client has not read yet. Above half of this bound the node reads no further request of the client; above the bound it closes the connection.";
        answers_bytes_max: size = wire.answers_bytes_max, "Largest size of all answers to ZooKeeper clients together, from the time the node begins an answer until its client has read it. One answer may take half of this bound. All answers to one address may take a quarter of the bound; a single answer may be longer than this quarter.";
        handshake_timeout: duration = wire.handshake_timeout_ms, "Longest time from the start of a ZooKeeper connection to its first whole packet; then the connection is closed.";
        write_timeout: duration = wire.write_timeout_ms, "Longest time for which a ZooKeeper client may read nothing of its answers and events; then its connection is closed.";
        proposal_timeout: duration = wire.propose_timeout_ms, "Longest time of a ZooKeeper client's write or sync; then its connection is closed, and the outcome is unknown.";
        four_letter_words: text = wire.words, "ZooKeeper's four-letter words that the node answers, such as `srvr,mntr`; `*` means all.";
    }
    peers, "Settings for connections between members" {
        listen: listen, basic = peer_listen, "IP address and port for the other members. Unset: peer_addr of this node in node.members; if the host in peer_addr is a name, the port of peer_addr on every interface.";
        timeout: duration = replica.peer_timeout_ms, "Longest time of one round trip between two members, connecting included.";
        tls: text, basic = peer_tls.mode, "TLS between members: `off`; `permit`, which takes connections with TLS and without; or `require`, which refuses members that connect without TLS.";
        tls_dial: flag = peer_tls.dials, "`true` for a node that opens its connections to other members with TLS while peers.tls is `permit`. With `require` it always does.";
        tls_certificate: file = peer_tls.certificate, "PEM file with the certificate that the node shows to other members, and the certificates of the intermediate authorities.";
        tls_key: file = peer_tls.key, "PEM file with the private key of the certificate in peers.tls_certificate.";
        tls_ca: file = peer_tls.ca, "PEM file with the certificates of the authorities that sign members' certificates.";
        tls_crl: file = peer_tls.crl, "PEM file with the lists of certificates that the authorities in peers.tls_ca have revoked. Unset: no certificate is revoked.";
        tls_names: text = peer_tls.names, "Name that a member's certificate needs. With `node-id`, it is the URI `zlock://CLUSTER_ID/NODE_ID`. With `any`, a caller with any certificate of an authority in peers.tls_ca is accepted as a member.";
    }
    raft, "Settings of elections, replication and the leader's tasks" {
        heartbeat_interval: duration = replica.heartbeat_ms, "Time between two heartbeats of an idle leader to its followers; at most an eighth of raft.election_timeout_min.";
        election_timeout_min: duration = replica.election_timeout_min_ms, "Shortest time without a message from the leader after which a follower stands for election. Half of this time is enough when the follower's connection to the leader has ended.";
        election_timeout_max: duration = replica.election_timeout_max_ms, "Longest time without a message from the leader before a follower stands for election. Each follower's timeout is random between raft.election_timeout_min and raft.election_timeout_max.";
        leader_priority: count = replica.leader_priority, "Preference for this node as leader, from 0 to 100; the voter with the highest number is preferred. A node with 0 leads only while no other node can.";
        promotion_delay: duration = replica.promote_after_ms, "Time for which a new member must lack at most 5,000 log entries before the leader makes it a voter. The same condition holds for a voter of higher raft.leader_priority before the leader transfers leadership to it.";
        reap_interval: duration = replica.tick_ms, "Time between two searches of the leader for sessions to expire and for znodes to delete: expired TTL znodes and empty containers.";
        reap_batch_max: count = replica.reap_batch_max, "Largest number of sessions that the leader expires, or of expired TTL znodes and empty containers that it deletes, in one log entry.";
        ready_lag_entries_max: count = replica.ready_lag_max, "Largest number of committed log entries that a ready node may still have to apply. With more, `/readyz` answers 503.";
    }
    disk, "Settings of the Raft log, snapshots and free disk space" {
        snapshot_log_entries: count = replica.snapshot_log_entries, "Number of log entries applied since the last snapshot at which the node builds the next one, unless disk.snapshot_log_bytes is reached first.";
        snapshot_log_bytes: size = replica.snapshot_log_bytes, "Size of the log entries applied since the last snapshot at which the node builds the next one, unless disk.snapshot_log_entries is reached first.";
        kept_log_entries: count = replica.log_entries_kept, "Number of entries that stay in the log although a snapshot has them, so that followers that are a little late need no snapshot.";
        free_bytes_min: size = replica.free_disk_min_bytes, "Smallest free space on the disk of node.data_dir. Below it the node refuses clients' writes.";
        stall_max: duration = replica.disk_stall_max_ms, "Longest time that the Raft log may wait for the disk. Beyond it the node is not ready, and a leader hands over leadership.";
    }
    limits, "Bounds of the cluster: set them equal on every node, as the leader's values apply" {
        data_bytes_max: size = replica.limits.data_bytes_max, "Largest size of one znode's data.";
        path_bytes_max: size = replica.limits.path_bytes_max, "Largest size of a znode's whole path.";
        path_depth_max: count = replica.limits.path_depth_max, "Largest number of names in a znode's path.";
        name_bytes_max: size = replica.limits.name_bytes_max, "Largest size of one name in a znode's path.";
        label_bytes_max: size = replica.limits.label_bytes_max, "Largest size of each of these texts: the owner and the label in an acquire, and the label of a session.";
        children_max: count = replica.limits.children_max, "Largest number of children of one znode, holders and waiters of a lock included.";
        waiters_max: count = replica.limits.waiters_max, "Largest number of contenders in one lock's queue: holders and waiters together. Acquires above it are refused. Lock nodes that clients make with a plain create, as ZooKeeper's clients do, count, but are not refused.";
        znodes_max: count = replica.limits.znodes_max, "Largest number of znodes in the cluster.";
        state_bytes_max: size, basic = replica.limits.state_bytes_max, "Largest memory of the replicated state, by estimate: znodes, ACLs, sessions, locks, answers kept for repeated requests and all else. The last fifth is reserved for sessions and locks.";
        subtree_bytes_max: size = replica.limits.subtree_bytes_max, "Largest memory, by estimate, of one child of the root with all znodes below it; ephemeral znodes do not count. 0 means a fifth of limits.state_bytes_max.";
        sessions_max: count = replica.limits.sessions_max, "Largest number of open sessions in the cluster.";
        sessions_per_address_max: count = replica.limits.sessions_per_address_max, "Largest number of open sessions from one IPv4 address or one /64 network of IPv6; 0 is a quarter of limits.sessions_max.";
        ephemerals_max: count = replica.limits.ephemerals_max, "Largest number of ephemeral znodes of one session.";
        ops_max: count = replica.limits.ops_max, "Largest number of operations in one transaction (ZooKeeper's multi).";
        entry_cost_max: count = replica.limits.entry_cost_max, "Largest number of znodes that one log entry may create, delete and grant a lock to, in sum. A created or deleted znode counts once more for every 8 levels of its depth. The entry that ends one session may exceed this bound.";
        acl_entries_max: count = replica.limits.acl_entries_max, "Largest number of entries in one ACL.";
        holds_max: count = replica.limits.holds_max, "Largest number of times that one owner may hold the same lock at once (reentrant acquires).";
        replies_max: count = replica.limits.replies_max, "Number of answers that each session keeps, so that a request with a repeated idempotency key gets the first answer again. The oldest answer is dropped first.";
        used_keys_max: count = replica.limits.used_keys_max, "Number of idempotency keys that each session remembers as used after their answers are dropped. The oldest is forgotten first.";
        session_timeout_min: duration = replica.limits.session_timeout_min_ms, "Shortest timeout of a session; a client that asks for less gets this.";
        session_timeout_max: duration = replica.limits.session_timeout_max_ms, "Longest timeout of a session; a client that asks for more gets this.";
        lock_delay_max: duration = replica.limits.lock_delay_max_ms, "Longest lock-delay, the time for which a lock stays taken after its holder's session has expired. A longer one is refused.";
        history_max: count = replica.limits.history_max, "Number of past grants, and also of past waits, that each lock remembers. A value above 512 counts as 512.";
        histories_max: count = replica.limits.histories_max, "Largest number of locks that remember past grants and waits. The lock whose last hold or wait ended longest ago is forgotten first.";
        ended_sessions_max: count = replica.limits.ended_sessions_max, "Largest number of ended sessions that the cluster remembers, to tell clients how a session ended. The oldest is forgotten first.";
        ended_sessions_age_max: duration = replica.limits.ended_sessions_ms, "Longest time for which the cluster remembers an ended session.";
        deadlock_looks_max: count = replica.limits.deadlock_looks_max, "Largest number of tickets (lock nodes) that one acquire looks at to find a deadlock; more than 1,024 counts as 1,024. If there are more tickets to look at, the acquire enters the queue without this check.";
    }
    log, "Settings of the node's own log" {
        level: filter, basic = log, "Filter of the node's log: error, warn, info, debug, trace or off, or a list by module such as `info,rest=debug`. SIGHUP reloads it.";
        format: log_format = log_format, "Format of the lines in the node's log: `text` for people, or `json` for one JSON object per line.";
        file: file = log_file, "File of the node's log; unset: stderr. SIGHUP opens the file anew, for example after logrotate has renamed it.";
    }
    tls, "Settings of TLS for HTTP and ZooKeeper clients" {
        certificate: file, basic = tls.certificate, "PEM file with the certificate that the node shows to clients, and the certificates of the intermediate authorities.";
        key: file, basic = tls.key, "PEM file with the private key of the certificate in tls.certificate.";
        client_ca: file = tls_client_ca, "PEM file with the certificates of the authorities that sign clients' certificates. In ACLs, the id of the scheme `x509` is the subject of the client's certificate. Unset: the node asks no client for a certificate.";
        client_crl: file = tls_client_crl, "PEM file with the lists of certificates that the authorities in tls.client_ca have revoked. Unset: no certificate is revoked.";
        client_certificates: text = tls_clients, "Requirement for clients to show a certificate that an authority in tls.client_ca has signed: `optional` or `required`.";
        handshakes_max: count = tls.handshakes_max, "Largest number of TLS handshakes in progress at once, for HTTP and for ZooKeeper each; one address may take an eighth. Further handshakes wait, and tls.handshake_timeout includes the wait.";
        handshake_timeout: duration = tls.handshake_timeout_ms, "Longest time from the start of a connection to the end of its TLS handshake; then the connection is closed.";
    }
    admin, "Settings for operators" {
        socket: file, basic = admin_socket, "Path of a Unix socket for operators, such as `/run/zlock/admin.sock`, made with mode 0600: all users who can connect to it are operators. Unset: no socket.";
        operators: subjects = rest.operators, "Certificate subjects whose clients are operators: a list such as `[\"CN=ops,O=Example\"]`, or one text with `;` between. Unset: no certificate makes an operator.";
        super_digest: secret = rest.super_digest, "Digest of the super user, who may do everything: `user:base64(sha1(user:password))`, as in ZooKeeper's `superDigest`. Unset: no super user.";
    }
}
