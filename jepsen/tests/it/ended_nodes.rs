//! Tests that the harness starts a node again that ended because of a broken disk, and records
//! every end of a node.
//!
//! The nodes are shell scripts that end when a file appears. The test itself answers the requests
//! to the nodes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jepsen::cluster::{Breakage, Cluster, Network, NetworkKind, Node, Place, Plan};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

const SCRIPT: &str = r#"
dir=$(dirname "$0")
echo started >>"$dir/starts"
until [ -e "$dir/end" ]; do sleep 0.02; done
cat "$dir/end"
rm "$dir/end"
exit 3
"#;

const WORDS: &str = "the last words";

struct Rig {
    dir: TempDir,
    cluster: Cluster,
}

impl Rig {
    /// Starts one node (a shell script); the test answers the requests to it. With
    /// `ends_when_asked`, the node's process ends at the first request for its applied zxid.
    async fn start(ends_when_asked: bool) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, SCRIPT).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http = listener.local_addr().unwrap().to_string();
        tokio::spawn(answer(listener, dir.path().to_owned(), ends_when_asked));
        let plan = Plan {
            nodes: 1,
            spares: 0,
            program: "/bin/sh".into(),
            next: None,
            dir: dir.path().to_owned(),
            faketime: None,
            own_disks: false,
            settings: String::new(),
            network: NetworkKind::Proxies,
            peer_tls: false,
        };
        let enter = vec!["sh".to_owned(), script.display().to_string()];
        let (peer_listen, peer, zookeeper) = (String::new(), String::new(), String::new());
        let place = Place { http: http.clone(), zookeeper, peer_listen, peer, enter };
        let mut node = Node::prepare(&plan, 1, &place).unwrap();
        node.start().unwrap();
        let cluster = Cluster {
            endpoints: vec![http].into(),
            zookeeper: Vec::new(),
            nodes: vec![node],
            raised: false,
            dir: dir.path().to_owned(),
            backups: 0,
            network: Network::make(NetworkKind::Proxies, 1).await.unwrap().0,
        };
        let rig = Rig { dir, cluster };
        until(|| rig.starts() == 1).await;
        rig
    }

    fn starts(&self) -> usize {
        starts(self.dir.path())
    }

    fn node(&mut self) -> &mut Node {
        &mut self.cluster.nodes[0]
    }

    /// Makes the node end, and waits for its end.
    async fn end(&mut self) {
        self.end_with(WORDS).await;
    }

    async fn end_with(&mut self, words: &str) {
        say_last(self.dir.path(), words);
        until(|| !self.node().runs()).await;
    }

    /// Recovers the cluster, and waits until the node has been started `start` times.
    async fn recover(&mut self, start: usize) {
        self.cluster.recover().await.unwrap();
        until(|| self.starts() == start).await;
    }

    /// Creates a file in the node's data directory, to see whether the data is removed.
    fn keep_a_file(&mut self) -> PathBuf {
        let dir = self.node().data_dir.clone();
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("log"), "entries").unwrap();
        dir.join("log")
    }

    /// Returns two facts for each unexpected end of the node: whether its disk is to blame, and
    /// whether it refused its data as damaged.
    fn excuses(&mut self) -> Vec<(bool, bool)> {
        self.cluster.ends().iter().map(|end| (end.for_its_disk, end.refused_damage)).collect()
    }
}

/// Makes the node of this directory end, after it has written these words to its log.
fn say_last(dir: &Path, words: &str) {
    std::fs::write(dir.join("words"), format!("{words}\n")).unwrap();
    std::fs::rename(dir.join("words"), dir.join("end")).unwrap();
}

fn starts(dir: &Path) -> usize {
    std::fs::read_to_string(dir.join("starts")).unwrap_or_default().lines().count()
}

async fn until(mut holds: impl FnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let wait = async {
        while !holds() {
            ticks.tick().await;
        }
    };
    timeout(Duration::from_secs(20), wait).await.unwrap();
}

async fn answer(listener: TcpListener, dir: PathBuf, mut ends_when_asked: bool) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let applied = if starts(&dir) == 1 { 6 } else { 7 };
        let asked = head.starts_with(b"GET /v1/cluster");
        if asked && ends_when_asked {
            // The next process must not end, too.
            ends_when_asked = false;
            say_last(&dir, WORDS);
        }
        let body = format!(
            r#"{{"cluster_id":"c","node_id":1,"role":"leader","term":1,"last_log_zxid":7,"committed_zxid":7,"applied_zxid":{applied},
                "snapshot":{{"zxid":0,"bytes":0}},"members":[],"sessions":0,"znodes":1,"watches":0,"proposals":0,"status":"ready"}}"#
        );
        let head =
            format!("HTTP/1.1 200 OK\r\nzlock-zxid: 7\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn one_that_ends_when_its_disk_is_mended_already_is_started_again() {
    let mut rig = Rig::start(true).await;
    rig.node().break_disk(Breakage::LosesWrites);
    rig.node().mend_disk();
    rig.cluster.recover().await.unwrap();
    until(|| rig.starts() == 2).await;
    let ends = rig.cluster.ends();
    assert_eq!((ends.len(), ends[0].node, ends[0].for_its_disk), (1, 1, true));
    assert_eq!(
        (ends[0].how.as_str(), ends[0].last_lines.as_slice()),
        ("exit status: 3", &["the last words".to_owned()][..])
    );
}

#[tokio::test]
async fn one_that_ends_without_a_reason_is_not_excused() {
    let mut rig = Rig::start(false).await;
    // A broken disk excuses only the process that ran then, not the next one.
    rig.node().break_disk(Breakage::LosesWrites);
    rig.end().await;
    rig.node().mend_disk();
    rig.cluster.recover().await.unwrap();
    until(|| rig.starts() == 2).await;
    rig.end().await;
    rig.cluster.recover().await.unwrap();
    let excused: Vec<bool> = rig.cluster.ends().iter().map(|end| end.for_its_disk).collect();
    assert_eq!(excused, [true, false]);
}

#[tokio::test]
async fn one_that_was_killed_has_not_ended_by_itself() {
    let mut rig = Rig::start(false).await;
    rig.node().kill();
    rig.cluster.recover().await.unwrap();
    until(|| rig.starts() == 2).await;
    assert_eq!(rig.cluster.ends(), []);
    rig.end().await;
    rig.node().kill();
    assert_eq!(rig.cluster.ends().len(), 1);
}

const DAMAGED: &str = "zlock: storage: data is damaged: move it away";

#[tokio::test]
async fn one_whose_disk_left_damage_is_given_an_empty_one() {
    let mut rig = Rig::start(false).await;
    let kept = rig.keep_a_file();
    rig.node().break_disk(Breakage::LosesWrites);
    rig.end().await;
    rig.node().mend_disk();
    rig.recover(2).await;
    assert!(kept.exists());
    rig.end_with(DAMAGED).await;
    rig.recover(3).await;
    assert!(!kept.exists());
    assert_eq!(rig.excuses(), [(true, false), (true, true)]);
}

#[tokio::test]
async fn damage_that_no_disk_has_left_is_not_excused() {
    let mut rig = Rig::start(false).await;
    let kept = rig.keep_a_file();
    rig.end_with(DAMAGED).await;
    rig.recover(2).await;
    // A full disk loses no data, so a later message about damage is not excused.
    rig.node().break_disk(Breakage::Full);
    rig.end().await;
    rig.node().mend_disk();
    rig.recover(3).await;
    rig.end_with(DAMAGED).await;
    rig.recover(4).await;
    // Lost writes excuse damage only until the node has opened its data again.
    rig.node().break_disk(Breakage::LosesWrites);
    rig.end().await;
    rig.node().mend_disk();
    rig.recover(5).await;
    rig.node().kill();
    rig.recover(6).await;
    rig.end_with(DAMAGED).await;
    rig.recover(7).await;
    assert!(kept.exists());
    assert_eq!(rig.excuses(), [(false, false), (true, false), (false, false), (true, false), (false, false)]);
}
