//! Restores of a lost cluster from a backup, or from the data of one node: fencing tokens never
//! fall, sessions stay ended, and nodes of the old cluster stay out.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use zlock_client::api::{EndCause, ProblemType, Ticket, ZnodeInfo};

use crate::cli::{run, zlock};
use crate::harness::{Call, Cluster, Options, Session, until};

/// Configuration lines: the operator is the super user `super:test`, and session timeouts are
/// short, but long enough for the checks in the time after a restore in which no lock is granted.
const SETTINGS: &str =
    "admin.super_digest = \"super:D/InIHSb7yEEbrWz8b9l71RjZJU=\"\nlimits.session_timeout_max = \"15s\"";
const LOCKS: [&str; 2] = ["orders", "invoices"];

/// Starts a cluster, and waits until the limit of 15 s on session timeouts is in force. After a
/// restore no lock is granted for the longest session timeout in the backup, so the limit keeps the
/// test short.
async fn cluster() -> Cluster {
    let cluster = Cluster::start_with(Options { settings: SETTINGS, zookeeper: true, ..Options::default() }).await;
    until("no session is longer than the limit", async || {
        let session = cluster.client(1).open_session(60_000).await;
        cluster.client(1).send(Call::delete(format!("/v1/sessions/{}", session.id)).session(&session)).await.ok()?;
        (session.timeout_ms == 15_000).then_some(())
    })
    .await;
    cluster
}

/// Runs a command as the operator. Returns its exit code and its output.
pub(crate) async fn zlock_as_operator(cluster: &Cluster, args: &[&str]) -> (i32, String) {
    let mut command = zlock(cluster, args);
    if args[0] == "backup" {
        command.env("ZLOCK_USER", "super:test");
    }
    let (code, stdout, stderr) = run(command).await;
    (code, stdout + &stderr)
}

pub(crate) async fn done(cluster: &Cluster, args: &[&str]) -> String {
    let (code, said) = zlock_as_operator(cluster, args).await;
    assert_eq!(code, 0, "{args:?}: {said}");
    said
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The members with these ids, in the form of the option `--members`.
fn members(cluster: &Cluster, ids: &[u64]) -> String {
    let config: toml::Table = std::fs::read_to_string(cluster.config(1)).unwrap().parse().unwrap();
    let all = config["node"]["members"].as_array().unwrap().iter();
    let word = |member: &toml::Value, name: &str| member[name].as_str().unwrap().to_owned();
    let chosen = all.filter(|member| ids.contains(&(member["id"].as_integer().unwrap() as u64)));
    let member =
        |member: &toml::Value| format!("{}={}/{}", member["id"], word(member, "peer_addr"), word(member, "http_addr"));
    chosen.map(member).collect::<Vec<_>>().join(",")
}

/// Highest fencing token that was seen for each lock, as a protected resource keeps it.
#[derive(Default)]
struct Memory(BTreeMap<&'static str, u64>);

impl Memory {
    fn see(&mut self, lock: &'static str, token: u64) {
        let before = self.0.insert(lock, token).unwrap_or(0);
        assert!(token > before, "{lock}: token {token} after {before}");
    }
}

/// Takes each lock in a new session, checks its fencing token against `memory`, and releases it.
async fn take_locks(cluster: &Cluster, memory: &mut Memory) {
    for lock in LOCKS {
        let session = open(cluster).await;
        let acquire = Call::post(format!("/v1/locks/{lock}?wait=10s")).session(&session).once();
        let held: Ticket = until("the lock is granted", async || {
            let answer = cluster.client(2).send(acquire.clone()).await.ok()?;
            (answer.status == 200 || answer.status == 201).then(|| answer.json())
        })
        .await;
        let Ticket::Held { fencing_token, ticket, .. } = held else { panic!("{lock} is not free: {held:?}") };
        memory.see(lock, fencing_token);
        let release = Call::delete(format!("/v1/tickets{ticket}")).session(&session);
        cluster.client(2).send(release).await.unwrap();
    }
}

async fn open(cluster: &Cluster) -> Session {
    let ready = async || cluster.client(2).is_ready().await.then_some(());
    until("the node serves", ready).await;
    cluster.client(2).open_session(15_000).await
}

/// Kills the nodes `ids`, moves their data to `old`, and starts them with new data from `seed`, the
/// output of `zlock restore prepare`.
pub(crate) async fn begin_from(cluster: &mut Cluster, ids: &[u64], seed: &Path, old: &Path) {
    std::fs::create_dir(old).unwrap();
    for id in ids {
        cluster.kill(*id);
        std::fs::rename(cluster.data_dir(*id), old.join(id.to_string())).unwrap();
    }
    for id in ids {
        let (number, dir) = (id.to_string(), text(cluster.data_dir(*id)).to_owned());
        let args = ["restore", "apply", text(seed), "--node-id", &number, "--data-dir", &dir];
        done(cluster, &args).await;
        let again = zlock_as_operator(cluster, &args).await;
        assert!(again.0 == 1 && again.1.contains("is not empty"), "{again:?}");
    }
    for id in ids {
        cluster.restart(*id);
    }
    cluster.all_ready().await;
}

/// Tells whether a ZooKeeper client gets an answer when it opens a session.
fn zookeeper_lets_in(addr: &str) -> bool {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut request = vec![0, 0, 0, 44];
    request.extend([0; 12]);
    request.extend(15_000_u32.to_be_bytes());
    request.extend([0; 8]);
    request.extend(16_u32.to_be_bytes());
    request.extend([0; 16]);
    stream.write_all(&request).unwrap();
    matches!(stream.read(&mut [0; 4]), Ok(read) if read > 0)
}

#[tokio::test]
async fn a_restored_cluster_gives_only_larger_tokens_and_waits_for_clients_of_before() {
    let mut cluster = cluster().await;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (mut memory, all) = (Memory::default(), members(&cluster, &[1, 2, 3]));
    cluster.client(1).create("/v1/znodes/kept", "before").await;
    let seen = cluster.client(1).send(Call::get("/v1/znodes/kept")).await.unwrap().zxid().unwrap();
    take_locks(&cluster, &mut memory).await;
    let held = open(&cluster).await;
    let acquire = Call::post("/v1/locks/held?wait=5s").session(&held).once();
    assert_eq!(cluster.client(1).send(acquire).await.unwrap().status, 200);
    let backup = at("first.zlock-backup");
    done(&cluster, &["backup", "save", text(&backup)]).await;
    assert!(done(&cluster, &["backup", "verify", text(&backup)]).await.starts_with("good: test at zxid"));
    // Changes after the backup are lost. A protected resource still knows the tokens that it has
    // seen.
    take_locks(&cluster, &mut memory).await;
    cluster.client(1).create("/v1/znodes/lost", "after").await;

    done(&cluster, &["restore", "prepare", text(&backup), "--members", &all, "--out", text(&at("seed"))]).await;
    begin_from(&mut cluster, &[1, 2, 3], &at("seed"), &at("old")).await;
    let kept: ZnodeInfo = cluster.client(3).send(Call::get("/v1/znodes/kept")).await.unwrap().json();
    assert_eq!(kept.data.as_deref(), Some("before"));
    assert_eq!(cluster.client(3).send(Call::get("/v1/znodes/lost")).await.unwrap().status, 404);
    // A client that watches on is told that it may have missed events.
    let watch = Call::get(format!("/v1/znodes/kept?watch=data&since={seen}&wait=30s"));
    let gone = cluster.client(3).send(watch).await.unwrap();
    assert_eq!((gone.status, gone.problem().kind()), (410, Some(ProblemType::EventsGone)), "{gone:?}");
    refuses_for_now(&cluster, &held).await;
    take_locks(&cluster, &mut memory).await;
    assert!(zookeeper_lets_in(cluster.zookeeper_endpoint(1)));

    // The first backup is restored once more, after all these grants.
    let again = ["restore", "prepare", text(&backup), "--members", &all, "--no-grace", "--out"];
    done(&cluster, &[&again[..], &[text(&at("seed2"))]].concat()).await;
    begin_from(&mut cluster, &[1, 2, 3], &at("seed2"), &at("old2")).await;
    take_locks(&cluster, &mut memory).await;
    stays_out(&mut cluster, &at("old").join("3")).await;
    take_locks(&cluster, &mut memory).await;
}

/// Checks the refusals within the grace, the time after a restore in which no lock is granted: of
/// an acquire, of a ZooKeeper client, and of a session from before the restore.
async fn refuses_for_now(cluster: &Cluster, held: &Session) {
    let session = open(cluster).await;
    for id in cluster.ids() {
        let acquire = Call::post("/v1/locks/orders?wait=5s").session(&session).once();
        let answer = cluster.client(id).send(acquire).await.unwrap();
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.problem().kind(), Some(ProblemType::Restoring), "{answer:?}");
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    }
    assert!(!zookeeper_lets_in(cluster.zookeeper_endpoint(1)));
    let gone = cluster.client(1).send(Call::get(format!("/v1/sessions/{}", held.id))).await.unwrap();
    assert_eq!((gone.status, gone.problem().ended.unwrap().how), (410, EndCause::Restored));
    let kept_alive = Call::post(format!("/v1/sessions/{}/keepalive", held.id)).session(held);
    assert_eq!(cluster.client(1).send(kept_alive).await.unwrap().status, 410);
}

/// Checks that a node with the old cluster's data is no member of the new one.
async fn stays_out(cluster: &mut Cluster, old: &Path) {
    cluster.kill(3);
    cluster.wipe(3);
    std::fs::rename(old, cluster.data_dir(3)).unwrap();
    let before = cluster.log(3).len();
    cluster.restart(3);
    until("its peers turn it away by its uuid", async || {
        let said = cluster.log(3)[before..].contains("uuid") || cluster.log(1).contains("uuid");
        let left_out = cluster.status(3).await.is_some_and(|status| status.status != "ready");
        (said && left_out).then_some(())
    })
    .await;
    until("the other two have a leader", async || cluster.status(1).await?.leader.filter(|leader| *leader != 3)).await;
}

#[tokio::test]
async fn one_node_that_is_left_of_three_is_enough_to_begin_again() {
    let mut cluster = cluster().await;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| -> PathBuf { dir.path().join(name) };
    let mut memory = Memory::default();
    cluster.client(1).create("/v1/znodes/kept", "acknowledged").await;
    take_locks(&cluster, &mut memory).await;
    cluster.catches_up(2, 1).await;
    let refused = zlock_as_operator(&cluster, &["recover", "--inspect", "--data-dir", text(dir.path())]).await;
    assert!(refused.0 == 1 && refused.1.contains("no data directory of a node"), "{refused:?}");
    cluster.kill(1);
    cluster.kill(3);
    // The survivor has no quorum, and saves what it has applied.
    let local = at("local");
    done(&cluster, &["backup", "save", "--local", text(&local)]).await;
    let inspected = done(&cluster, &["backup", "inspect", text(&local)]).await;
    assert!(inspected.contains("without asking a quorum"), "{inspected}");
    done(&cluster, &["backup", "verify", text(&local)]).await;
    // A node that is killed may have applied entries that are not on its disk.
    cluster.stop(2).await;
    cluster.wipe(1);
    cluster.wipe(3);
    let survivor = text(cluster.data_dir(2)).to_owned();
    let inspected = done(&cluster, &["recover", "--data-dir", &survivor, "--inspect", "--json"]).await;
    let inspected: serde_json::Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!((&inspected["node_id"], &inspected["joined"]), (&2.into(), &true.into()), "{inspected}");
    assert!(inspected["last"]["zxid"].as_u64() >= inspected["committed"]["zxid"].as_u64(), "{inspected}");
    let (all, seed) = (members(&cluster, &[1, 2, 3]), at("seed"));
    let recover = ["recover", "--data-dir", &survivor, "--members", &all, "--no-grace", "--out", text(&seed)];
    let said = done(&cluster, &recover).await;
    assert!(said.contains("node 2 has entries up to") && said.contains("tokens from now on are above"), "{said}");
    // The survivor itself is unchanged.
    assert!(done(&cluster, &["recover", "--data-dir", &survivor, "--inspect"]).await.contains("last entry"));
    for id in [1, 3] {
        std::fs::create_dir(cluster.data_dir(id)).unwrap();
    }
    begin_from(&mut cluster, &[1, 2, 3], &seed, &at("old")).await;
    let kept: ZnodeInfo = cluster.client(1).send(Call::get("/v1/znodes/kept")).await.unwrap().json();
    assert_eq!(kept.data.as_deref(), Some("acknowledged"));
    take_locks(&cluster, &mut memory).await;
}

#[tokio::test]
async fn files_that_cannot_be_trusted_are_refused_in_words() {
    let mut cluster = Cluster::start_with(Options { nodes: 1, settings: SETTINGS, ..Options::default() }).await;
    let dir = tempfile::tempdir().unwrap();
    let (file, bad) = (dir.path().join("b"), dir.path().join("bad"));
    done(&cluster, &["backup", "save", text(&file)]).await;
    let saved = done(&cluster, &["backup", "save", "--dir", text(dir.path()), "--keep", "1"]).await;
    assert!(saved.contains(".zlock-backup: test at zxid"), "{saved}");
    // A backup that goes to stdout is a whole file, too.
    let mut to_stdout = zlock(&cluster, &["backup", "save", "-"]);
    to_stdout.env("ZLOCK_USER", "super:test");
    let output = tokio::task::spawn_blocking(move || to_stdout.output().unwrap()).await.unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    std::fs::write(&bad, output.stdout).unwrap();
    assert!(done(&cluster, &["backup", "verify", text(&bad)]).await.starts_with("good: test at zxid"));
    assert!(done(&cluster, &["backup", "inspect", text(&bad)]).await.contains("SHA-256"));
    std::fs::remove_file(&bad).unwrap();
    // A client that is no operator is refused, and no file is left of the try.
    let (code, said) = {
        let (code, stdout, stderr) = run(zlock(&cluster, &["backup", "save", text(&bad)])).await;
        (code, stdout + &stderr)
    };
    assert!(code == 1 && said.contains("for operators"), "{said}");
    let mut names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!bad.exists() && !names.any(|name| text(Path::new(&name)).ends_with(".part")));

    let bytes = std::fs::read(&file).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    let mut newer = bytes.clone();
    newer[8] = 9;
    for (content, words) in [
        (&bytes[..bytes.len() - 5], "it is cut off after"),
        (&flipped, "it is damaged"),
        (&newer, "version 9, and this program reads up to 1"),
        (&b"something else"[..], "no backup of zlock"),
    ] {
        std::fs::write(&bad, content).unwrap();
        let seed = dir.path().join("seed");
        let prepare = ["restore", "prepare", text(&bad), "--members", "1=a:1/a:2", "--out", text(&seed)];
        let apply = ["restore", "apply", text(&bad), "--node-id", "1", "--data-dir", text(&seed)];
        for args in [&["backup", "inspect", text(&bad)][..], &["backup", "verify", text(&bad)], &prepare, &apply] {
            let (code, said) = zlock_as_operator(&cluster, args).await;
            assert!(code == 1 && said.contains(words), "{args:?}: {code}: {said}");
        }
        assert!(!seed.exists());
    }
    let low = ["restore", "prepare", text(&file), "--members", "1=a:1/a:2", "--out", text(&bad)];
    let (code, said) = zlock_as_operator(&cluster, &low).await;
    assert!(code == 1 && said.contains("is there already"), "{said}");
    cluster.kill(1);
}

/// Header that proves the super user `super:test`.
const SUPER: &str = "Basic c3VwZXI6dGVzdA==";

#[tokio::test]
async fn a_node_makes_one_backup_at_a_time() {
    let cluster = Cluster::start_with(Options { nodes: 1, settings: SETTINGS, ..Options::default() }).await;
    // Random bytes cannot be compressed, and are more than the sockets of a connection hold.
    let mut data = vec![0; 1_000_000];
    for at in 0..16 {
        std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut data).unwrap();
        cluster.client(1).create(&format!("/v1/znodes/{at}"), data.clone()).await;
    }
    let endpoint = cluster.endpoint(1);
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut slow = socket.connect(endpoint.parse().unwrap()).await.unwrap();
    let head = format!("GET /v1/admin/backup HTTP/1.1\r\nhost: {endpoint}\r\nauthorization: {SUPER}\r\n\r\n");
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    slow.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    // The first client reads no further, so its backup stays under way.
    let backup = Call::get("/v1/admin/backup").header("authorization", SUPER);
    let second = cluster.client(1).send(backup.clone()).await.unwrap();
    assert_eq!((second.status, second.problem().kind()), (429, Some(ProblemType::TooMany)), "{second:?}");
    assert!(second.headers.contains_key("retry-after"), "{second:?}");
    drop(slow);
    let third = async || cluster.client(1).send(backup.clone()).await.ok().filter(|answer| answer.status == 200);
    let third = until("the first backup is given up", third).await;
    assert!(third.body.len() > 16 * data.len());
}

/// Runs `zlock restore prepare` with these options. Returns the first fencing token's lower bound
/// and the grace in milliseconds, or the words of a refusal.
async fn prepare(cluster: &Cluster, backup: &Path, options: &[&str]) -> Result<(u64, u64), String> {
    let out = backup.with_extension("seed");
    let args = ["restore", "prepare", text(backup), "--members", "1=a:1/a:2", "--json", "--out", text(&out)];
    let (code, said) = zlock_as_operator(cluster, &[&args[..], options].concat()).await;
    if code != 0 {
        return Err(said);
    }
    std::fs::remove_file(&out).unwrap();
    let seed: serde_json::Value = serde_json::from_str(&said).unwrap();
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    Ok((number(&seed["manifest"]["zxid_base"]), number(&seed["manifest"]["decided"]["grace_ms"])))
}

/// The cluster's zxids are those of a clock that was far ahead, so a restore needs a floor for
/// fencing tokens.
#[tokio::test]
async fn a_restore_goes_by_the_floor_of_tokens_and_the_time_down() {
    const FLOOR: u64 = 4_000_001_000_000_000;
    let settings = "admin.super_digest = \"super:D/InIHSb7yEEbrWz8b9l71RjZJU=\"\nnode.zxid_base = 4000000000000000";
    let cluster = Cluster::start_with(Options { nodes: 1, settings, ..Options::default() }).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("b");
    done(&cluster, &["backup", "save", text(&file)]).await;
    let floor = FLOOR.to_string();
    let with_floor = ["--token-floor", &floor];

    let why = prepare(&cluster, &file, &[]).await.unwrap_err();
    assert!(why.contains("fencing tokens could fall") && why.contains("set the clock right, or give"), "{why}");
    let why = prepare(&cluster, &file, &["--token-floor", "1"]).await.unwrap_err();
    let (_, least) = why.split_once("more than the largest token that was ever seen, at least ").expect(&why);
    let least: String = least.chars().take_while(char::is_ascii_digit).collect();
    assert!(prepare(&cluster, &file, &["--token-floor", &least]).await.is_ok(), "{least}");
    let why = prepare(&cluster, &file, &["--token-floor", &u64::MAX.to_string()]).await.unwrap_err();
    assert!(why.contains("give a smaller --token-floor"), "{why}");
    let (base, grace_ms) = prepare(&cluster, &file, &with_floor).await.unwrap();
    assert_eq!((base, grace_ms), (FLOOR, 300_000));

    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let down = async |since: u64| {
        let since = since.to_string();
        prepare(&cluster, &file, &[&with_floor[..], &["--down-since", &since]].concat()).await
    };
    let (_, grace_ms) = down(now - 30).await.unwrap();
    assert!(grace_ms > 0 && grace_ms <= 270_000, "{grace_ms}");
    let why = down(now - 301).await.unwrap_err();
    assert!(why.contains("--down-since is before 20") && why.contains("when the old cluster still worked"), "{why}");
    let longer = [&with_floor[..], &["--session-timeout-max", "1h"]].concat();
    assert_eq!(prepare(&cluster, &file, &longer).await, Ok((FLOOR, 3_600_000)));
    let why = down(now + 1_000).await.unwrap_err();
    assert!(why.contains("--down-since is in the future"), "{why}");
    let both = prepare(&cluster, &file, &["--no-grace", "--down-since", "1"]).await.unwrap_err();
    assert!(both.contains("cannot be used with"), "{both}");
}
