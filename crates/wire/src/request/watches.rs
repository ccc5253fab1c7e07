//! Requests that set, check and remove watches.

use std::sync::Arc;

use jute::{AddWatchRequest, DecodeError, Input, Number, PathWatch, PathWatcher, Record, error, op, watcher};
use replica::Bound;
use znode::{EventKind, State, ZPath, Zxid};

use crate::client::Client;
use crate::client::end::End;
use crate::watch::audience::WatchKind;
use crate::watch::hub::{Hub, Look};
use crate::watch::watch_table::TOGETHER;

/// Effect of a request on watches.
#[derive(Clone, Copy)]
pub(crate) enum WatchRequest<'a> {
    /// A read that sets a watch.
    Read(ReadWatch, &'a PathWatch),
    /// A request that adds a persistent watch.
    Add(&'a AddWatchRequest),
    /// A request that asks whether a watch is set.
    Check(&'a PathWatcher),
    /// A request that removes watches.
    Remove(&'a PathWatcher),
}

/// Kind of read that sets a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadWatch {
    Exists,
    Data,
    Children,
}

/// Answer to a request about watches: the zxid for its header, and its body or error code.
pub(crate) type WatchAnswer = (Zxid, Result<Vec<u8>, i32>);

/// Outcome of setting a client's watches again on a new connection: the answer to the client's
/// request, after the watches were set and their events since the last connection sent; or the end
/// of the connection, as a bound leaves no room for all watches. Clients ignore errors in the
/// answer to setWatches, so only the end of the connection tells the client of it.
pub(crate) type ComebackOutcome = Result<WatchAnswer, End>;

/// Sets the watch of a read, if the client may read the znode. Returns the state for the read, and
/// the error code of `refuse` if the watch exceeds a bound. Later events are held back in the
/// outbox until the answer to the read.
pub(crate) fn look(
    hub: &Hub,
    client: &Client,
    (what, which): (ReadWatch, &PathWatch),
    refuse: impl FnOnce(Bound) -> i32,
) -> (Arc<State>, Result<(), i32>) {
    let identities = client.identities();
    let (state, set) = hub.look(client, |look| {
        // A path that no znode can have needs no watch.
        let Some(path) = watchable(&which.path, look) else { return (look.state().clone(), Ok(())) };
        let node = look.state().node(&path);
        let readable = node.is_some_and(|node| look.state().may(&path, node, znode::READ, &identities));
        let set = match what {
            // `exists` also watches a missing znode, for its creation.
            ReadWatch::Exists => look.set(WatchKind::Data, &path),
            ReadWatch::Data if readable => look.set(WatchKind::Data, &path),
            ReadWatch::Children if readable => look.set(WatchKind::Child, &path),
            ReadWatch::Data | ReadWatch::Children => Ok(()),
        };
        (look.state().clone(), set)
    });
    (state, set.map_err(refuse))
}

/// Parses a path; `None` if no znode can have it. No watch is set on such a path, which bounds the
/// memory for paths. The length is checked first, because no entry is applied during a `look`.
fn watchable(path: &str, look: &Look<'_>) -> Option<ZPath> {
    let is_short = path.len() <= look.state().limits().path_bytes_max as usize;
    is_short.then(|| ZPath::parse(path).ok()).flatten()
}

/// Answers addWatch, with the error code of `refuse` if the watch exceeds a bound. Later events are
/// held back in the outbox until the answer.
pub(crate) fn add(hub: &Hub, client: &Client, add: &AddWatchRequest, refuse: impl FnOnce(Bound) -> i32) -> WatchAnswer {
    let (zxid, set) = hub.look(client, |look| {
        let kind = match add.mode {
            watcher::MODE_PERSISTENT => Ok(WatchKind::Persistent),
            watcher::MODE_PERSISTENT_RECURSIVE => Ok(WatchKind::Recursive),
            _ => Err(error::MARSHALLING),
        };
        let path = watchable(&add.path, look).ok_or(error::BAD_ARGUMENTS);
        (look.state().last_zxid(), kind.and_then(|kind| Ok(look.set(kind, &path?))))
    });
    let set = set.and_then(|set| set.map_err(refuse));
    (zxid, set.map(|()| Number { number: 0 }.to_bytes()))
}

/// Answers checkWatches and removeWatches. Later events are held back in the outbox until the
/// answer.
pub(crate) fn check(hub: &Hub, client: &Client, which: &PathWatcher, remove: bool) -> WatchAnswer {
    let kinds: &[WatchKind] = match which.kind {
        watcher::CHILDREN => &[WatchKind::Child],
        watcher::DATA => &[WatchKind::Data],
        watcher::ANY => &[WatchKind::Data, WatchKind::Child, WatchKind::Persistent, WatchKind::Recursive],
        watcher::PERSISTENT => &[WatchKind::Persistent],
        watcher::PERSISTENT_RECURSIVE => &[WatchKind::Recursive],
        _ => &[],
    };
    hub.look(client, |look| {
        let zxid = look.state().last_zxid();
        if kinds.is_empty() {
            return (zxid, Err(error::MARSHALLING));
        }
        let Some(path) = watchable(&which.path, look) else { return (zxid, Err(error::NO_WATCHER)) };
        let mut found = 0;
        for kind in kinds {
            found += usize::from(if remove { look.remove(*kind, &path) } else { look.has(*kind, &path) });
        }
        (zxid, if found > 0 { Ok(Vec::new()) } else { Err(error::NO_WATCHER) })
    })
}

/// One of the five lists of paths in a setWatches2 request. The list determines the kind of watch.
#[derive(Clone, Copy)]
enum WatchList {
    Data,
    Exist,
    Child,
    Persistent,
    Recursive,
}

impl WatchList {
    /// Lists of setWatches2 in their order. A setWatches request has only the first three.
    const ALL: [Self; 5] = [Self::Data, Self::Exist, Self::Child, Self::Persistent, Self::Recursive];
}

/// Number of bytes of paths that one step of a [`Comeback`] decodes. The last path may exceed it.
const STEP_BYTES: usize = 16 << 10;

/// Watches of a client's former connection that are being set again, in steps: a setWatches
/// request. Its lists may have 200,000 paths, so they are decoded in the steps, too.
///
/// Each step sets up to [`TOGETHER`] watches, and uses a newer state than the step before. Events
/// that a watch missed before its step are sent before the answer to the request, in the order of
/// ZooKeeper's DataTree.setWatches. Later events for the watch are held back until after that
/// answer. So in several steps, a change during the steps may be sent before an earlier change. But
/// no change is sent after an answer, to this request or a later one, that shows the change.
pub(crate) struct Comeback {
    body: Vec<u8>,
    /// Number of bytes of `body` that are decoded.
    at: usize,
    /// The last zxid that the client has seen.
    seen: Zxid,
    /// Zxid at the first step, which becomes the answer's zxid; `None` before that step. Changes
    /// during the steps have higher zxids. If the connection ends before their events are sent, the
    /// client's next setWatches finds the changes.
    since: Option<Zxid>,
    /// Lists that are not decoded completely. The first has `paths_left` more paths.
    lists: &'static [WatchList],
    /// `None` if the length of the first list is not decoded.
    paths_left: Option<usize>,
}

impl Comeback {
    /// Begins a setWatches or setWatches2 request with this body.
    ///
    /// # Errors
    /// When the body has no zxid. An invalid list is answered with an error code, after the watches
    /// before it are set.
    pub(crate) fn new(op: i32, body: &[u8]) -> Result<Comeback, DecodeError> {
        let mut input = Input::new(body);
        let seen = Zxid(u64::try_from(input.read::<i64>()?).unwrap_or(0));
        let at = body.len() - input.remaining();
        let lists = if op == op::SET_WATCHES { &WatchList::ALL[..3] } else { &WatchList::ALL[..] };
        Ok(Comeback { body: body.to_vec(), at, seen, since: None, lists, paths_left: None })
    }

    /// Sets up to [`TOGETHER`] watches. Returns the outcome when all are set; `None` if some are
    /// left.
    pub(crate) fn step(&mut self, hub: &Hub, client: &Client) -> Option<ComebackOutcome> {
        hub.look(client, |look| {
            let since = *self.since.get_or_insert_with(|| look.state().last_zxid());
            let end = self.at + STEP_BYTES;
            for _ in 0..TOGETHER {
                let (list, path) = match self.next() {
                    Ok(Some(next)) => next,
                    Ok(None) => return Some(Ok((since, Ok(Vec::new())))),
                    Err(_) => return Some(Ok((since, Err(error::MARSHALLING)))),
                };
                if let Err(bound) = set_again(look, list, &path, self.seen) {
                    return Some(Err(End::Bound(bound)));
                }
                if self.at >= end {
                    break;
                }
            }
            None
        })
    }

    /// Decodes the next path. `None` after the last one.
    fn next(&mut self) -> Result<Option<(WatchList, String)>, DecodeError> {
        let mut input = Input::new(&self.body[self.at..]);
        let path = loop {
            let Some((list, further)) = self.lists.split_first() else { return Ok(None) };
            match self.paths_left {
                None => {
                    let count = input.read::<i32>()?;
                    // Null is read as an empty list.
                    let paths = if count == -1 { Ok(0) } else { usize::try_from(count) };
                    self.paths_left = Some(paths.map_err(|_| DecodeError::Length(count))?);
                }
                Some(0) => (self.lists, self.paths_left) = (further, None),
                Some(left) => {
                    self.paths_left = Some(left - 1);
                    break (*list, input.read()?);
                }
            }
        };
        self.at = self.body.len() - input.remaining();
        Ok(Some(path))
    }
}

/// Sets one watch again, or sends the event that it has missed.
fn set_again(look: &mut Look<'_>, list: WatchList, path: &str, seen: Zxid) -> Result<(), Bound> {
    // A path that no znode can have needs no watch.
    if path.len() > look.state().limits().path_bytes_max as usize {
        return Ok(());
    }
    let Ok(path) = ZPath::parse(path) else { return Ok(()) };
    match list {
        WatchList::Data => data(look, &path, seen),
        WatchList::Exist => exist(look, &path),
        WatchList::Child => child(look, &path, seen),
        WatchList::Persistent => look.set(WatchKind::Persistent, &path),
        WatchList::Recursive => look.set(WatchKind::Recursive, &path),
    }
}

fn data(look: &mut Look<'_>, path: &ZPath, seen: Zxid) -> Result<(), Bound> {
    match look.state().node(path).map(|node| node.stat().mzxid) {
        None => look.tell(EventKind::Deleted, path),
        Some(mzxid) if mzxid > seen => look.tell(EventKind::DataChanged, path),
        Some(_) => return look.set(WatchKind::Data, path),
    }
    Ok(())
}

fn exist(look: &mut Look<'_>, path: &ZPath) -> Result<(), Bound> {
    if look.state().node(path).is_none() {
        return look.set(WatchKind::Data, path);
    }
    look.tell(EventKind::Created, path);
    Ok(())
}

fn child(look: &mut Look<'_>, path: &ZPath, seen: Zxid) -> Result<(), Bound> {
    match look.state().node(path).map(|node| node.stat().pzxid) {
        None => look.tell(EventKind::Deleted, path),
        Some(pzxid) if pzxid > seen => look.tell(EventKind::ChildrenChanged, path),
        Some(_) => return look.set(WatchKind::Child, path),
    }
    Ok(())
}
