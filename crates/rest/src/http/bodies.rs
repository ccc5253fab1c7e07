//! The bodies of all requests, and long answers: a bound on their bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::Notify;

/// How many bytes of bodies are there.
///
/// Counted is what has come, not what was announced. At the bound, the body that was begun first
/// and is not whole yet gives way: who sends slowly, or never ends, makes room for those who do
/// not, and none of them has to wait for it.
#[derive(Clone)]
pub(crate) struct Bodies {
    shared: Arc<Shared>,
}

struct Shared {
    bytes_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    bytes: usize,
    answers_bytes: usize,
    begun: u64,
    /// Those that are not whole, in the order in which they were begun.
    halves: BTreeMap<u64, Half>,
}

struct Half {
    bytes: usize,
    gives_way: Arc<Notify>,
}

/// There is no room.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Why there is no body.
#[derive(Debug)]
pub(crate) enum Broken {
    TooLarge,
    /// It had to make room, or found none.
    Full,
    Unreadable(axum::Error),
}

/// The room of one body, for as long as it is kept.
pub(crate) struct Room {
    all: Bodies,
    bytes: usize,
    kind: Kind,
}

enum Kind {
    /// Not whole yet, under its number.
    Half(u64, Arc<Notify>),
    Whole,
    Answer,
}

impl Bodies {
    pub(crate) fn new(bytes_max: usize) -> Bodies {
        Bodies { shared: Arc::new(Shared { bytes_max, inner: Mutex::default() }) }
    }

    /// Reads a body, and keeps its room.
    ///
    /// # Errors
    /// [`Broken`] says why there is none.
    pub(crate) async fn read(&self, mut body: Body, max: usize) -> Result<(Bytes, Room), Broken> {
        let mut room = Room { all: self.clone(), bytes: 0, kind: Kind::Whole };
        let (mut first, mut more) = (Bytes::new(), BytesMut::new());
        loop {
            let frame = tokio::select! {
                biased;
                () = room.gives_way() => return Err(Broken::Full),
                frame = body.frame() => frame,
            };
            let Some(frame) = frame else { break };
            let Ok(data) = frame.map_err(Broken::Unreadable)?.into_data() else { continue };
            if room.bytes + data.len() > max {
                return Err(Broken::TooLarge);
            }
            room.add(data.len(), body.is_end_stream()).map_err(|Full| Broken::Full)?;
            // Most bodies are one piece. Of many, none keeps the buffer that it was read into.
            if first.is_empty() && more.is_empty() {
                first = data;
            } else {
                if more.is_empty() {
                    more.extend_from_slice(&std::mem::take(&mut first));
                }
                more.extend_from_slice(&data);
            }
        }
        room.add(0, true).map_err(|Full| Broken::Full)?;
        Ok((if more.is_empty() { first } else { more.freeze() }, room))
    }

    /// Room for an answer. All answers together have half of it, so that who reads slowly does not
    /// keep others from writing.
    ///
    /// # Errors
    /// [`Full`] when other answers, or bodies that are whole, have it all.
    pub(crate) fn answer(&self, bytes: usize) -> Result<Room, Full> {
        let mut inner = self.lock();
        if inner.answers_bytes + bytes > self.shared.bytes_max / 2 {
            return Err(Full);
        }
        let room = Room { all: self.clone(), bytes, kind: Kind::Answer };
        inner.answers_bytes += bytes;
        inner.bytes += bytes;
        let made = inner.make_room(self.shared.bytes_max);
        drop(inner);
        if made { Ok(room) } else { Err(Full) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().expect("nothing panics under this guard")
    }
}

impl Inner {
    /// Sends the oldest halves away until the bound is kept; false when there are none left.
    fn make_room(&mut self, bytes_max: usize) -> bool {
        while self.bytes > bytes_max {
            let Some((_, half)) = self.halves.pop_first() else { return false };
            self.bytes -= half.bytes;
            half.gives_way.notify_one();
        }
        true
    }
}

impl Room {
    /// More of the body has come; whether that was the last of it.
    fn add(&mut self, bytes: usize, is_whole: bool) -> Result<(), Full> {
        let Room { all, bytes: own, kind } = self;
        let mut inner = all.lock();
        if let Kind::Half(number, _) = kind
            && inner.halves.remove(number).is_none()
        {
            return Err(Full);
        }
        inner.bytes += bytes;
        *own += bytes;
        let mut number = 0;
        if is_whole {
            *kind = Kind::Whole;
        } else {
            let gives_way = match kind {
                Kind::Half(begun, gives_way) => {
                    number = *begun;
                    Arc::clone(gives_way)
                }
                _ => {
                    inner.begun += 1;
                    number = inner.begun;
                    Arc::new(Notify::new())
                }
            };
            *kind = Kind::Half(number, Arc::clone(&gives_way));
            inner.halves.insert(number, Half { bytes: *own, gives_way });
        }
        let made = inner.make_room(all.shared.bytes_max);
        if made && (is_whole || inner.halves.contains_key(&number)) { Ok(()) } else { Err(Full) }
    }

    /// Resolves when the body has to make room for others.
    async fn gives_way(&self) {
        match &self.kind {
            Kind::Half(_, gives_way) => gives_way.notified().await,
            Kind::Whole | Kind::Answer => std::future::pending().await,
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut inner = self.all.lock();
        match self.kind {
            // It may have given way, and is not counted any more.
            Kind::Half(number, _) => {
                if let Some(half) = inner.halves.remove(&number) {
                    inner.bytes -= half.bytes;
                }
                return;
            }
            Kind::Answer => inner.answers_bytes -= self.bytes,
            Kind::Whole => {}
        }
        inner.bytes -= self.bytes;
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
        let (mut first, mut second) = (Box::pin(all.read(endless(4), 10)), Box::pin(all.read(endless(4), 10)));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        assert_eq!(all.lock().bytes, 8);
        let (bytes, room) = all.read(pieces(&[3, 2, 1]), 10).await.unwrap();
        assert_eq!((&bytes[..], all.lock().bytes), (&[7; 6][..], 10));
        assert!(matches!(first.await, Err(Broken::Full)));
        assert!(second.as_mut().now_or_never().is_none());
        drop((second, room));
        let inner = all.lock();
        assert_eq!((inner.bytes, inner.halves.len()), (0, 0));
    }

    #[tokio::test]
    async fn whole_bodies_and_answers_give_way_to_none() {
        let all = Bodies::new(10);
        let (_bytes, whole) = all.read(pieces(&[5]), 10).await.unwrap();
        let answer = all.answer(5).unwrap();
        assert!(all.answer(1).is_err());
        assert!(matches!(all.read(pieces(&[1]), 10).await, Err(Broken::Full)));
        drop(answer);
        assert!(matches!(all.read(pieces(&[3, 3]), 5).await, Err(Broken::TooLarge)));
        let (bytes, _room) = all.read(pieces(&[2, 3]), 10).await.unwrap();
        assert_eq!((bytes.len(), all.lock().bytes), (5, 10));
        drop((whole, _room));
        let inner = all.lock();
        assert_eq!((inner.bytes, inner.answers_bytes), (0, 0));
    }
}
