//! Data directories of three nodes that an earlier build wrote at format level 1. The present
//! program must open them, answer as the earlier one did, raise the level, and restore a backup.
//!
//! ```sh
//! UPDATE_GOLDENFILES=1 cargo test -p tests --test it kept_directories
//! UPDATE_GOLDENFILES=1 cargo test -p replica --test it kept_directories
//! ```
//!
//! The first command writes the directories again, with the answers of a running cluster. The
//! second command adds log entries that real clusters have rarely. Both are allowed only until the
//! first release.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jute::{Acl, CreateRequest, PathWatch, Request, create_flags, op};
use serde_json::Value;
use testkit::zookeeper::Zk;
use zlock_client::api::Ticket;

use crate::harness::{Call, Client, Cluster, Options, Session, until};
use crate::members::{named, operate};
use crate::restored_from_backup::{begin_from, done, text};

/// Settings: the password of the super user is `secret`, snapshots come often, and one limit is not
/// the default.
const SETTINGS: &str = "admin.super_digest = \"super:lK75jTNcA+U9vtVEw5vB51mj/w4=\"\nraft.promotion_delay = \"200ms\"\ndisk.snapshot_log_entries = 60\nlimits.history_max = 15";
/// Settings with which one log entry may grant a lock to few readers, with few searches of the
/// leader for work, and with a snapshot after each entry, or nearly so.
const NARROW: &str = "raft.reap_interval = \"10s\"\ndisk.snapshot_log_bytes = 1\nlimits.entry_cost_max = 4\nlimits.ops_max = 4\nlimits.path_depth_max = 4\n";
/// Requests whose answers are kept.
const QUESTIONS: [&str; 26] = [
    "/v1/znodes/plain",
    "/v1/znodes/plain?children=stat",
    "/v1/znodes/plain?acl",
    "/v1/znodes/bytes",
    "/v1/znodes/box?children=stat",
    "/v1/znodes/brief",
    "/v1/znodes/own",
    "/v1/znodes/moved",
    "/v1/znodes/here?children=stat",
    "/v1/znodes/zookeeper/quota/plain/zookeeper_limits",
    "/v1/locks/orders",
    "/v1/locks/book",
    "/v1/locks/pool",
    "/v1/locks/deploy",
    "/v1/locks/shared",
    "/v1/locks/left",
    "/v1/locks/right",
    "/v1/locks/tail",
    "/v1/settings/deploy",
    "/v1/settings/pool",
    "/v1/elections/chief",
    "/v1/simple-locks/cron",
    "/v1/history/done",
    "/v1/history/deploy",
    "/v1/history/tail",
    "/v1/admin/members",
];
/// Questions of [`QUESTIONS`] whose answers a restore does not change.
const RESTORED: [&str; 6] = [
    "/v1/znodes/plain",
    "/v1/znodes/bytes",
    "/v1/znodes/box?children=stat",
    "/v1/znodes/brief",
    "/v1/settings/deploy",
    "/v1/znodes/plain?acl",
];
/// Header that proves the super user: `super:secret` in base64.
const AUTHORIZATION: (&str, &str) = ("authorization", "Basic c3VwZXI6c2VjcmV0");
/// Idempotency key of an acquire whose answer is in the directories.
const KEY: &str = "kept-1";

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/level-1").join(name)
}

/// Copies a data directory, but not the files that every start makes anew.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        match name.as_str() {
            "LOCK" | "ballast" => {}
            name if name.ends_with(".copy") || name.ends_with(".new") => {}
            _ if entry.file_type().unwrap().is_dir() => copy(&path, &to.join(name)),
            _ => drop(fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// The answer to a question, without the fields that differ from moment to moment.
async fn answer(client: &mut Client, question: &str) -> Value {
    let mut answer: Value =
        client.send(Call::get(question).header(AUTHORIZATION.0, AUTHORIZATION.1)).await.unwrap().json();
    let fields = answer.as_object_mut().unwrap();
    fields.remove("zxid");
    if question == "/v1/admin/members" {
        fields.retain(|name, _| name == "members" || name == "removed");
        for member in fields["members"].as_array_mut().unwrap() {
            let fields = member.as_object_mut().unwrap();
            fields.retain(|name, _| matches!(name.as_str(), "id" | "peer_addr" | "http_addr" | "zone"));
        }
    }
    answer
}

async fn answers(client: &mut Client, questions: &[&str]) -> BTreeMap<String, Value> {
    let mut answers = BTreeMap::new();
    for question in questions {
        answers.insert((*question).to_owned(), answer(client, question).await);
    }
    answers
}

/// Sends a request that changes something, and returns its answer.
async fn change(client: &mut Client, call: Call) -> Value {
    let sent = client.send(call.header(AUTHORIZATION.0, AUTHORIZATION.1)).await.unwrap();
    assert!((200..300).contains(&sent.status), "{sent:?}");
    sent.json()
}

fn ticket(answer: &Value) -> &str {
    answer["ticket"].as_str().unwrap()
}

/// Makes znodes of every kind.
async fn make_znodes(client: &mut Client, one: &Session) {
    let post = |target: &str| Call::post(format!("/v1/znodes/{target}"));
    change(client, post("plain").body("first")).await;
    change(client, Call::put("/v1/znodes/plain").body("second")).await;
    change(client, post("bytes").body(vec![0, 255, 128])).await;
    change(client, post("box?mode=container")).await;
    change(client, post("box/child").body("in it")).await;
    change(client, post("brief?mode=persistent-ttl&ttl=1000000000000ms")).await;
    change(client, post("plain/n-?mode=persistent-sequential")).await;
    change(client, post("plain/t-?mode=persistent-sequential-ttl&ttl=1000000000000ms")).await;
    change(client, post("own?mode=ephemeral").body("mine").session(one)).await;
    change(client, post("here")).await;
    change(client, post("here/e-?mode=ephemeral-sequential").session(one)).await;
    let acl = r#"[{"perms":"cdrwa","scheme":"world","id":"anyone"},{"perms":"r","scheme":"ip","id":"10.0.0.0/8"}]"#;
    change(client, Call::put("/v1/znodes/plain?acl").body(acl)).await;
    let txn = r#"{"ops":[{"op":"create","path":"/gone"},{"op":"set","path":"/bytes","data_base64":"AP8="},{"op":"check","path":"/bytes","version":1},{"op":"delete","path":"/gone"}]}"#;
    change(client, Call::post("/v1/txn").body(txn)).await;
}

/// Makes locks of every kind, with holders and waiters.
async fn make_locks(client: &mut Client, one: &Session, two: &Session) {
    let post = |target: &str, session: &Session| Call::post(format!("/v1/{target}")).session(session);
    change(client, post("locks/orders?label=worker", one).header("idempotency-key", KEY)).await;
    change(client, post("locks/orders?keep&lock_delay=5s", two).once()).await;
    change(client, Call::post("/v1/revocations/orders")).await;
    let reader = change(client, post("locks/book?mode=read", one).once()).await;
    change(client, post("locks/book?mode=read", two).once()).await;
    change(client, post(&format!("locks/book?upgrade={}&keep", ticket(&reader)), one).once()).await;
    change(client, post("locks/pool?mode=semaphore&permits=2&permits_max=3", one).once()).await;
    change(client, post("locks/pool?mode=semaphore&permits=2&keep", two).once()).await;
    change(client, Call::put("/v1/settings/deploy").body(r#"{"managed":true,"waiters_max":10}"#)).await;
    let holder = change(client, post("locks/deploy", one).once()).await;
    change(client, post("locks/deploy?priority=1&keep", two).once()).await;
    let next = change(client, post("locks/deploy?priority=0&keep&owner=next", two).once()).await;
    change(client, post(&format!("hand-overs{}?to={}", ticket(&holder), ticket(&next)), one)).await;
    let both = r#"{"locks":[{"path":"/left"},{"path":"/right","mode":"write"}],"policy":"backfill","label":"both"}"#;
    change(client, post("multilocks", one).once().body(both)).await;
    change(client, post("multilocks?keep", two).once().body(both)).await;
    change(client, post("elections/chief?label=node-a", one).once()).await;
    change(client, post("simple-locks/cron?owner=job-1", two)).await;
    // A grant, a release, and a wait in vain.
    let held = change(client, post("locks/done", one).once()).await;
    assert_eq!(client.send(post("locks/done?wait=20ms", two).once()).await.unwrap().status, 409);
    change(client, Call::delete(format!("/v1/tickets{}", ticket(&held))).session(one)).await;
}

/// Closes one session, and lets another one expire.
async fn end_sessions(client: &mut Client) {
    let closed = client.open_session(60_000).await;
    change(client, Call::delete(format!("/v1/sessions/{}", closed.id)).session(&closed)).await;
    let expired = client.open_session(2_000).await;
    until("the session has expired", async || {
        let shown = client.send(Call::get(format!("/v1/sessions/{}", expired.id))).await.ok()?;
        (shown.status == 410).then_some(())
    })
    .await;
}

/// Lets the leader delete a znode whose time to live is over.
async fn make_a_reaped_znode(client: &mut Client) {
    change(client, Call::post("/v1/znodes/fleeting?mode=persistent-ttl&ttl=100ms")).await;
    until("the leader has deleted it", async || {
        (client.send(Call::get("/v1/znodes/fleeting")).await.ok()?.status == 404).then_some(())
    })
    .await;
}

/// Opens a ZooKeeper session with an ephemeral znode, and moves the session to another node.
async fn move_a_session(cluster: &Cluster) {
    let doors = [1, 2].map(|id| cluster.zookeeper_endpoint(id).to_owned());
    let client = Zk::open(&doors, 0, Duration::from_secs(300)).await.unwrap();
    let acl = vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }];
    let own = CreateRequest { path: "/moved".into(), data: Vec::new().into(), acl, flags: create_flags::EPHEMERAL };
    client.ask(Request::Create(op::CREATE, own)).await.unwrap();
    client.hop();
    let read = PathWatch { path: "/moved".into(), watch: false };
    until("the session has moved", async || {
        let reply = client.ask(Request::Exists(read.clone())).await.ok()?;
        (reply.connection > 0).then_some(())
    })
    .await;
}

/// Makes a release that lets more readers in than one log entry may, so that the next entry grants
/// the lock to the others. Returns the zxid of the release.
async fn leave_grants_over(client: &mut Client, session: &Session) -> u64 {
    let acquire = |words: &str| Call::post(format!("/v1/locks/shared?{words}")).session(session).once();
    let writer = change(client, acquire("owner=writer")).await;
    for reader in 1..=6 {
        change(client, acquire(&format!("mode=read&keep&owner=reader-{reader}"))).await;
    }
    let release = Call::delete(format!("/v1/tickets{}", ticket(&writer))).session(session);
    change(client, release).await["zxid"].as_u64().unwrap()
}

/// Restarts the nodes with these lines before those of their configurations.
async fn restart_with(cluster: &mut Cluster, lines: &str) {
    let mut configs = Vec::new();
    for id in [1, 2, 3] {
        cluster.kill(id);
        let config = fs::read_to_string(cluster.config(id)).unwrap();
        fs::write(cluster.config(id), format!("{lines}{config}")).unwrap();
        configs.push((id, config));
    }
    [1, 2, 3].into_iter().for_each(|id| cluster.restart(id));
    cluster.all_ready().await;
    for (id, config) in configs {
        fs::write(cluster.config(id), config).unwrap();
    }
}

/// Makes each node write a snapshot with all that was written before, and with grants that are left
/// to the next log entry. A leader proposes this entry when it has searched for work, so it
/// searches rarely.
async fn all_have_snapshots(cluster: &mut Cluster, one: &Session) {
    restart_with(cluster, NARROW).await;
    let mut client = cluster.client(1);
    // A leader answers heartbeats from its first search on. That search also sets the limits.
    until("the leader has searched", async || {
        let beat = Call::post(format!("/v1/sessions/{}/keepalive", one.id)).session(one);
        (client.send(beat).await.ok()?.status == 200).then_some(())
    })
    .await;
    let zxid = leave_grants_over(&mut client, one).await;
    until("all nodes have a snapshot at the last entry", async || {
        for id in [1, 2, 3] {
            let status = cluster.status(id).await?;
            assert!(status.applied_zxid <= zxid, "the leader has searched too soon");
            if status.snapshot.zxid < zxid {
                return None;
            }
        }
        Some(())
    })
    .await;
    cluster.log_is_purged(3).await;
    restart_with(cluster, "").await;
}

/// Writes the directories again, with the answers of the cluster.
async fn make() {
    let options = Options { joining: 2, zookeeper: true, settings: SETTINGS, ..Options::default() };
    let mut cluster = Cluster::prepare(options).await;
    // One of the nodes removes the beginning of its log.
    let config = fs::read_to_string(cluster.config(3)).unwrap();
    fs::write(cluster.config(3), format!("disk.kept_log_entries = 1\n{config}")).unwrap();
    [1, 2, 3].into_iter().for_each(|id| cluster.restart(id));
    cluster.all_ready().await;
    let mut client = cluster.client(1);
    let (one, two) = (client.open_session(300_000).await, client.open_session(300_000).await);
    make_znodes(&mut client, &one).await;
    done(&cluster, &["--user", "super:secret", "quota", "set", "plain", "--count", "1000", "--soft-bytes", "1000000"])
        .await;
    make_locks(&mut client, &one, &two).await;
    end_sessions(&mut client).await;
    make_a_reaped_znode(&mut client).await;
    move_a_session(&cluster).await;
    cluster.start_joining(4).await;
    operate(&cluster, &["member", "add", &named(&cluster, 4), "--zone", "east", "--wait", "60s"]).await;
    // A replacement of a voter passes through a joint membership.
    cluster.start_joining(5).await;
    operate(&cluster, &["member", "replace", "4", &named(&cluster, 5), "--wait", "60s"]).await;
    operate(&cluster, &["member", "remove", "5", "--wait", "60s"]).await;
    // The removed nodes have ended by themselves, or do so soon.
    [4, 5].into_iter().for_each(|id| cluster.kill(id));
    all_have_snapshots(&mut cluster, &one).await;
    // The end of the log, which no snapshot has.
    let acquire = |session: &Session| Call::post("/v1/locks/tail?keep").session(session).once();
    let first = change(&mut client, acquire(&one)).await;
    change(&mut client, acquire(&two)).await;
    change(&mut client, acquire(&one).query("owner=third")).await;
    change(&mut client, Call::delete(format!("/v1/tickets{}", ticket(&first))).session(&one)).await;
    change(&mut client, Call::post("/v1/znodes/box/later")).await;
    operate(&cluster, &["member", "update", "3", "--zone", "west"]).await;
    let kept = answers(&mut client, &QUESTIONS).await;
    for id in [1, 2, 3] {
        cluster.catches_up(id, 1).await;
    }
    for id in [1, 2, 3] {
        cluster.stop(id).await;
        let directory = golden(&format!("node-{id}"));
        let _none = fs::remove_dir_all(&directory);
        copy(cluster.data_dir(id), &directory);
    }
    let keys = [one, two].map(|session| session.key);
    let kept = serde_json::json!({ "session_keys": keys, "answers": kept });
    fs::write(golden("answers.json"), serde_json::to_string_pretty(&kept).unwrap() + "\n").unwrap();
}

/// Starts nodes on copies of the directories.
async fn start() -> Cluster {
    let mut cluster = Cluster::prepare(Options { settings: SETTINGS, ..Options::default() }).await;
    for id in cluster.ids() {
        copy(&golden(&format!("node-{id}")), cluster.data_dir(id));
        cluster.restart(id);
    }
    cluster.all_ready().await;
    cluster
}

#[tokio::test]
async fn directories_of_level_1_open_and_hold_what_they_held() {
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        make().await;
    }
    let kept: Value = serde_json::from_str(&fs::read_to_string(golden("answers.json")).unwrap()).unwrap();
    let expected: BTreeMap<String, Value> = serde_json::from_value(kept["answers"].clone()).unwrap();
    let mut cluster = start().await;
    for id in cluster.ids() {
        let mut client = cluster.client(id);
        for (question, expected) in &expected {
            assert_eq!(&answer(&mut client, question).await, expected, "node {id}: {question}");
        }
    }
    let tail = goes_on(&cluster, &kept).await;
    rolls_up(&mut cluster).await;
    restores(&mut cluster, &expected, tail).await;
}

/// Checks that the sessions, remembered answers and queues in the directories still work. Returns
/// the last fencing token of the lock `/tail`.
async fn goes_on(cluster: &Cluster, kept: &Value) -> u64 {
    let mut client = cluster.client(2);
    let key = |at: usize| kept["session_keys"][at].as_str().unwrap();
    let again =
        change(&mut client, Call::post("/v1/locks/orders?label=worker").session(key(0)).header("idempotency-key", KEY))
            .await;
    assert_eq!(again["ticket"], kept["answers"]["/v1/locks/orders"]["holders"][0]["ticket"]);
    let held = &kept["answers"]["/v1/locks/tail"];
    let (holder, waiter) = (ticket(&held["holders"][0]), ticket(&held["waiters"][0]));
    change(&mut client, Call::delete(format!("/v1/tickets{holder}")).session(key(1))).await;
    let waits = Call::get(format!("/v1/tickets{waiter}?wait=10s")).session(key(0));
    let Ticket::Held { fencing_token, .. } = client.send(waits).await.unwrap().json() else { panic!("{waiter} waits") };
    assert!(fencing_token > held["holders"][0]["fencing_token"].as_u64().unwrap());
    fencing_token
}

/// Raises the cluster's level to the highest one of this program, one above level 1 with the
/// feature `next-level`, and restarts a node.
async fn rolls_up(cluster: &mut Cluster) {
    let raised = operate(cluster, &["upgrade", "finalize"]).await;
    assert!(raised.starts_with("the cluster is at level "), "{raised}");
    cluster.client(1).create("/v1/znodes/raised", "").await;
    cluster.kill(2);
    cluster.restart(2);
    cluster.catches_up(2, 1).await;
    assert_eq!(cluster.client(2).send(Call::get("/v1/znodes/raised")).await.unwrap().status, 200);
}

/// Restores a backup, and checks that only data that belongs to no session is left.
async fn restores(cluster: &mut Cluster, expected: &BTreeMap<String, Value>, token: u64) {
    let dir = tempfile::tempdir().unwrap();
    let (backup, seed, old) = (dir.path().join("backup"), dir.path().join("seed"), dir.path().join("old"));
    operate(cluster, &["backup", "save", text(&backup)]).await;
    done(cluster, &["backup", "verify", text(&backup)]).await;
    let members: Vec<String> = cluster.ids().into_iter().map(|id| named(cluster, id)).collect();
    let (members, seed_name) = (members.join(","), text(&seed));
    let prepare = ["restore", "prepare", text(&backup), "--members", &members, "--no-grace", "--out", seed_name];
    done(cluster, &prepare).await;
    begin_from(cluster, &[1, 2, 3], &seed, &old).await;
    let mut client = cluster.client(3);
    for question in RESTORED {
        assert_eq!(answer(&mut client, question).await, expected[question], "{question}");
    }
    assert_eq!(client.send(Call::get("/v1/znodes/own")).await.unwrap().status, 404);
    let session = client.open_session(Duration::from_secs(60).as_millis() as u64).await;
    let acquire = Call::post("/v1/locks/tail?wait=10s").session(&session).once();
    let Ticket::Held { fencing_token, .. } = client.send(acquire).await.unwrap().json() else { panic!("it is free") };
    assert!(fencing_token > token);
}
