//! Four-letter words: what monitoring tools ask. The texts are those of ZooKeeper 3.8, as far as tools read them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};

use replica::{NodeStatus, Readiness, Role};
use znode::SessionId;

use crate::client::Client;
use crate::counts::Counted;
use crate::door::Door;

/// Every word that is known.
const WORDS: [&[u8; 4]; 15] = [
    b"conf", b"cons", b"crst", b"dirs", b"dump", b"envi", b"isro", b"mntr", b"ruok", b"srst", b"srvr", b"stat",
    b"wchc", b"wchp", b"wchs",
];
/// What clients and tools compare to know what a server can do, with our own version behind it.
const VERSION: &str = concat!("3.8.0-zlock-", env!("CARGO_PKG_VERSION"));
/// Lines of an answer that lists something for every connection, session or znode.
const LINES_MAX: usize = 10_000;

/// Whether the first four bytes of a connection are a word, and not the length of a packet.
pub(crate) fn is_one(word: [u8; 4]) -> bool {
    WORDS.contains(&&word)
}

/// The answer to a word.
pub(crate) fn answer(door: &Door, word: [u8; 4]) -> String {
    let name = String::from_utf8_lossy(&word);
    let allowed = door.config.words.split(',').map(str::trim).any(|one| one == "*" || one == name);
    if !allowed {
        return format!("{name} is not executed because it is not in the whitelist.\n");
    }
    let mut out = String::new();
    match &word {
        b"ruok" => out.push_str("imok"),
        // As a server of ZooKeeper that looks for a leader: there is no read-only mode.
        b"isro" => out.push_str(match door.replica.status().ready {
            Readiness::Ready | Readiness::Lagging | Readiness::DiskLow => "rw",
            Readiness::Recovering | Readiness::NoQuorum | Readiness::DiskStalled | Readiness::Stopped => "null",
        }),
        b"srvr" => {
            version(&mut out);
            server(door, &mut out);
        }
        b"stat" => {
            version(&mut out);
            out.push_str("Clients:\n");
            door.hub.clients().iter().take(LINES_MAX).for_each(|client| connection(client, false, &mut out));
            out.push('\n');
            server(door, &mut out);
        }
        b"cons" => {
            door.hub.clients().iter().take(LINES_MAX).for_each(|client| connection(client, true, &mut out));
            out.push('\n');
        }
        b"mntr" => monitored(door, &mut out),
        b"conf" => configuration(door, &mut out),
        b"envi" => environment(&mut out),
        b"dump" => sessions(door, &mut out),
        b"wchs" => {
            let watches = door.hub.watches_by_session();
            let paths: BTreeSet<_> = watches.iter().flat_map(|(_, paths)| paths).collect();
            let _ = writeln!(out, "{} connections watching {} paths", watches.len(), paths.len());
            let _ = writeln!(out, "Total watches:{}", door.hub.watches());
        }
        b"wchc" => {
            for (session, paths) in door.hub.watches_by_session().iter().take(LINES_MAX) {
                let _ = writeln!(out, "{}", hex(*session));
                paths.iter().take(LINES_MAX).for_each(|path| indented(path, &mut out));
            }
        }
        b"wchp" => watches_by_path(door, &mut out),
        b"crst" => {
            door.hub.clients().iter().for_each(|client| client.counts.reset());
            out.push_str("Connection stats reset.\n");
        }
        b"srst" => {
            door.counts.reset();
            out.push_str("Server stats reset.\n");
        }
        b"dirs" => {
            // Data lives in the state, which is in memory; what the disk holds is told by /v1/status.
            let _ = writeln!(out, "datadir_size: {}", door.replica.status().snapshot.bytes);
            out.push_str("logdir_size: 0\n");
        }
        _ => {}
    }
    out
}

fn version(out: &mut String) {
    let _ = writeln!(out, "Zookeeper version: {VERSION}, built on unknown");
}

/// ZooKeeper's word for what a node does.
fn mode(status: &NodeStatus) -> &'static str {
    match status.role {
        Role::Leader if status.members.len() == 1 => "standalone",
        Role::Leader => "leader",
        Role::Learner => "observer",
        Role::Follower | Role::Candidate | Role::Stopped => "follower",
    }
}

fn server(door: &Door, out: &mut String) {
    let (status, counted) = (door.replica.status(), door.counts.look());
    let Counted { latency_min, latency_avg, latency_max, received, sent, outstanding, .. } = counted;
    let _ = writeln!(out, "Latency min/avg/max: {latency_min}/{latency_avg:.4}/{latency_max}");
    let _ = writeln!(out, "Received: {received}\nSent: {sent}\nConnections: {}", door.hub.clients().len());
    let _ = writeln!(out, "Outstanding: {outstanding}\nZxid: 0x{:x}", status.applied.0);
    let _ = writeln!(out, "Mode: {}\nNode count: {}", mode(&status), status.znodes);
}

fn connection(client: &Client, in_full: bool, out: &mut String) {
    let Counted { received, sent, outstanding, latency_min, latency_avg, latency_max, last_xid, last_op } =
        client.counts.look();
    let _ = write!(out, " /{}[1](queued={},recved={received},sent={sent}", client.addr, outstanding);
    if in_full {
        let _ = write!(out, ",sid={},lop={last_op}", hex(client.session()));
        let _ = write!(out, ",est={},to={}", client.since.elapsed().as_millis(), client.timeout.as_millis());
        let _ = write!(out, ",lcxid=0x{last_xid:x},unread={}", client.outbox.unread());
        let _ = write!(out, ",minlat={latency_min},avglat={latency_avg:.0},maxlat={latency_max}");
    }
    out.push_str(")\n");
}

fn monitored(door: &Door, out: &mut String) {
    let (status, state, counts) = (door.replica.status(), door.replica.state(), door.counts.look());
    let mut line = |key: &str, value: &dyn Display| {
        let _ = writeln!(out, "zk_{key}\t{value}");
    };
    line("version", &format!("{VERSION}, built on unknown"));
    line("server_state", &mode(&status));
    line("avg_latency", &format!("{:.4}", counts.latency_avg));
    line("min_latency", &counts.latency_min);
    line("max_latency", &counts.latency_max);
    line("packets_received", &counts.received);
    line("packets_sent", &counts.sent);
    line("num_alive_connections", &door.hub.clients().len());
    line("outstanding_requests", &counts.outstanding);
    line("half_packets_bytes", &door.half_packets.bytes());
    line("znode_count", &state.znode_count());
    line("watch_count", &door.hub.watches());
    line("ephemerals_count", &state.sessions_from(SessionId(0)).map(|one| one.ephemeral_count()).sum::<usize>());
    line("approximate_data_size", &state.data_bytes());
    line("global_sessions", &state.session_count());
    line("uptime", &door.since.elapsed().as_millis());
    if let Some((open, max)) = file_descriptors() {
        line("open_file_descriptor_count", &open);
        line("max_file_descriptor_count", &max);
    }
    if status.role == Role::Leader {
        line("quorum_size", &(status.members.len() / 2 + 1));
        line("learners", &(status.members.len() - 1));
    }
}

/// How many file descriptors are open, and how many may be, where the system tells.
fn file_descriptors() -> Option<(usize, u64)> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find(|line| line.starts_with("Max open files"))?;
    Some((open, line.split_whitespace().nth(3)?.parse().ok()?))
}

fn configuration(door: &Door, out: &mut String) {
    let (status, state) = (door.replica.status(), door.replica.state());
    let limits = state.limits();
    for (addr, word) in [(door.listens_on.plain, "clientPort"), (door.listens_on.secure, "secureClientPort")] {
        if let Some(addr) = addr {
            let _ = writeln!(out, "{word}={}\n{word}Address={addr}", addr.port());
        }
    }
    let _ = writeln!(out, "serverId={}", status.node_id);
    let _ = writeln!(out, "maxClientCnxns={}", door.config.connections_max);
    let _ = writeln!(out, "minSessionTimeout={}", limits.session_timeout_min_ms);
    let _ = writeln!(out, "maxSessionTimeout={}", limits.session_timeout_max_ms);
    let _ = writeln!(out, "jute.maxbuffer={}\nmembership: ", door.config.packet_bytes_max);
    let config = znode::ZPath::parse("/zookeeper/config").expect("a constant");
    let text = state.node(&config).map_or_else(String::new, |node| String::from_utf8_lossy(node.data()).into_owned());
    let _ = writeln!(out, "{text}");
}

fn environment(out: &mut String) {
    let _ = writeln!(out, "Environment:\nzookeeper.version={VERSION}, built on unknown");
    let _ = writeln!(out, "os.name={}\nos.arch={}", std::env::consts::OS, std::env::consts::ARCH);
}

fn sessions(door: &Door, out: &mut String) {
    let state = door.replica.state();
    let _ = writeln!(out, "SessionTracker dump:\nGlobal Sessions({}):", state.session_count());
    for session in state.sessions_from(SessionId(0)).take(LINES_MAX) {
        let _ = writeln!(out, "{}\t{}ms", hex(session.id), session.timeout_ms);
    }
    let owners = || state.sessions_from(SessionId(0)).filter(|session| session.ephemeral_count() > 0);
    let _ = writeln!(out, "ephemeral nodes dump:\nSessions with Ephemerals ({}):", owners().count());
    for session in owners().take(LINES_MAX) {
        let _ = writeln!(out, "{}:", hex(session.id));
        session.ephemerals().take(LINES_MAX).for_each(|path| indented(path, out));
    }
}

fn watches_by_path(door: &Door, out: &mut String) {
    let mut paths = BTreeMap::<_, Vec<SessionId>>::new();
    for (session, watched) in door.hub.watches_by_session() {
        watched.into_iter().for_each(|path| paths.entry(path).or_default().push(session));
    }
    for (path, sessions) in paths.iter().take(LINES_MAX) {
        let _ = writeln!(out, "{path}");
        sessions.iter().for_each(|session| indented(&hex(*session), out));
    }
}

fn indented(what: &impl Display, out: &mut String) {
    let _ = writeln!(out, "\t{what}");
}

fn hex(session: SessionId) -> String {
    format!("0x{:x}", session.0)
}

#[cfg(test)]
mod tests {
    use crate::counts::Counts;

    use super::*;

    #[test]
    fn a_word_is_told_from_the_length_of_a_packet() {
        assert!(is_one(*b"ruok") && is_one(*b"mntr"));
        assert!(!is_one([0, 0, 0, 45]) && !is_one(*b"GET ") && !is_one(*b"kill"));
        assert!(WORDS.is_sorted());
        let counts = Counts::default();
        counts.begun(-2, 11);
        assert_eq!((counts.look().last_xid, counts.look().last_op, counts.look().outstanding), (-2, 11, 1));
    }
}
