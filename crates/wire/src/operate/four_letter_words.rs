//! Four-letter words, which monitoring tools send. The answers are those of ZooKeeper 3.8, as far
//! as tools read them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};
use std::iter::once;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use replica::{Replica, Role};
use tokio::sync::Semaphore;
use znode::{SessionId, ZPath};

use crate::client::Client;
use crate::client::counters::CountsReading;
use crate::operate::monitor::{self, VERSION, mode};
use crate::request::operations::word;
use crate::session::door::Door;

/// All four-letter words that are known.
const WORDS: [&[u8; 4]; 18] = [
    b"conf", b"cons", b"crst", b"dirs", b"dump", b"envi", b"gtmk", b"hash", b"isro", b"mntr", b"ruok", b"srst",
    b"srvr", b"stat", b"stmk", b"wchc", b"wchp", b"wchs",
];

/// Answer to most words while the node does not serve.
const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";
/// Largest number of lines in a list of connections, sessions, znodes or watches.
const LINES_MAX: usize = 10_000;

/// Tells whether the first four bytes of a connection are a known four-letter word, and not the
/// length of a packet.
pub(crate) fn is_one(word: [u8; 4]) -> bool {
    WORDS.contains(&&word)
}

/// Returns the answer to a four-letter word. Most words walk over all connections, sessions or
/// znodes, so they are answered on another thread, one at a time.
pub(crate) async fn answer(door: &Arc<Door>, word: [u8; 4]) -> String {
    let here = Arc::clone(door);
    answer_in_turn(&door.config.words, word, &door.words, move || answer_here(&here, word)).await
}

/// Makes the answer to a word in `allowed`, or refuses another word. Words that take long are
/// answered one at a time; `turns` has one permit for them.
async fn answer_in_turn(
    allowed: &str,
    word: [u8; 4],
    turns: &Arc<Semaphore>,
    answer: impl FnOnce() -> String + Send + 'static,
) -> String {
    let name = String::from_utf8_lossy(&word);
    if !allowed.split(',').map(str::trim).any(|one| one == "*" || one == name) {
        return format!("{name} is not executed because it is not in the whitelist.\n");
    }
    if matches!(&word, b"ruok" | b"isro" | b"srvr") {
        return answer();
    }
    let Ok(turn) = Arc::clone(turns).acquire_owned().await else { return String::new() };
    let walk = tokio::task::spawn_blocking(move || {
        let answer = answer();
        // The permit is kept until the answer is made, even if the connection has ended.
        drop(turn);
        answer
    });
    walk.await.unwrap_or_default()
}

fn answer_here(door: &Door, word: [u8; 4]) -> String {
    let mut out = String::new();
    let is_always_told = matches!(&word, b"ruok" | b"isro" | b"envi" | b"gtmk" | b"stmk");
    if !is_always_told && !door.is_serving() {
        return NOT_SERVING.to_owned();
    }
    match &word {
        b"ruok" => out.push_str("imok"),
        // `null` is the answer of a ZooKeeper server that searches a leader; zlock has no read-only
        // mode.
        b"isro" => out.push_str(if door.is_serving() { "rw" } else { "null" }),
        // These words are about the mask of ZooKeeper's trace log, which zlock does not have.
        b"gtmk" | b"stmk" => out.push('0'),
        b"hash" => digest(door, &mut out),
        b"srvr" => {
            version(&mut out);
            server(door, &mut out);
        }
        b"stat" => {
            version(&mut out);
            out.push_str("Clients:\n");
            list(door.hub.clients().iter().map(|client| connection(client, false)), &mut out);
            out.push('\n');
            server(door, &mut out);
        }
        b"cons" => {
            list(door.hub.clients().iter().map(|client| connection(client, true)), &mut out);
            out.push('\n');
        }
        b"mntr" => monitor::fields(door, &mut out),
        b"conf" => configuration(door, &mut out),
        b"envi" => environment(&mut out),
        b"dump" => sessions(door, &mut out),
        b"wchs" => {
            let watches = door.hub.watches_by_session();
            let paths: BTreeSet<_> = watches.iter().flat_map(|(_, paths)| paths).collect();
            let _ = writeln!(out, "{} connections watching {} paths", watches.len(), paths.len());
            let _ = writeln!(out, "Total watches:{}", door.hub.watches());
        }
        b"wchc" => list(by_session(&door.hub.watches_by_session()), &mut out),
        b"wchp" => list(by_path(&door.hub.watches_by_session()), &mut out),
        b"crst" => {
            door.hub.clients().iter().for_each(|client| client.counts.reset());
            out.push_str("Connection stats reset.\n");
        }
        b"srst" => {
            door.counts.reset();
            door.unread.reset_peak();
            out.push_str("Server stats reset.\n");
        }
        b"dirs" => {
            let (snapshots, log) = on_disk(door);
            let _ = writeln!(out, "datadir_size: {snapshots}\nlogdir_size: {log}");
        }
        _ => {}
    }
    out
}

/// Writes the present zxid and a digest of the state at that zxid. ZooKeeper instead writes its
/// last recorded digest, of which it makes one every 128 zxids.
fn digest(door: &Door, out: &mut String) {
    let state = door.replica.state();
    let mut last = door.digest.lock();
    let known = last.filter(|(zxid, _)| *zxid == state.last_zxid());
    let (_, digest) = *last.insert(known.unwrap_or_else(|| (state.last_zxid(), Replica::digest(&state))));
    let number = digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    let _ = writeln!(out, "{:x}: {number}", state.last_zxid().0);
}

fn version(out: &mut String) {
    let _ = writeln!(out, "Zookeeper version: {VERSION}");
}

fn server(door: &Door, out: &mut String) {
    let (status, counted) = (door.replica.status(), door.counts.look());
    let CountsReading { latency_min, latency_avg, latency_max, received, sent, outstanding, .. } = counted;
    let _ = writeln!(out, "Latency min/avg/max: {latency_min}/{latency_avg:.4}/{latency_max}");
    let _ = writeln!(out, "Received: {received}\nSent: {sent}\nConnections: {}", door.hub.clients().len());
    let _ = writeln!(out, "Outstanding: {outstanding}\nZxid: 0x{:x}", status.applied.0);
    let _ = writeln!(out, "Mode: {}\nNode count: {}", mode(&status), status.znodes);
    if status.role == Role::Leader && status.members.len() > 1 {
        // Sizes of proposals are not measured; ZooKeeper shows -1 as long as a leader has none.
        out.push_str("Proposal sizes last/min/max: -1/-1/-1\n");
    }
}

fn connection(client: &Client, in_full: bool) -> String {
    let counted = client.counts.look();
    let CountsReading { received, sent, outstanding, latency_min, latency_avg, latency_max, .. } = counted;
    let mut out = format!(" /{}[1](queued={},recved={received},sent={sent}", client.arrival.addr, outstanding);
    if in_full {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let begun = since_1970.saturating_sub(client.since.elapsed());
        let answered = counted.last_micros / 1000;
        let _ = write!(out, ",sid={},lop={}", hex(client.session()), word(counted.last_op));
        let _ = write!(out, ",est={},to={}", begun.as_millis(), client.arrival.timeout.as_millis());
        let _ = write!(out, ",lcxid=0x{:x},lzxid=0x{:x}", counted.last_xid, counted.last_zxid);
        let _ = write!(out, ",lresp={answered},llat={},unread={}", counted.last_latency, client.outbox.unread());
        let _ = write!(out, ",minlat={latency_min},avglat={latency_avg:.0},maxlat={latency_max}");
    }
    out.push_str(")\n");
    out
}

/// Writes the lines of ZooKeeper's `conf` in ZooKeeper's order, with the values of this node.
fn configuration(door: &Door, out: &mut String) {
    let (status, state) = (door.replica.status(), door.replica.state());
    let limits = state.limits();
    for (addr, word) in door.listens_on.into_iter().zip(["clientPort", "secureClientPort"]) {
        let _ = match addr {
            Some(addr) => writeln!(out, "{word}={}\n{word}Address={addr}", addr.port()),
            None => writeln!(out, "{word}=-1"),
        };
    }
    let (dir, (snapshots, log)) = (door.replica.data_dir(), on_disk(door));
    let _ = writeln!(out, "dataDir={}\ndataDirSize={snapshots}", dir.join("sled").display());
    let _ = writeln!(out, "dataLogDir={}\ndataLogSize={log}", dir.join("log").display());
    // By ZooKeeper's default, the shortest session timeout is two ticks.
    let tick_ms = (limits.session_timeout_min_ms / 2).max(1);
    let _ = writeln!(out, "tickTime={tick_ms}\nmaxClientCnxns={}", door.config.connections_per_address_max);
    let _ = writeln!(out, "minSessionTimeout={}", limits.session_timeout_min_ms);
    let _ = writeln!(out, "maxSessionTimeout={}", limits.session_timeout_max_ms);
    let _ = writeln!(out, "clientPortListenBacklog=-1\nserverId={}", status.node_id);
    if status.members.len() > 1 {
        let own = status.members.iter().find(|member| member.id == status.node_id);
        let port = own.and_then(|own| own.peer_addr.rsplit(':').next()).unwrap_or_default();
        // After this many ticks without contact a follower counts as disconnected, whether it is
        // new or not. The values below are fixed: one kind of election, every member a participant,
        // and one port for peers.
        let silence = u64::from(tick_ms).max(door.replica.disconnected_after_ms()) / u64::from(tick_ms);
        let _ = writeln!(out, "initLimit={silence}\nsyncLimit={silence}\nelectionAlg=3");
        let _ = writeln!(out, "electionPort={port}\nquorumPort={port}\npeerType=0");
    }
    let _ = writeln!(out, "jute.maxbuffer={}\nmembership: ", door.config.packet_bytes_max);
    let config = znode::ZPath::parse("/zookeeper/config").expect("a constant");
    let text = state.node(&config).map_or_else(String::new, |node| String::from_utf8_lossy(node.data()).into_owned());
    let _ = writeln!(out, "{text}");
}

fn environment(out: &mut String) {
    let _ = writeln!(out, "Environment:\nzookeeper.version={VERSION}");
    let system = rustix::system::uname();
    let _ = writeln!(out, "host.name={}", system.nodename().to_string_lossy());
    let _ = writeln!(out, "os.name={}\nos.arch={}", std::env::consts::OS, std::env::consts::ARCH);
    let _ = writeln!(out, "os.version={}", system.release().to_string_lossy());
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let _ = writeln!(out, "user.name={}\nuser.home={}", variable("USER"), variable("HOME"));
    let _ = writeln!(out, "user.dir={}", std::env::current_dir().unwrap_or_default().display());
}

fn sessions(door: &Door, out: &mut String) {
    let state = door.replica.state();
    let _ = writeln!(out, "SessionTracker dump:\nGlobal Sessions({}):", state.session_count());
    let all = || state.sessions_from(SessionId(0));
    list(all().map(|session| format!("{}\t{}ms\n", hex(session.id), session.timeout_ms)), out);
    let owners = || all().filter(|session| session.ephemeral_count() > 0);
    let _ = writeln!(out, "ephemeral nodes dump:\nSessions with Ephemerals ({}):", owners().count());
    let lines =
        owners().flat_map(|session| once(format!("{}:\n", hex(session.id))).chain(session.ephemerals().map(indented)));
    list(lines, out);
    // ZooKeeper sorts connections by the expiry of their sessions. Only zlock's leader knows the
    // expiry, so they are sorted by session.
    let clients = door.hub.clients();
    let _ = writeln!(out, "Connections dump:\nConnections Sets (1)/({}):", clients.len());
    let _ = writeln!(out, "{} expire with their sessions:", clients.len());
    let line = |client: &Arc<Client>| format!("\tip: /{} sessionId: {}\n", client.arrival.addr, hex(client.session()));
    list(clients.iter().map(line), out);
}

/// Returns the bytes on disk of the snapshots, and those of the log.
fn on_disk(door: &Door) -> (u64, u64) {
    let dir = door.replica.data_dir();
    (size_of_files(&dir.join("sled"), 3), size_of_files(&dir.join("log"), 3))
}

/// Returns the bytes of the files in a directory and its subdirectories, down to `depth` levels. A
/// file that cannot be read, or is deleted meanwhile, counts 0.
fn size_of_files(dir: &Path, depth: usize) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() && depth > 0 => size_of_files(&entry.path(), depth - 1),
        Ok(found) if found.is_file() => found.len(),
        _ => 0,
    };
    entries.flatten().map(size).sum()
}

/// Sessions of ZooKeeper clients, each with the paths that it watches.
type Watches = [(SessionId, Vec<ZPath>)];

fn by_session(watches: &Watches) -> impl Iterator<Item = String> {
    watches.iter().flat_map(|(session, paths)| once(format!("{}\n", hex(*session))).chain(paths.iter().map(indented)))
}

fn by_path(watches: &Watches) -> impl Iterator<Item = String> {
    let mut by_path = BTreeMap::<_, Vec<SessionId>>::new();
    for (session, paths) in watches {
        paths.iter().for_each(|path| by_path.entry(path).or_default().push(*session));
    }
    let lines = |(path, sessions): (&ZPath, Vec<SessionId>)| {
        once(format!("{path}\n")).chain(sessions.into_iter().map(|session| indented(hex(session))))
    };
    by_path.into_iter().flat_map(lines)
}

/// Writes at most [`LINES_MAX`] lines of a list, and a line that says so if the list is longer.
fn list(mut lines: impl Iterator<Item = String>, out: &mut String) {
    out.extend(lines.by_ref().take(LINES_MAX));
    if lines.next().is_some() {
        let _ = writeln!(out, "... cut: a list has at most {LINES_MAX} lines");
    }
}

fn indented(what: impl Display) -> String {
    format!("\t{what}\n")
}

fn hex(session: SessionId) -> String {
    format!("0x{:x}", session.0)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use futures_util::FutureExt;

    use crate::client::counters::Counts;

    use super::*;

    #[tokio::test]
    async fn a_word_that_goes_through_much_keeps_its_turn_until_it_is_done_also_when_its_client_has_gone() {
        let turns = Arc::new(Semaphore::new(1));
        let (go_on, waits) = channel();
        let walk = move || waits.recv().unwrap();
        let mut answer = Box::pin(answer_in_turn("hash", *b"hash", &turns, walk));
        assert_eq!(answer.as_mut().now_or_never(), None);
        drop(answer);
        assert_eq!(turns.available_permits(), 0, "it goes on without its client");
        go_on.send(String::new()).unwrap();
        let _turn = turns.acquire().await.unwrap();
    }

    #[test]
    fn a_word_that_is_not_allowed_is_refused_without_a_turn() {
        let nothing = String::new;
        let refused = answer_in_turn("srvr,hash", *b"mntr", &Arc::new(Semaphore::new(0)), nothing).now_or_never();
        assert_eq!(refused.unwrap(), "mntr is not executed because it is not in the whitelist.\n");
        let srvr = answer_in_turn("srvr,hash", *b"srvr", &Arc::new(Semaphore::new(0)), nothing).now_or_never();
        assert_eq!(srvr.unwrap(), "");
    }

    /// Makes `sessions` sessions that watch the same `paths` paths.
    fn watches(sessions: i64, paths: usize) -> Vec<(SessionId, Vec<ZPath>)> {
        let paths: Vec<_> = (0..paths).map(|at| ZPath::parse(&format!("/{at}")).unwrap()).collect();
        (1..=sessions).map(|session| (SessionId(session as u64), paths.clone())).collect()
    }

    #[track_caller]
    fn check_lines(lines: impl Iterator<Item = String>, all: usize) {
        let mut out = String::new();
        list(lines, &mut out);
        let cut = "... cut: a list has at most 10000 lines";
        assert_eq!(
            (out.lines().count(), out.ends_with(&format!("{cut}\n"))),
            (all.min(LINES_MAX) + usize::from(all > LINES_MAX), all > LINES_MAX)
        );
    }

    #[test]
    fn a_list_is_cut_by_its_lines_whatever_they_are_about() {
        for (sessions, paths) in [(2, 3), (1, 9_999), (1, 10_000), (3, 9_000), (200, 200), (20_000, 1)] {
            let watches = watches(sessions, paths);
            check_lines(by_session(&watches), sessions as usize * (1 + paths));
            check_lines(by_path(&watches), paths * (1 + sessions as usize));
        }
    }

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
