//! A tap: a proxy before a node's peer port. It keeps copies of the members' frames, and now and
//! then flips one bit.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Largest number of frames that are kept for each lane (purpose of a connection).
const KEPT_MAX: usize = 400;
/// Divisor: of this number of reads from a connection, one gets a bit flipped, on average.
const DAMAGED_ONE_IN: u32 = 2_000;
/// Bytes of a frame before its record: the length and the checksum.
const PREFIX: usize = 8;

/// Records of frames that members have sent, by lane (purpose of a connection).
#[derive(Default)]
pub(crate) struct MemberRecords {
    lanes: Mutex<[VecDeque<Vec<u8>>; 4]>,
    /// Number of bits that the tap has flipped in passing records.
    pub(crate) damaged: AtomicU64,
}

impl MemberRecords {
    /// Picks a random record of this lane from the older half of the kept records; `None` if none
    /// is kept.
    pub(crate) fn any(&self, random: &mut fastrand::Rng, lane: u32) -> Option<Vec<u8>> {
        let lanes = self.lanes.lock().unwrap();
        let kept = &lanes[lane as usize];
        (!kept.is_empty()).then(|| kept[random.usize(..kept.len().div_ceil(2))].clone())
    }

    fn keep(&self, lane: usize, record: &[u8]) {
        let mut lanes = self.lanes.lock().unwrap();
        let kept = &mut lanes[lane];
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(record.to_vec());
    }
}

/// Starts a proxy before the node at `target`, which keeps members' records in `heard`. Returns the
/// proxy's address.
pub(crate) async fn tap(target: SocketAddr, heard: Arc<MemberRecords>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((from, _)) = listener.accept().await {
            let heard = Arc::clone(&heard);
            tokio::spawn(async move {
                let Ok(to) = TcpStream::connect(target).await else { return };
                let ((from_read, from_write), (to_read, to_write)) = (from.into_split(), to.into_split());
                tokio::select! {
                    () = copy(from_read, to_write, Some(Frames::default()), &heard) => {}
                    () = copy(to_read, from_write, None, &heard) => {}
                }
            });
        }
    });
    addr
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut frames: Option<Frames>, heard: &MemberRecords) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let piece = &mut bytes[..count];
        if let Some(frames) = &mut frames {
            frames.read(piece, heard);
        }
        if fastrand::u32(..DAMAGED_ONE_IN) == 0 {
            piece[fastrand::usize(..count)] ^= 1 << fastrand::u8(..8);
            heard.damaged.fetch_add(1, Ordering::Relaxed);
        }
        if to.write_all(piece).await.is_err() {
            return;
        }
    }
}

/// Finds the lane's number in a hello, after the cluster's name and both ids; `None` if there is
/// none.
fn lane_of(hello: &[u8]) -> Option<usize> {
    let name = hello.windows(4).position(|name| name == b"test")?;
    hello.get(name + 4 + 2).map(|lane| usize::from(*lane).min(3))
}

/// Splits the bytes that a member sends into frames.
#[derive(Default)]
struct Frames {
    input: Vec<u8>,
    lane: Option<usize>,
}

impl Frames {
    fn read(&mut self, piece: &[u8], heard: &MemberRecords) {
        self.input.extend_from_slice(piece);
        while let Some(length) = self.input.first_chunk::<4>() {
            let end = PREFIX + u32::from_le_bytes(*length) as usize;
            if self.input.len() < end {
                return;
            }
            let record: Vec<u8> = self.input.drain(..end).skip(PREFIX).collect();
            match self.lane {
                None => self.lane = lane_of(&record),
                Some(lane) => heard.keep(lane, &record),
            }
        }
    }
}
