//! A stranger (caller that is no member) at a node's peer port. Its bytes are written by hand,
//! without the node's own encoder.

// Every test file compiles its own copy and uses a part of it.
#![allow(dead_code)]
// Clippy cannot tell that these are tests.
#![allow(clippy::unwrap_used)]

pub(crate) mod tap;

use std::net::SocketAddr;
use std::time::Duration;

use storage::Command;
use storage::codec::{self, EntryRecord, LogIdRecord, PayloadRecord, VoteRecord};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Number of the lane for appends in a hello. A lane is the purpose of a connection.
pub(crate) const APPEND: u32 = 0;
pub(crate) const CONTROL: u32 = 1;
pub(crate) const SNAPSHOT: u32 = 2;
pub(crate) const FORWARD: u32 = 3;

/// Time that is longer than any answer takes.
const LONG: Duration = Duration::from_secs(30);

/// Makes a frame of a record: the record's length and checksum, then the record.
pub(crate) fn frame(record: &[u8]) -> Vec<u8> {
    let length = u32::try_from(record.len()).unwrap();
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(&crc32fast::hash(record).to_le_bytes());
    bytes.extend_from_slice(record);
    bytes
}

/// Fields of a hello that a stranger chooses, such as its claimed id, the called node's id, and the
/// lane.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    pub(crate) level: u16,
    pub(crate) cluster: String,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) lane: u32,
    /// Incarnation (random number) of the data directory.
    pub(crate) incarnation: u64,
}

impl Hello {
    /// Makes the hello that member `from` would send if it had another data directory.
    pub(crate) fn of(from: u64, to: u64, lane: u32) -> Hello {
        Hello { version: 4, level: 1, cluster: "test".into(), uuid: None, from, to, lane, incarnation: 7 }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let Hello { version, level, cluster, uuid, from, to, lane, incarnation } = self.clone();
        let (versions, levels, group, more) = ((version, version), (level, level), 0u32, 0u64);
        frame(&codec::encode(&(versions, levels, cluster, (from, to, lane), (group, uuid, incarnation, more))))
    }
}

/// A connection of a stranger.
pub(crate) struct Stranger {
    pub(crate) stream: TcpStream,
}

impl Stranger {
    /// Connects, and sends no bytes.
    pub(crate) async fn silent(addr: SocketAddr) -> Stranger {
        Stranger { stream: TcpStream::connect(addr).await.unwrap() }
    }

    /// Connects and sends the hello, without waiting for the answer.
    pub(crate) async fn hasty(addr: SocketAddr, hello: &Hello) -> Stranger {
        let mut stranger = Stranger::silent(addr).await;
        stranger.send(&hello.frame()).await;
        stranger
    }

    /// Connects with the hello of a member, and waits until the node accepts it.
    pub(crate) async fn posing(addr: SocketAddr, hello: &Hello) -> Stranger {
        let mut stranger = Stranger::hasty(addr, hello).await;
        let welcome = stranger.record().await;
        assert_eq!(welcome.as_deref().map(|welcome| &welcome[..2]), Some(&[1, 0][..]), "it was not let in");
        stranger
    }

    /// Sends bytes. Returns false if the node has closed the connection before all bytes were sent.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        timeout(LONG, self.stream.write_all(bytes)).await.is_ok_and(|sent| sent.is_ok())
    }

    /// Reads the next record that the node sends; `None` at the end of the connection.
    pub(crate) async fn record(&mut self) -> Option<Vec<u8>> {
        let read = async {
            let mut head = [0; 8];
            self.stream.read_exact(&mut head).await.ok()?;
            let [l0, l1, l2, l3, ..] = head;
            let mut record = vec![0; u32::from_le_bytes([l0, l1, l2, l3]) as usize];
            self.stream.read_exact(&mut record).await.ok()?;
            Some(record)
        };
        timeout(LONG, read).await.unwrap_or_else(|_| panic!("the node neither answers nor ends the connection"))
    }

    /// Reads all records until the node ends the connection.
    pub(crate) async fn records(&mut self) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while let Some(record) = self.record().await {
            records.push(record);
        }
        records
    }
}

pub(crate) fn leader_vote(term: u64, node_id: u64) -> VoteRecord {
    VoteRecord { term, node_id, committed: true }
}

pub(crate) fn id(term: u64, index: u64) -> LogIdRecord {
    LogIdRecord { term, index }
}

pub(crate) fn entry(at: LogIdRecord, command: &[u8]) -> EntryRecord {
    EntryRecord { log_id: at, payload: PayloadRecord::Normal(Command(command.to_vec().into())) }
}

pub(crate) fn blank(at: LogIdRecord) -> EntryRecord {
    EntryRecord { log_id: at, payload: PayloadRecord::Blank }
}

/// Fields of a frame on the lane for appends.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) sequence: u64,
    pub(crate) vote: VoteRecord,
    pub(crate) prev: Option<LogIdRecord>,
    pub(crate) commit: Option<LogIdRecord>,
    pub(crate) acknowledged: Option<LogIdRecord>,
    pub(crate) entries: Vec<EntryRecord>,
}

impl Append {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let Append { sequence, vote, prev, commit, acknowledged, entries } = self;
        let base = prev.map_or(0, |prev| prev.index);
        // Each position has its term, and its index counted from `prev`.
        let far = |id: LogIdRecord, base: u64| codec::encode(&(id.term, id.index.wrapping_sub(base).cast_signed()));
        let parts = [prev, commit, acknowledged].into_iter().zip([1u8, 2, 4]);
        let parts = parts.filter(|(id, _)| id.is_some()).map(|(_, bit)| bit).sum::<u8>();
        let mut record = codec::encode(&(parts, sequence, vote));
        record.extend(prev.iter().flat_map(|id| far(*id, 0)[1..].to_vec()));
        record.extend(commit.iter().chain(acknowledged).flat_map(|id| far(*id, base)[1..].to_vec()));
        record.extend(&codec::encode(&entries.len())[1..]);
        for entry in entries {
            record.extend(&far(entry.log_id, base)[1..]);
            record.extend(&codec::encode(&entry.payload)[1..]);
        }
        frame(&record)
    }
}

/// Makes a candidate's request: `kind` 2 asks for a vote, 3 for a pre-vote.
pub(crate) fn ask_vote(kind: u32, vote: VoteRecord, last: Option<LogIdRecord>, transfer: bool) -> Vec<u8> {
    frame(&codec::encode(&(1u64, kind, vote, last, transfer)))
}
