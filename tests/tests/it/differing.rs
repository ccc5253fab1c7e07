//! A node whose log has a damaged entry with a right checksum: the node ends with an exit code of
//! its own and says why, and the others go on.

use std::fs;
use std::path::Path;

use zlock_client::api::ZnodeInfo;

use crate::harness::{Call, Cluster, until};

const DIFFERS: i32 = 5;
const VALUE: &str = "the right value";
/// Largest number of bytes of a log record before the value, and after it.
const AROUND: usize = 200;

/// Checksum of a record in a node's log: a CRC-32 in eight bytes.
fn checksum(record: &[u8]) -> [u8; 8] {
    let shift = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    let crc = record.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc)));
    u64::from(!crc).to_be_bytes()
}

/// Flips a bit of the value in a stopped node's log, and corrects the checksum of its record.
fn flip(log: &Path) {
    for file in fs::read_dir(log).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let Some(at) = bytes.windows(VALUE.len()).position(|part| part == VALUE.as_bytes()) else { continue };
        let begins = at.saturating_sub(AROUND)..at;
        let ends = at + VALUE.len()..=bytes.len().min(at + AROUND) - 8;
        let records = ends.flat_map(|end| begins.clone().map(move |begin| (begin, end)));
        let (begin, end) = records
            .into_iter()
            .find(|(begin, end)| bytes[*end..end + 8] == checksum(&bytes[*begin..*end]))
            .expect("a record of the log has the value");
        bytes[at] ^= 1;
        let right = checksum(&bytes[begin..end]);
        bytes[end..end + 8].copy_from_slice(&right);
        fs::write(&path, bytes).unwrap();
        return;
    }
    panic!("no file of the log has the value");
}

#[tokio::test]
async fn a_node_that_differs_ends_with_its_own_code_and_says_why() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let follower = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    cluster.client(leader).create("/v1/znodes/value", VALUE).await;
    cluster.catches_up(follower, leader).await;
    // A node that is killed may have applied entries that its log does not have yet.
    cluster.stop(follower).await;
    flip(&cluster.data_dir(follower).join("log"));
    cluster.restart(follower);
    let code = until("the node has ended", async || cluster.ended(follower).map(|status| status.code())).await;
    let log = cluster.log(follower);
    assert_eq!(code, Some(DIFFERS), "{log}");
    assert!(log.contains("this node's state differs from that of the majority"), "{log}");
    let found: ZnodeInfo = cluster.client(leader).send(Call::get("/v1/znodes/value")).await.unwrap().json();
    assert_eq!(found.data.as_deref(), Some(VALUE));
}
