//! The table of keys.

use super::{Settings, value};

/// One key of the settings: table, name, help, and functions that set and show its value.
pub struct Key {
    /// The table of the file that has the key.
    pub table: &'static str,
    /// The key's name in its table.
    pub name: &'static str,
    /// Table and name with a dot between, as in TOML, in messages and on pages. The flag has `-`
    /// for `.` and `_`. The variable begins with `ZLOCK_`, is in capitals and has `_` for `.`.
    pub path: &'static str,
    /// The heading of the key's table in the help.
    heading: &'static str,
    /// Tells whether every operator should know the key. Help and page show these first.
    pub is_basic: bool,
    /// Kind of the value, as the help calls it.
    pub kind: &'static str,
    /// Meaning of the key, in one sentence.
    pub help: &'static str,
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
    /// Shows the value as text that `set` reads as the same value. A secret's text is only for
    /// comparisons.
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

    /// Returns the flag without its two dashes.
    pub fn flag(&self) -> String {
        self.path.replace(['.', '_'], "-")
    }

    /// Returns the heading of the key in the help.
    pub fn heading(&self) -> &'static str {
        if self.is_basic { "Keys to know" } else { self.heading }
    }

    /// Returns the default as the help shows it; empty when there is none.
    pub fn default(&self, defaults: &Settings) -> String {
        // The id 0 stands for no id.
        if self.path == "node.id" { String::new() } else { (self.show)(defaults) }
    }
}

/// Writes every key and its value as a TOML file that reads back as the same settings, except for
/// secrets.
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
    node, "This node" {
        id: count, basic = replica.node_id, "This node's id, one of the members'.";
        cluster_id: text, basic = replica.cluster_id, "The cluster's name; nodes and data of another cluster are refused.";
        members: members, basic = replica.members, "The members that found the cluster, this node included; the same list on every node. From then on the log says who is a member, and these are only asked first.";
        joining: flag, basic = replica.join, "`true` lets this node join a cluster that exists, and found none: node.members has some of that cluster's members and this node.";
        zxid_base: zxid_base = replica.zxid_base, "Where the zxids, and with them the fencing tokens, of a cluster begin that is founded now: `time` is the milliseconds since 1970 times 1,024, above those of a cluster before it. Looked at once, when the cluster is founded.";
        data_dir: directory, basic = replica.data_dir, "Where log, snapshots and node metadata live; made when missing.";
        threads: count = threads, "Threads that serve clients and peers, beside those of the disk; 0 is one for every two cores.";
        stop_timeout: duration = stop_timeout_ms, "How long a clean stop may take before it is cut short, when node.drain_delay and node.drain_time are over: the three together bound the whole stop.";
        drain_delay: duration = rest.drain_delay_ms, "At a clean stop, before node.drain_time: for so long the node is not ready, and all else goes on.";
        drain_time: duration = rest.drain_time_ms, "At a clean stop: for so long both doors serve on, the node is not ready, and the HTTP door ends each connection with its next answer, so that balancers turn to others. node.stop_timeout begins when it is over.";
        proxies: networks = proxy_protocol_from, "Balancers, by address or network, whose connections of both doors begin with a header of the PROXY protocol, version 2. The client's address is the one in it.";
        exempt_addresses: networks, basic = rest.exempt, "Addresses and networks that stand for many clients (proxies, NAT), such as `10.0.0.0/8,192.0.2.7`: no bound for one address is theirs.";
        session_rate_max: count = rest.session_rate_max, "New sessions a second from one address at each door, and ten times as many at once; 0 is no bound.";
        proposals_max: count = replica.proposals_max, "Writes on their way at once.";
        proposals_bytes_max: size = replica.proposal_bytes_max, "Bytes of those writes.";
        reads_max: count = replica.reads_max, "Linearizable reads and heartbeats on their way at once.";
        watches_max: count = replica.watches_max, "Waits at once: long-polls and watches.";
        kept_events_max: count = replica.event_ring_max, "Events kept for watches that resume ...";
        kept_events_bytes_max: size = replica.event_ring_bytes_max, "... and how many bytes of paths they may hold.";
    }
    http, "Clients that speak HTTP" {
        listen: listen, basic = http_listen, "Where clients connect to; the port of this node's http_addr unless given.";
        tls_listen: listen, basic = http_tls_listen, "Where clients connect to with TLS (https); none do unless given.";
        hosts: hosts = rest.http_hosts, "Names of this node, as in `node1,zlock.example`, that the header Host may have, besides addresses and the host of this node's http_addr; any unless given. On a loopback listener: names and addresses besides this machine's.";
        origins: origins = rest.http_origins, "Origins whose pages may ask in a browser, such as `https://ui.example`; only the node's own unless given.";
        connections_max: count = rest.connections_max, "Connections at once; a silent one gives way.";
        connections_per_address_max: count = rest.connections_per_address_max, "Connections from one IPv4 address or one /64 network of IPv6; 0 is a quarter of http.connections_max.";
        waits_max: count = rest.waits_max, "Long-polls and waiting acquires at once.";
        wait_max: duration = rest.wait_max_ms, "The longest wait that a request may ask for.";
        body_bytes_max: size = rest.body_bytes_max, "A request's body.";
        bodies_bytes_max: size = rest.bodies_bytes_max, "Bodies, as far as they have come, and long answers being taken, together; half of it for the latter. One address has half of either, and a quarter while others have any.";
        body_read_timeout: duration = rest.body_read_timeout_ms, "From the first byte of a body to its last.";
        uri_bytes_max: size = rest.uri_bytes_max, "A request's URI.";
        headers_bytes_max: size = rest.header_bytes_max, "Names and values of a request's headers together.";
        headers_max: count = rest.headers_max, "The number of headers.";
        header_read_timeout: duration = rest.header_read_timeout_ms, "For the head of a request, from its first byte; and from a connection's beginning to its first request.";
        idle_timeout: duration = rest.idle_timeout_ms, "How long a connection may wait for its next request: longer than a balancer before the node keeps it.";
        write_timeout: duration = rest.write_timeout_ms, "How long a client may take nothing of its answer.";
        proposal_timeout: duration = rest.propose_timeout_ms, "How long a write may take until its outcome counts as unknown.";
        read_timeout: duration = rest.read_timeout_ms, "How long a read may take.";
        page_size_max: count = rest.page_max, "Children, sessions, waiters or locks in one answer.";
        withdrawal_timeout: duration = rest.withdraw_timeout_ms, "How long the node tries to take a waiter out of the queue whose client has gone.";
        shutdown_timeout: duration = rest.shutdown_timeout_ms, "How long open requests may take to end at a clean stop.";
        session_timeout_default: duration = rest.session_timeout_default_ms, "The timeout of a session whose client named none.";
    }
    zookeeper, "Clients that speak ZooKeeper's protocol" {
        listen: listen, basic = zookeeper_listen, "Where ZooKeeper clients connect to, such as `127.0.0.1:2181`; none do unless given.";
        tls_listen: listen = zookeeper_tls_listen, "Where ZooKeeper clients connect to with TLS, as with ZooKeeper's `secureClientPort`; none do unless given.";
        advertised_addr: text = wire.addr, "What ZooKeeper clients are told to connect to, in `/zookeeper/config`; `none` tells nothing; unless given, zookeeper.listen, or zookeeper.tls_listen where only that is, with the host of http_addr where it names none.";
        connections_max: count = wire.connections_max, "Connections of ZooKeeper clients at once; one without a session gives way.";
        connections_per_address_max: count = wire.connections_per_address_max, "Connections from one IPv4 address or one /64 network of IPv6; 0 is a quarter of zookeeper.connections_max.";
        packet_bytes_max: size = wire.packet_bytes_max, "A packet: ZooKeeper's `jute.maxbuffer`.";
        incomplete_packets_bytes_max: size = wire.incomplete_packets_bytes_max, "Packets of all ZooKeeper clients that are not whole yet.";
        connection_requests_max: count = wire.outstanding_max, "Requests of one connection that are not answered yet ...";
        connection_requests_bytes_max: size = wire.outstanding_bytes_max, "... and their bytes.";
        requests_bytes_max: size = wire.requests_bytes_max, "Requests of all ZooKeeper clients that are not answered yet; those of one address have a quarter.";
        writes_max: count = wire.writes_max, "Writes of all ZooKeeper clients on their way at once.";
        watches_max: count = wire.watches_max, "Watches of all ZooKeeper clients of this node; those of one address have a quarter.";
        watches_bytes_max: size = wire.watch_bytes_max, "What those take with their paths, 240 bytes beside each; those of one address have a quarter.";
        connection_watches_max: count = wire.connection_watches_max, "Watches of one connection, so that none takes all of those.";
        connection_answers_bytes_max: size = wire.unread_bytes_max, "Answers and events that one client has not taken yet.";
        answers_bytes_max: size = wire.answers_bytes_max, "Answers to all ZooKeeper clients that are being made or wait for them; the longest is half of it.";
        handshake_timeout: duration = wire.handshake_timeout_ms, "From a connection's beginning to its first whole packet.";
        write_timeout: duration = wire.write_timeout_ms, "How long a client may take nothing of what it is sent.";
        proposal_timeout: duration = wire.propose_timeout_ms, "How long a write or a sync may take until its connection is closed.";
        four_letter_words: text = wire.words, "Four-letter words that are answered, separated by commas; `*` is all.";
    }
    peers, "Other members" {
        listen: listen, basic = peer_listen, "Where peers connect to; the port of this node's peer_addr unless given.";
        timeout: duration = replica.peer_timeout_ms, "One round trip between peers, connecting included.";
    }
    raft, "Elections, replication and what the leader does" {
        heartbeat_interval: duration = replica.heartbeat_ms, "How often an idle leader is heard; at most an eighth of raft.election_timeout_min.";
        election_timeout_min: duration = replica.election_timeout_min_ms, "A follower that hears no leader for this long, at the earliest, stands for election; after half of it when the leader's connection has ended.";
        election_timeout_max: duration = replica.election_timeout_max_ms, "And at the latest; the moment is random between the two.";
        leader_priority: count = replica.leader_priority, "How much this node is preferred as leader, 0 to 100; with 0 it leads only while no other node can.";
        promotion_delay: duration = replica.promote_after_ms, "For so long a new member must have nearly everything before it becomes a voter of itself.";
        reap_interval: duration = replica.tick_ms, "How often the leader looks for silent sessions and for znodes to collect.";
        reap_batch_max: count = replica.reap_batch_max, "Sessions or znodes that one entry of the leader may collect.";
        ready_lag_entries_max: count = replica.ready_lag_max, "A node that is more entries than this behind is not ready.";
    }
    disk, "Log, snapshots and free space" {
        snapshot_log_entries: count = replica.snapshot_log_entries, "A snapshot is built when this many entries were applied since the last one ...";
        snapshot_log_bytes: size = replica.snapshot_log_bytes, "... or this many bytes of entries.";
        kept_log_entries: count = replica.log_entries_kept, "Entries that stay in the log behind a snapshot, for followers that are a little late.";
        free_bytes_min: size = replica.free_disk_min_bytes, "With less free space than this on the disk of node.data_dir, writes are refused.";
        stall_max: duration = replica.disk_stall_max_ms, "A node whose log has waited for the disk for longer is not ready; a leader hands over.";
    }
    limits, "Bounds of the cluster, the same on every node; the leader's count" {
        data_bytes_max: size = replica.limits.data_bytes_max, "Data of one znode.";
        path_bytes_max: size = replica.limits.path_bytes_max, "A path.";
        path_depth_max: count = replica.limits.path_depth_max, "Names in a path.";
        name_bytes_max: size = replica.limits.name_bytes_max, "One name in a path.";
        label_bytes_max: size = replica.limits.label_bytes_max, "Owner and label of a lock, label of a session.";
        children_max: count = replica.limits.children_max, "Children of one znode, waiters included.";
        waiters_max: count = replica.limits.waiters_max, "Contenders for one lock, holders included.";
        znodes_max: count = replica.limits.znodes_max, "All znodes.";
        state_bytes_max: size, basic = replica.limits.state_bytes_max, "Memory of the replicated state, by estimate: data, paths, ACLs, sessions, locks, kept answers and all else. The last fifth is for sessions, and for locks.";
        subtree_bytes_max: size = replica.limits.subtree_bytes_max, "Of that, the znodes below one child of the root, those of sessions apart; 0 is a quarter of what limits.state_bytes_max leaves to znodes.";
        sessions_max: count = replica.limits.sessions_max, "Open sessions.";
        sessions_per_address_max: count = replica.limits.sessions_per_address_max, "Those from one IPv4 address or one /64 network of IPv6; 0 is a quarter of limits.sessions_max.";
        ephemerals_max: count = replica.limits.ephemerals_max, "Ephemeral znodes of one session.";
        ops_max: count = replica.limits.ops_max, "Operations of one transaction.";
        entry_cost_max: count = replica.limits.entry_cost_max, "Znodes that one log entry may make, remove and grant a lock to; the end of one session may take more.";
        acl_entries_max: count = replica.limits.acl_entries_max, "Entries of one ACL.";
        holds_max: count = replica.limits.holds_max, "How often one owner may take a lock that it holds.";
        replies_max: count = replica.limits.replies_max, "Replies kept for repeated idempotency keys, for each session.";
        used_keys_max: count = replica.limits.used_keys_max, "Idempotency keys remembered as used after their reply is gone, for each session.";
        session_timeout_min: duration = replica.limits.session_timeout_min_ms, "The shortest session timeout; a shorter wish is raised to it.";
        session_timeout_max: duration = replica.limits.session_timeout_max_ms, "The longest session timeout; a longer wish is cut to it.";
        lock_delay_max: duration = replica.limits.lock_delay_max_ms, "The longest lock-delay; a longer wish is refused.";
        history_max: count = replica.limits.history_max, "Past grants that each lock remembers, and as many past waits; 512 at most.";
        histories_max: count = replica.limits.histories_max, "Locks that remember any.";
        ended_sessions_max: count = replica.limits.ended_sessions_max, "Ended sessions that are remembered ...";
        ended_sessions_age_max: duration = replica.limits.ended_sessions_ms, "... and for how long.";
        deadlock_looks_max: count = replica.limits.deadlock_looks_max, "Tickets that one acquire looks at to find a deadlock; with more to look at it is let in; 1,024 at most.";
    }
    log, "The log" {
        level: filter, basic = log, "What is logged: error, warn, info, debug, trace or off, or a list such as `info,rest=debug`. SIGHUP reloads it.";
        format: log_format = log_format, "Form of its lines: `text` for people, or `json`, an object in each line.";
        file: file = log_file, "File that it is written to; stderr unless given. SIGHUP opens the file anew, behind logrotate for example.";
    }
    tls, "TLS of both doors" {
        certificate: file, basic = tls.certificate, "PEM file with the certificate that clients are shown, and those of the authorities between it and the root.";
        key: file, basic = tls.key, "PEM file with its private key.";
        client_ca: file = tls_client_ca, "PEM file with the authorities whose certificates clients may show; the subject is `x509` in ACLs. Without it no client is asked for one.";
        client_certificates: text = tls_clients, "Whether clients must show a certificate that tls.client_ca has signed: `optional` or `required`.";
        handshakes_max: count = tls.handshakes_max, "Handshakes of one door at once, and an eighth of them with one address; others wait within tls.handshake_timeout.";
        handshake_timeout: duration = tls.handshake_timeout_ms, "From a connection's beginning to the end of its handshake.";
    }
    admin, "Operators" {
        socket: file, basic = admin_socket, "A Unix socket such as `/run/zlock/admin.sock`, made with mode 0600: all who can connect there are operators. No socket unless given.";
        operators: subjects = rest.operators, "Subjects of certificates whose clients may do what is for operators, a list such as `[\"CN=ops,O=Example\"]`, or one text with `;` between. No client unless given.";
        super_digest: secret = rest.super_digest, "Who proves to be this one, `user:base64(sha1(user:password))`, may do everything; ZooKeeper's `superDigest`. No client unless given.";
    }
}
