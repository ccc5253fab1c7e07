//! Memory for request bodies and long answers: a bound on their bytes, for the node and for each
//! address.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use accept::Mutex;
use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::Notify;

/// Divisor of the memory for bodies and answers that gives the part for all answers together. So
/// slow readers of answers leave memory for request bodies.
const ANSWERS_PART: usize = 2;
/// Divisor of the memory for bodies and answers that gives the part for one address, while no other
/// address uses this memory. The memory for answers is divided in the same way.
const ALONE_PART: usize = 2;
/// Divisor in place of [`ALONE_PART`] while other addresses use the memory, too.
const SHARED_PART: usize = 4;

/// Counts of the bytes of request bodies and long answers. A body counts with the bytes received
/// so far, and not with its announced length.
///
/// At the node's bound, the reading of the oldest incomplete body is stopped, so that a client that
/// sends slowly cannot block others. At the bound of an address, incomplete bodies of that address
/// are stopped. An address's only body or answer may be longer than the address's share.
#[derive(Clone)]
pub(crate) struct Bodies {
    memory: Arc<BodyMemory>,
}

struct BodyMemory {
    bytes_max: usize,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    bytes: usize,
    answers_bytes: usize,
    begun: u64,
    /// Incomplete bodies by their numbers, which are in the order in which the bodies began.
    halves: BTreeMap<u64, IncompleteBody>,
    /// Bytes of each address, except of exempt addresses, which stand for many clients.
    shares: HashMap<IpAddr, Share>,
}

#[derive(Default)]
struct Share {
    bytes: usize,
    answers_bytes: usize,
    halves: BTreeSet<u64>,
}

struct IncompleteBody {
    bytes: usize,
    source: Option<IpAddr>,
    gives_way: Arc<GivesWay>,
}

/// Signal to stop reading an incomplete body, with the memory bound that was reached.
#[derive(Default)]
struct GivesWay {
    why: OnceLock<Full>,
    told: Notify,
}

/// Memory bound that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// Bound of the node.
    Node,
    /// Share of the client's address.
    Address,
}

/// Reason why a body was not read.
#[derive(Debug)]
pub(crate) enum Broken {
    TooLarge,
    /// No room for the body, or its reading was stopped to make room for others.
    Full(Full),
    Unreadable(axum::Error),
}

/// Guard of the bytes counted for one body or answer. Dropping it ends the counting.
pub(crate) struct Room {
    all: Bodies,
    source: Option<IpAddr>,
    bytes: usize,
    kind: Kind,
}

enum Kind {
    /// An incomplete body: its number in `halves`, and its signal to stop.
    Half(u64, Arc<GivesWay>),
    Whole,
    Answer,
}

impl Bodies {
    pub(crate) fn new(bytes_max: usize) -> Bodies {
        Bodies { memory: Arc::new(BodyMemory { bytes_max, ledger: Mutex::default() }) }
    }

    /// Reads a body of at most `max` bytes, and counts it for the address `source` until the
    /// returned [`Room`] is dropped. `None` stands for an exempt address.
    ///
    /// # Errors
    /// The reason why the body was not read completely.
    pub(crate) async fn read(
        &self,
        mut body: Body,
        max: usize,
        source: Option<IpAddr>,
    ) -> Result<(Bytes, Room), Broken> {
        let mut room = Room { all: self.clone(), source, bytes: 0, kind: Kind::Whole };
        let (mut first, mut more) = (Bytes::new(), BytesMut::new());
        loop {
            let frame = tokio::select! {
                biased;
                full = room.gives_way() => return Err(Broken::Full(full)),
                frame = body.frame() => frame,
            };
            let Some(frame) = frame else { break };
            let Ok(data) = frame.map_err(Broken::Unreadable)?.into_data() else { continue };
            if room.bytes + data.len() > max {
                return Err(Broken::TooLarge);
            }
            room.add(data.len(), body.is_end_stream()).map_err(Broken::Full)?;
            // Most bodies come in one piece. Several pieces are copied into one buffer, which frees
            // the buffers that they were read into.
            if first.is_empty() && more.is_empty() {
                first = data;
            } else {
                if more.is_empty() {
                    more.extend_from_slice(&std::mem::take(&mut first));
                }
                more.extend_from_slice(&data);
            }
        }
        room.add(0, true).map_err(Broken::Full)?;
        Ok((if more.is_empty() { first } else { more.freeze() }, room))
    }

    /// Counts an answer of `bytes` bytes to `source`.
    ///
    /// # Errors
    /// The bound that was reached: stopping incomplete bodies would not make enough room.
    pub(crate) fn answer(&self, bytes: usize, source: Option<IpAddr>) -> Result<Room, Full> {
        let mut ledger = self.memory.ledger.lock();
        let answers_max = self.memory.bytes_max / ANSWERS_PART;
        let own = source.and_then(|source| ledger.shares.get(&source)).map_or(0, |share| share.answers_bytes);
        if source.is_some() && own > 0 && own + bytes > part(answers_max, ledger.answers_bytes > own) {
            return Err(Full::Address);
        }
        if ledger.answers_bytes + bytes > answers_max {
            return Err(Full::Node);
        }
        let room = Room { all: self.clone(), source, bytes, kind: Kind::Answer };
        ledger.count(source, bytes);
        ledger.answers_bytes += bytes;
        if let Some(share) = source.and_then(|source| ledger.shares.get_mut(&source)) {
            share.answers_bytes += bytes;
        }
        let made = ledger.make_room(self.memory.bytes_max);
        drop(ledger);
        if made { Ok(room) } else { Err(Full::Node) }
    }
}

/// Returns the share of a bound of `whole` bytes that one address may use.
fn part(whole: usize, others_have_any: bool) -> usize {
    whole / if others_have_any { SHARED_PART } else { ALONE_PART }
}

impl Ledger {
    fn count(&mut self, source: Option<IpAddr>, bytes: usize) {
        self.bytes += bytes;
        if let Some(source) = source.filter(|_| bytes > 0) {
            self.shares.entry(source).or_default().bytes += bytes;
        }
    }

    fn discount(&mut self, source: Option<IpAddr>, bytes: usize, answers_bytes: usize) {
        self.bytes -= bytes;
        self.answers_bytes -= answers_bytes;
        let Some(source) = source else { return };
        if let Some(share) = self.shares.get_mut(&source) {
            share.bytes -= bytes;
            share.answers_bytes -= answers_bytes;
        }
        if self.shares.get(&source).is_some_and(|share| share.bytes == 0 && share.halves.is_empty()) {
            self.shares.remove(&source);
        }
    }

    /// Stops reading the oldest incomplete bodies until the node's bound is kept. False if the
    /// bound is still exceeded without any incomplete body.
    fn make_room(&mut self, bytes_max: usize) -> bool {
        while self.bytes > bytes_max {
            let Some(number) = self.halves.keys().next().copied() else { return false };
            self.send_away(number, Full::Node);
        }
        true
    }

    /// Stops reading incomplete bodies of an address until its share is kept. False if the share is
    /// still exceeded without any incomplete body. `own` is the size in bytes of the body being
    /// counted: an address's only body may exceed the share.
    fn make_share(&mut self, bytes_max: usize, source: IpAddr, own: usize) -> bool {
        while let Some(share) = self.shares.get(&source) {
            let is_kept = share.bytes <= own || share.bytes <= part(bytes_max, self.bytes > share.bytes);
            let Some(number) = share.halves.first().copied().filter(|_| !is_kept) else { return is_kept };
            self.send_away(number, Full::Address);
        }
        true
    }

    fn send_away(&mut self, number: u64, why: Full) {
        if let Some(half) = self.take_half(number) {
            // Each body is signalled once.
            let _ = half.gives_way.why.set(why);
            half.gives_way.told.notify_one();
        }
    }

    /// Ends the counting of an incomplete body; `None` when the body was stopped before.
    fn take_half(&mut self, number: u64) -> Option<IncompleteBody> {
        let half = self.halves.remove(&number)?;
        if let Some(share) = half.source.and_then(|source| self.shares.get_mut(&source)) {
            share.halves.remove(&number);
        }
        self.discount(half.source, half.bytes, 0);
        Some(half)
    }

    fn put_half(&mut self, number: u64, half: IncompleteBody) {
        self.count(half.source, half.bytes);
        if let Some(source) = half.source {
            self.shares.entry(source).or_default().halves.insert(number);
        }
        self.halves.insert(number, half);
    }
}

impl Room {
    /// Counts `bytes` more bytes of the body. `is_whole` is true for the last bytes of a body.
    fn add(&mut self, bytes: usize, is_whole: bool) -> Result<(), Full> {
        let Room { all, source, bytes: own, kind } = self;
        let mut ledger = all.memory.ledger.lock();
        let begun = match kind {
            Kind::Half(number, gives_way) => {
                if ledger.take_half(*number).is_none() {
                    return Err(gives_way.why.get().copied().unwrap_or(Full::Node));
                }
                Some((*number, Arc::clone(gives_way)))
            }
            Kind::Whole | Kind::Answer => None,
        };
        *own += bytes;
        *kind = if is_whole {
            ledger.count(*source, if begun.is_some() { *own } else { bytes });
            Kind::Whole
        } else {
            let (number, gives_way) = begun.unwrap_or_else(|| {
                ledger.begun += 1;
                (ledger.begun, Arc::default())
            });
            ledger.put_half(number, IncompleteBody { bytes: *own, source: *source, gives_way: Arc::clone(&gives_way) });
            Kind::Half(number, gives_way)
        };
        if source.is_some_and(|source| !ledger.make_share(all.memory.bytes_max, source, *own)) {
            return Err(Full::Address);
        }
        if !ledger.make_room(all.memory.bytes_max) {
            return Err(Full::Node);
        }
        match kind {
            Kind::Half(number, gives_way) if !ledger.halves.contains_key(number) => {
                Err(gives_way.why.get().copied().unwrap_or(Full::Node))
            }
            _ => Ok(()),
        }
    }

    /// Waits until the body's reading must be stopped to make room for others. Returns the bound
    /// that was reached.
    async fn gives_way(&self) -> Full {
        match &self.kind {
            Kind::Half(_, gives_way) => {
                gives_way.told.notified().await;
                gives_way.why.get().copied().unwrap_or(Full::Node)
            }
            Kind::Whole | Kind::Answer => std::future::pending().await,
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut ledger = self.all.memory.ledger.lock();
        match self.kind {
            // The bytes of a stopped body no longer count.
            Kind::Half(number, _) => drop(ledger.take_half(number)),
            Kind::Answer => ledger.discount(self.source, self.bytes, self.bytes),
            Kind::Whole => ledger.discount(self.source, self.bytes, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt, stream};

    use super::*;

    type Piece = Result<Bytes, std::io::Error>;

    fn endless(begin: usize) -> Body {
        let begin: Piece = Ok(vec![0; begin].into());
        Body::from_stream(stream::iter([begin]).chain(stream::pending()))
    }

    fn pieces(lengths: &[usize]) -> Body {
        let pieces: Vec<Piece> = lengths.iter().map(|length| Ok(vec![7; *length].into())).collect();
        Body::from_stream(stream::iter(pieces))
    }

    #[tokio::test]
    async fn the_body_that_was_begun_first_gives_way() {
        let all = Bodies::new(10);
        let (mut first, mut second) =
            (Box::pin(all.read(endless(4), 10, None)), Box::pin(all.read(endless(4), 10, None)));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        assert_eq!(all.memory.ledger.lock().bytes, 8);
        let (bytes, room) = all.read(pieces(&[3, 2, 1]), 10, None).await.unwrap();
        assert_eq!((&bytes[..], all.memory.ledger.lock().bytes), (&[7; 6][..], 10));
        assert!(matches!(first.await, Err(Broken::Full(Full::Node))));
        assert!(second.as_mut().now_or_never().is_none());
        drop((second, room));
        let ledger = all.memory.ledger.lock();
        assert_eq!((ledger.bytes, ledger.halves.len()), (0, 0));
    }

    #[tokio::test]
    async fn whole_bodies_and_answers_give_way_to_none() {
        let all = Bodies::new(10);
        let (_bytes, whole) = all.read(pieces(&[5]), 10, None).await.unwrap();
        let answer = all.answer(5, None).unwrap();
        assert!(all.answer(1, None).is_err());
        assert!(matches!(all.read(pieces(&[1]), 10, None).await, Err(Broken::Full(Full::Node))));
        drop(answer);
        assert!(matches!(all.read(pieces(&[3, 3]), 5, None).await, Err(Broken::TooLarge)));
        let (bytes, _room) = all.read(pieces(&[2, 3]), 10, None).await.unwrap();
        assert_eq!((bytes.len(), all.memory.ledger.lock().bytes), (5, 10));
        drop((whole, _room));
        let ledger = all.memory.ledger.lock();
        assert_eq!((ledger.bytes, ledger.answers_bytes), (0, 0));
    }

    const ONE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)));
    const OTHER: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)));

    #[tokio::test]
    async fn an_address_has_half_while_it_is_alone_and_a_quarter_beside_others() {
        let all = Bodies::new(80);
        let first = all.answer(12, ONE).unwrap();
        let second = all.answer(8, ONE).unwrap();
        assert_eq!(all.answer(1, ONE).err(), Some(Full::Address), "half of what answers may have");
        let others = all.answer(10, OTHER).unwrap();
        assert_eq!(all.answer(1, OTHER).err(), Some(Full::Address), "a quarter, since two have some");
        let _exempt = all.answer(10, None).unwrap();
        assert_eq!(all.answer(1, None).err(), Some(Full::Node), "an exempt address is bounded by the whole");
        drop((first, second));
        let _long = all.answer(20, ONE).unwrap();
        assert_eq!(all.answer(1, ONE).err(), Some(Full::Address), "one alone may be longer than the share");
        drop((others, _exempt, _long));
        let ledger = all.memory.ledger.lock();
        assert_eq!((ledger.bytes, ledger.answers_bytes, ledger.shares.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn at_the_bound_of_an_address_its_own_bodies_give_way() {
        let all = Bodies::new(40);
        let mut before = Box::pin(all.read(endless(8), 40, OTHER));
        assert!(before.as_mut().now_or_never().is_none());
        let mut half = Box::pin(all.read(endless(8), 40, ONE));
        assert!(half.as_mut().now_or_never().is_none());
        let (_bytes, whole) = all.read(pieces(&[3, 3]), 40, ONE).await.unwrap();
        assert!(matches!(half.await, Err(Broken::Full(Full::Address))));
        assert!(before.as_mut().now_or_never().is_none(), "it came before, and is another address's");
        assert!(matches!(all.read(pieces(&[5]), 40, ONE).await, Err(Broken::Full(Full::Address))));
        drop(whole);
        let (_bytes, whole) = all.read(pieces(&[7, 7]), 40, ONE).await.unwrap();
        drop((before, whole));
        let ledger = all.memory.ledger.lock();
        assert_eq!((ledger.bytes, ledger.halves.len(), ledger.shares.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn bodies_without_bytes_leave_nothing_behind() {
        let all = Bodies::new(40);
        let (_bytes, empty) = all.read(pieces(&[0]), 40, ONE).await.unwrap();
        let (_bytes, whole) = all.read(pieces(&[0, 3]), 40, ONE).await.unwrap();
        drop(whole);
        drop(empty);
        assert!(all.memory.ledger.lock().shares.is_empty());
    }
}
