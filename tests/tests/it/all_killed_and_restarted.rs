//! All nodes are killed by SIGKILL at once, in the middle of writes.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use zlock_client::api::{Ticket, ZnodeInfo};

use crate::harness::{Call, Client, Cluster, until};

/// Creates znodes until the nodes are killed, and adds the path of each created znode to
/// `acknowledged` when its answer has come.
async fn write(endpoint: String, writer: u64, stop: Arc<AtomicBool>, acknowledged: Arc<Mutex<Vec<String>>>) {
    let mut client = Client::new(&endpoint);
    for n in 0..u64::MAX {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let path = format!("/w{writer}-{n}");
        match client.send(Call::post(format!("/v1/znodes{path}")).body(path.clone())).await {
            Ok(answer) if answer.status == 201 => acknowledged.lock().unwrap().push(path),
            // The nodes are being killed.
            _ => return,
        }
    }
}

/// Appends the beginning of a record to the log of a node that was killed, as a power cut leaves
/// it.
fn tear(log: &Path) {
    let files = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
    let newest = files.filter(|path| path.extension().is_some_and(|ext| ext == "wal")).max().expect("a chunk");
    OpenOptions::new().append(true).open(newest).unwrap().write_all(&[0x5a; 50]).unwrap();
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_every_node_is_killed() {
    let mut cluster = Cluster::start().await;
    let mut client = cluster.client(1);
    let session = client.open_session(120_000).await;
    let held: Ticket = client.send(Call::post("/v1/locks/kept?wait=5s").session(&session)).await.unwrap().json();
    let Ticket::Held { fencing_token, .. } = held else { panic!("the lock is free") };

    let rounds = AtomicU64::new(0);
    for _ in 0..3 {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let writer = |n| {
            let endpoint = cluster.endpoint(1 + n % 3).to_owned();
            let name = rounds.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(write(endpoint, name, Arc::clone(&stop), Arc::clone(&acknowledged)))
        };
        let writers: Vec<_> = (0..6u64).map(writer).collect();
        until("writes are acknowledged", async || (acknowledged.lock().unwrap().len() > 100).then_some(())).await;
        for id in cluster.ids() {
            cluster.kill(id);
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.unwrap();
        }
        tear(&cluster.data_dir(1).join("log"));
        for id in cluster.ids() {
            cluster.restart(id);
        }
        cluster.all_ready().await;
        let paths = std::mem::take(&mut *acknowledged.lock().unwrap());
        eprintln!("{} acknowledged writes before the kill", paths.len());
        for (n, path) in (0..).zip(paths) {
            let mut client = cluster.client(1 + n % 3);
            let found: ZnodeInfo = client.send(Call::get(format!("/v1/znodes{path}"))).await.unwrap().json();
            assert_eq!(found.data.as_deref(), Some(path.as_str()));
        }
    }
    let log = cluster.log(1);
    let cuts = log.lines().filter(|line| line.contains("cutting what was not flushed off the log"));
    assert_eq!(cuts.filter(|line| line.contains("offset=") && line.contains("bytes=50")).count(), 3, "{log}");
    let check = Call::get(format!("/v1/fence?path=/kept&fencing_token={fencing_token}"));
    assert_eq!(cluster.client(2).send(check).await.unwrap().status, 204);
}
