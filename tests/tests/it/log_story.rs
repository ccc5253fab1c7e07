//! Logs of nodes that are killed, cut off and healed: the log of each node says what happened.

use std::collections::BTreeMap;

use serde_json::Value;
use zlock_client::api::Ticket;

use crate::harness::{Call, Cluster, Options, until};

/// Format of log lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

/// Fields that a line must have besides its message.
type Fields<'a> = &'a [(&'a str, String)];

fn is(name: &str, value: impl ToString) -> (&str, String) {
    (name, value.to_string())
}

/// Tells whether a line has this message and these fields.
fn says(format: Format, line: &str, message: &str, fields: Fields<'_>) -> bool {
    match format {
        Format::Text => {
            let has = |(name, value): &(&str, String)| {
                let words: Vec<&str> = line.split(' ').collect();
                words.contains(&&*format!("{name}={value}")) || words.contains(&&*format!("{name}=\"{value}\""))
            };
            line.contains(&format!(": {message} ")) && fields.iter().all(has)
        }
        Format::Json => {
            let Ok(Value::Object(object)) = serde_json::from_str(line) else { return false };
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let has = |(name, value): &(&str, String)| object.get(*name).is_some_and(|had| text(had) == *value);
            object.get("message").is_some_and(|had| text(had) == message) && fields.iter().all(has)
        }
    }
}

/// Reader of a cluster's logs.
struct Reader {
    format: Format,
    /// For each node, the number of bytes at the beginning of its log that are skipped, because
    /// earlier checks have read them.
    read: BTreeMap<u64, usize>,
}

impl Reader {
    /// Notes the present lengths of all logs, so that only later lines count from now on.
    fn turn_the_page(&mut self, cluster: &Cluster) {
        self.read = cluster.ids().into_iter().map(|id| (id, cluster.log(id).len())).collect();
    }

    /// Lines of a node since the last [`Reader::turn_the_page`], with this message and these
    /// fields.
    fn lines(&self, cluster: &Cluster, id: u64, message: &str, fields: Fields<'_>) -> Vec<String> {
        let log = cluster.log(id);
        let page = log.get(self.read.get(&id).copied().unwrap_or(0)..).unwrap_or_default();
        page.lines().filter(|line| says(self.format, line, message, fields)).map(str::to_owned).collect()
    }

    /// Waits for a line that [`Reader::lines`] finds, and returns it.
    async fn tells(&self, cluster: &Cluster, id: u64, message: &str, fields: Fields<'_>) -> String {
        let what = format!("node {id} tells `{message}` with {fields:?}");
        until(&what, async || self.lines(cluster, id, message, fields).pop()).await
    }
}

fn others(cluster: &Cluster, id: u64) -> Vec<u64> {
    cluster.ids().into_iter().filter(|other| *other != id).collect()
}

/// Checks the begin of a cluster: every node logs its start, its peers, its leader, and that it is
/// ready.
async fn begin(reader: &Reader, cluster: &Cluster) -> u64 {
    let leader = cluster.leader().await;
    for id in cluster.ids() {
        let version = is("version", env!("CARGO_PKG_VERSION"));
        let started = [is("node_id", id), is("data", "new"), is("zxid", 0), is("term", 0), version];
        reader.tells(cluster, id, "started", &started).await;
        for other in others(cluster, id) {
            reader.tells(cluster, id, "peer reachable", &[is("peer", other)]).await;
        }
        reader.tells(cluster, id, "a quorum is connected", &[]).await;
        reader.tells(cluster, id, "ready", &[]).await;
    }
    leader
}

/// Deletes a holder's ticket in another session. Checks that every node logs the client that did
/// it.
async fn force(reader: &mut Reader, cluster: &Cluster, leader: u64) {
    reader.turn_the_page(cluster);
    let mut client = cluster.client(leader);
    let (holder, thief) = (client.open_session(60_000).await, client.open_session(60_000).await);
    let held = client.ask(Call::post("/v1/locks/l?wait=5s").session(&holder).once()).await;
    let Ticket::Held { ticket, .. } = held.json() else { panic!("the lock is free") };
    let delete = Call::delete(format!("/v1/znodes{ticket}")).session(&thief).once();
    assert_eq!(client.ask(delete).await.status, 200);
    let fields = [
        is("ticket", ticket),
        is("session", holder.id),
        is("by_session", thief.id),
        is("by_label", "test"),
        is("how", "deleted"),
    ];
    for id in cluster.ids() {
        reader.tells(cluster, id, "a lock was taken from its session", &fields).await;
    }
}

/// Kills the leader by SIGKILL, and starts it again. Checks that the node does not repeat lines
/// about what it applies from its log.
async fn kill(reader: &mut Reader, cluster: &mut Cluster, leader: u64) -> u64 {
    reader.turn_the_page(cluster);
    cluster.kill(leader);
    let left = others(cluster, leader);
    let next = cluster.leader_among(&left).await;
    reader.tells(cluster, next, "this node leads", &[]).await;
    for id in left.clone() {
        reader.tells(cluster, id, "the leader is lost", &[is("leader", leader)]).await;
        reader.tells(cluster, id, "peer unreachable", &[is("peer", leader)]).await;
        if id != next {
            reader.tells(cluster, id, "following a leader", &[is("leader", next)]).await;
        }
    }
    reader.turn_the_page(cluster);
    cluster.restart(leader);
    cluster.all_ready().await;
    reader.tells(cluster, leader, "started", &[is("data", "found")]).await;
    reader.tells(cluster, leader, "ready", &[]).await;
    let again = reader.lines(cluster, leader, "a lock was taken from its session", &[]);
    assert!(again.is_empty(), "an entry that was in the log before the start is logged again: {again:#?}");
    for id in left {
        reader.tells(cluster, id, "peer reachable", &[is("peer", leader)]).await;
    }
    cluster.leader().await
}

/// Cuts the leader off silently, and heals the network.
async fn cut(reader: &mut Reader, cluster: &mut Cluster, leader: u64) {
    reader.turn_the_page(cluster);
    cluster.isolate(leader);
    let left = others(cluster, leader);
    for other in &left {
        let fields = [is("peer", other), is("reason", "timed-out")];
        reader.tells(cluster, leader, "peer unreachable", &fields).await;
        reader.tells(cluster, *other, "peer unreachable", &[is("peer", leader), is("reason", "timed-out")]).await;
        reader.tells(cluster, *other, "the leader is lost", &[is("leader", leader)]).await;
    }
    reader.tells(cluster, leader, "the quorum is lost", &[is("role", "leader")]).await;
    reader.tells(cluster, leader, "not ready", &[is("why", "no-quorum")]).await;
    let next = cluster.leader_among(&left).await;
    reader.tells(cluster, next, "this node leads", &[]).await;
    for other in &left {
        let lines = reader.lines(cluster, leader, "peer unreachable", &[is("peer", other)]);
        assert!(lines.len() <= 3, "there is a line for a change and none for a try: {lines:#?}");
    }
    reader.turn_the_page(cluster);
    cluster.heal();
    cluster.all_ready().await;
    reader.tells(cluster, leader, "this node leads no more", &[]).await;
    reader.tells(cluster, leader, "a quorum is connected", &[]).await;
    reader.tells(cluster, leader, "ready", &[]).await;
    for other in left {
        reader.tells(cluster, other, "peer reachable", &[is("peer", leader)]).await;
        reader.tells(cluster, leader, "peer reachable", &[is("peer", other)]).await;
    }
}

/// Kills two of three nodes, and starts them again; then stops one node cleanly. Checks the logs.
async fn end(reader: &mut Reader, cluster: &mut Cluster) {
    let leader = cluster.leader().await;
    reader.turn_the_page(cluster);
    let (gone, last) = (others(cluster, leader), leader);
    gone.iter().for_each(|id| cluster.kill(*id));
    reader.tells(cluster, last, "the quorum is lost", &[]).await;
    reader.tells(cluster, last, "not ready", &[is("why", "no-quorum")]).await;
    reader.turn_the_page(cluster);
    gone.iter().for_each(|id| cluster.restart(*id));
    cluster.all_ready().await;
    reader.tells(cluster, last, "a quorum is connected", &[]).await;
    reader.tells(cluster, last, "ready", &[]).await;
    assert_eq!(cluster.stop(last).await, Some(0));
    reader.tells(cluster, last, "stopping", &[is("reason", "SIGTERM")]).await;
    reader.tells(cluster, last, "stopped", &[]).await;
}

async fn story(format: Format, settings: &'static str) {
    let mut cluster = Cluster::start_with(Options { settings, proxied: true, ..Options::default() }).await;
    let mut reader = Reader { format, read: BTreeMap::new() };
    let leader = begin(&reader, &cluster).await;
    force(&mut reader, &cluster, leader).await;
    let leader = kill(&mut reader, &mut cluster, leader).await;
    cut(&mut reader, &mut cluster, leader).await;
    end(&mut reader, &mut cluster).await;
    for id in cluster.ids() {
        let log = cluster.log(id);
        // The one line on stdout is for people in any format.
        for line in log.lines().filter(|line| format == Format::Json && !line.starts_with("zlock node ")) {
            assert!(serde_json::from_str::<Value>(line).is_ok_and(|line| line.is_object()), "{line}");
        }
    }
}

#[tokio::test]
async fn each_node_tells_what_became_of_the_cluster() {
    story(Format::Text, "").await;
}

#[tokio::test]
async fn each_node_tells_it_as_json() {
    story(Format::Json, "log.format = \"json\"").await;
}

#[tokio::test]
async fn a_wrong_cluster_id_is_told_once_and_then_counted() {
    let mut cluster = Cluster::prepare(Options::default()).await;
    let config = cluster.config(3).to_owned();
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("node.cluster_id = \"test\"", "node.cluster_id = \"other\"")).unwrap();
    cluster.ids().into_iter().for_each(|id| cluster.restart(id));
    let reader = Reader { format: Format::Text, read: BTreeMap::new() };
    for peer in [1, 2] {
        let turned_away = [is("peer", peer), is("reason", "turned-away")];
        reader.tells(&cluster, 3, "peer unreachable", &turned_away).await;
    }
    let refused = "refused at the peer port: no member says this";
    // The second line has the number of tries since the first line.
    let lines = until("node 1 counts what it refuses", async || {
        let lines = reader.lines(&cluster, 1, refused, &[]);
        (lines.len() > 1).then_some(lines)
    })
    .await;
    assert!(lines[0].contains("of cluster `test`, not of cluster `other`"), "{lines:#?}");
    let times: u64 = lines[1].rsplit_once("times=").unwrap().1.parse().unwrap();
    assert!(times > 20, "{lines:#?}");
    for id in cluster.ids() {
        let warnings = cluster.log(id).lines().filter(|line| line.contains(" WARN ")).count();
        assert!(warnings <= 12, "{}", cluster.log(id));
    }
}

/// Two clusters have the same name. A node of the first gets the data directory of a node of the
/// second.
#[tokio::test]
async fn a_node_with_the_data_of_another_cluster_of_the_same_name_is_turned_away_and_told_so() {
    let mut cluster = Cluster::start().await;
    let mut other = Cluster::start().await;
    for one in [&mut cluster, &mut other] {
        one.all_ready().await;
        one.kill(3);
    }
    // With the other two, node 3 would be a quorum of that cluster.
    [1, 2].into_iter().for_each(|id| other.kill(id));
    std::fs::remove_dir_all(cluster.data_dir(3)).unwrap();
    std::fs::rename(other.data_dir(3), cluster.data_dir(3)).unwrap();
    let mut reader = Reader { format: Format::Text, read: BTreeMap::new() };
    reader.turn_the_page(&cluster);
    cluster.restart(3);
    // Node 3 looks for the members of the other cluster, which its log names.
    for node in [1, 2] {
        let turned_away = [is("peer", 3), is("reason", "turned-away")];
        let line = reader.tells(&cluster, node, "peer unreachable", &turned_away).await;
        assert!(line.contains("another cluster of the same name: their uuids differ"), "{line}");
    }
    let refused = "refused at the peer port: no member says this";
    let line = reader.tells(&cluster, 3, refused, &[]).await;
    assert!(line.contains("was turned away, with versions (4, 4) and levels (1, "), "{line}");
    // The other two go on, and node 3 serves no client.
    cluster.client(1).create("/v1/znodes/a", "").await;
    let stranger = cluster.client(3).send(Call::get("/readyz")).await.unwrap();
    assert_eq!(stranger.status, 503);
}
