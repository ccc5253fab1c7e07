//! Format levels: a node whose program does not know the cluster's level, and an upgrade as
//! operators see it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::Value;

use crate::cli::{done, run, zlock};
use crate::harness::{Cluster, Options, run_to_end};

/// Exit code of a node that refuses to run.
const REFUSED: i32 = 1;
/// Configuration line that makes `super:test` a super user. The digest is the one in ZooKeeper's
/// documentation.
const SETTINGS: &str = "admin.super_digest = \"super:D/InIHSb7yEEbrWz8b9l71RjZJU=\"";

/// CRC-32 checksum, as in the frames that nodes send to each other.
fn crc32(bytes: &[u8]) -> u32 {
    let table = |byte: u32| (0..8).fold(byte, |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 });
    !bytes.iter().fold(!0, |crc, byte| table((crc ^ u32::from(*byte)) & 0xff) ^ crc >> 8)
}

/// Makes the frame by which a peer refuses a connection: the peer's cluster is at level 4, and its
/// program knows levels up to 5. See `peers.txt` in the golden files of `replica`.
fn refusal() -> Vec<u8> {
    let record = [1, 1, 2, 4, 5];
    let mut frame = (record.len() as u32).to_le_bytes().to_vec();
    frame.extend(crc32(&record).to_le_bytes());
    frame.extend(record);
    frame
}

/// A peer refuses the connection of a starting node, because the peer's cluster is at format level
/// 4. The node's program does not know that level.
#[tokio::test]
async fn a_node_that_hears_of_a_level_that_it_does_not_know_ends_and_says_what_to_start() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = peer.local_addr().unwrap();
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        for mut stream in peer.incoming().flatten() {
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(&refusal());
        }
    });
    let cluster = Cluster::prepare(Options { nodes: 2, ..Options::default() }).await;
    let config = cluster.config(1).to_owned();
    let text = std::fs::read_to_string(&config).unwrap();
    let (head, tail) = text.split_once("{ id = 2, peer_addr = \"").unwrap();
    let (_, tail) = tail.split_once('"').unwrap();
    std::fs::write(&config, format!("{head}{{ id = 2, peer_addr = \"{addr}\"{tail}")).unwrap();
    let (code, said) = tokio::task::spawn_blocking(move || run_to_end(["serve"], Some(&config))).await.unwrap();
    assert_eq!(code, REFUSED, "{said}");
    let words = "this cluster is at level 4; this zlock knows ";
    assert!(said.contains(words) && said.contains(": start a newer zlock"), "{said}");
}

#[tokio::test]
async fn operators_see_what_members_run_and_a_level_that_none_knows_is_not_raised() {
    let cluster = Cluster::start_with(Options { settings: SETTINGS, ..Options::default() }).await;
    let (code, _, said) = run(zlock(&cluster, &["upgrade", "status"])).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("this is for operators"), "{said}");

    // The leader learns of the programs of all members at its election, or soon after it.
    let operator = ["--user", "super:test", "--json", "upgrade"];
    let status = crate::harness::until("all members follow", async || {
        let status: Value =
            serde_json::from_str(&done(&cluster, &[&operator[..], &["status"]].concat()).await).unwrap();
        let members = status["members"].as_array().unwrap().clone();
        members.iter().all(|member| member["reachable"] == true && member["version"].is_string()).then_some(status)
    })
    .await;
    assert_eq!((&status["level"], status["members"].as_array().unwrap().len()), (&Value::from(1), 3));
    let table = done(&cluster, &["--user", "super:test", "upgrade", "status"]).await;
    assert!(table.starts_with("NODE  VERSION") && table.contains("the cluster is at level 1"), "{table}");

    // The cluster is at the highest level that this program knows, or the test has a later one to
    // raise.
    let max = status["members"][0]["level_max"].as_u64().unwrap();
    let raised = done(&cluster, &["--user", "super:test", "upgrade", "finalize"]).await;
    assert_eq!(raised, format!("the cluster is at level {max}\n"));
    let beyond = (max + 1).to_string();
    let (code, _, said) = run(zlock(&cluster, &["--user", "super:test", "upgrade", "finalize", &beyond])).await;
    assert_eq!(code, 1, "{said}");
    for part in [&format!("level {beyond} needs every member to know it"), "node 1 runs ", "node 3 runs "] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    let (code, _, said) = run(zlock(&cluster, &["--user", "super:test", "upgrade", "finalize", "0"])).await;
    assert!(code == 1 && said.contains("nothing lowers it"), "{said}");
}
