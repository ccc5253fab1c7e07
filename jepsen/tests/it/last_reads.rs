//! Tests that the last reads of a run are repeated until they are answered, also when the first
//! tries are refused.
//!
//! The test itself answers the requests, in place of a node.

use std::sync::Arc;

use jepsen::client::Client;
use jepsen::history::{Kind, Operation, operations};
use jepsen::recorder::Recorder;
use jepsen::workload::{Bank, Doors, Registers, Work};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use zlock_client::api::{Outcome, ProblemType};

/// Requests that the test refuses: on each connection the first `count` requests that begin with
/// `word`.
#[derive(Clone, Copy)]
struct Refusals {
    word: &'static str,
    count: usize,
}

/// Answers every request on one connection as a node would: each create succeeds, each read returns
/// a znode with the data `100`, and each transaction succeeds. Refusals come first.
async fn answer(mut stream: TcpStream, mut refusals: Refusals) {
    let mut heard = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        heard.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&heard).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() < length.map_or(0, |length| length.parse().unwrap()) {
            continue;
        }
        heard.clear();
        let (status, body) = if head.starts_with(refusals.word) && refusals.count > 0 {
            refusals.count -= 1;
            (503, refused())
        } else if head.starts_with("POST /v1/txn") {
            (200, json!({"zxid": 9, "results": []}).to_string())
        } else {
            (200, znode())
        };
        let head = format!("HTTP/1.1 {status} X\r\nzlock-zxid: 9\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.unwrap();
    }
}

fn refused() -> String {
    let problem_type = ProblemType::Unavailable.uri();
    json!({"type": problem_type, "title": "", "status": 503, "detail": "", "outcome": Outcome::Unavailable, "zxid": 9})
        .to_string()
}

fn znode() -> String {
    let stat = json!({
        "czxid": 1, "mzxid": 1, "ctime": 1, "mtime": 1, "version": 0, "cversion": 0, "aversion": 0,
        "ephemeral_owner": 0, "data_length": 3, "num_children": 0, "pzxid": 1
    });
    json!({"path": "/x", "data": "100", "stat": stat}).to_string()
}

/// Prepares a workload, runs no worker, and returns the reads that the workload makes at the end of
/// a run.
async fn reads(work: impl Work, refusals: Refusals) -> Vec<Operation> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, refusals));
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::create(dir.path()).unwrap());
    let mut client = Client::new(&vec![endpoint].into(), &recorder, 7);
    work.prepare(&mut client).await.unwrap();
    work.finish(&mut client).await.unwrap();
    let operations = operations(&recorder.finish().unwrap()).unwrap();
    operations.into_iter().filter(|operation| operation.f == "read").collect()
}

#[tokio::test]
async fn every_register_is_read_at_the_end() {
    let reads = reads(Registers::new(Doors::default(), false), Refusals { word: "GET", count: 3 }).await;
    let answered: Vec<_> = reads.iter().filter(|read| read.is_ok()).map(|read| read.result.clone()).collect();
    let keys: Vec<_> = (0..5).map(|key| json!([format!("0-{key}"), 100])).collect();
    assert_eq!(answered, keys);
    assert_eq!(reads.iter().filter(|read| read.outcome == Kind::Fail).count(), 3);
}

#[tokio::test]
async fn the_accounts_are_read_until_all_of_it_was_true_at_once() {
    for word in ["GET", "POST /v1/txn"] {
        let reads = reads(Bank::new(Doors::default()), Refusals { word, count: 3 }).await;
        let outcomes: Vec<Kind> = reads.iter().map(|read| read.outcome).collect();
        assert_eq!(outcomes, [Kind::Fail, Kind::Fail, Kind::Fail, Kind::Ok], "{word}");
    }
}
