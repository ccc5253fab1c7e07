//! Requests that set, check and remove watches.

use std::iter::Peekable;
use std::sync::Arc;

use jute::{AddWatchRequest, Number, PathWatch, PathWatcher, Record, SetWatches, SetWatches2, error, watcher};
use znode::{EventKind, State, ZPath, Zxid};

use crate::client::Client;
use crate::watch::audience::WatchKind;
use crate::watch::hub::{Hub, Look};
use crate::watch::watch_table::{TOGETHER, WatchRefusal};

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
    /// A request that sets the watches of the client's former connection again.
    Back(FormerWatches<'a>),
}

/// Kind of read that sets a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadWatch {
    Exists,
    Data,
    Children,
}

/// Watches of the client's former connection, as setWatches lists them.
#[derive(Clone, Copy)]
pub(crate) struct FormerWatches<'a> {
    relative_zxid: i64,
    /// The paths in the order of [`WatchList::ALL`].
    lists: [&'a [String]; 5],
}

impl FormerWatches<'_> {
    /// Returns the number of watches.
    pub(crate) fn count(&self) -> usize {
        self.lists.iter().map(|paths| paths.len()).sum()
    }
}

impl<'a> From<&'a SetWatches> for FormerWatches<'a> {
    fn from(set: &'a SetWatches) -> FormerWatches<'a> {
        FormerWatches { relative_zxid: set.relative_zxid, lists: [&set.data, &set.exist, &set.child, &[], &[]] }
    }
}

impl<'a> From<&'a SetWatches2> for FormerWatches<'a> {
    fn from(set: &'a SetWatches2) -> FormerWatches<'a> {
        let lists: [&[String]; 5] = [&set.data, &set.exist, &set.child, &set.persistent, &set.persistent_recursive];
        FormerWatches { relative_zxid: set.relative_zxid, lists }
    }
}

/// Answer to a request about watches: the zxid for its header, and its body or error code.
pub(crate) type WatchAnswer = (Zxid, Result<Vec<u8>, i32>);

/// Outcome of setting a client's watches again on a new connection: the zxid for the answer to the
/// client's request, after the watches were set and their events since the last connection sent; or
/// the reason why not all watches are set.
pub(crate) type ComebackOutcome = Result<Zxid, WatchRefusal>;

/// Sets the watch of a read, if the client may read the znode. Returns the state for the read, and
/// an error code if the watch exceeds a bound. Later events are held back in the outbox until the
/// answer to the read.
pub(crate) fn look(hub: &Hub, client: &Client, what: ReadWatch, which: &PathWatch) -> (Arc<State>, Result<(), i32>) {
    let identities = client.identities();
    let (state, set) = hub.look(client, |look| {
        // A path that no znode can have needs no watch.
        let path = ZPath::parse(&which.path).ok().filter(|path| !is_too_long(path, look));
        let Some(path) = path else { return (look.state().clone(), Ok(())) };
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
    (state, set.map_err(|refusal| hub.refuse(client, refusal)))
}

/// Tells whether a path is longer than the path of any znode. No watch is set on such a path, which
/// bounds the memory for paths.
fn is_too_long(path: &ZPath, look: &Look<'_>) -> bool {
    path.as_str().len() > look.state().limits().path_bytes_max as usize
}

/// Answers addWatch. Later events are held back in the outbox until the answer.
pub(crate) fn add(hub: &Hub, client: &Client, add: &AddWatchRequest) -> WatchAnswer {
    let (zxid, set) = hub.look(client, |look| {
        let kind = match add.mode {
            watcher::MODE_PERSISTENT => Ok(WatchKind::Persistent),
            watcher::MODE_PERSISTENT_RECURSIVE => Ok(WatchKind::Recursive),
            _ => Err(error::MARSHALLING),
        };
        let path = ZPath::parse(&add.path).ok().filter(|path| !is_too_long(path, look)).ok_or(error::BAD_ARGUMENTS);
        (look.state().last_zxid(), kind.and_then(|kind| Ok(look.set(kind, &path?))))
    });
    let set = set.and_then(|set| set.map_err(|refusal| hub.refuse(client, refusal)));
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
        let Ok(path) = ZPath::parse(&which.path) else { return (zxid, Err(error::NO_WATCHER)) };
        let mut found = 0;
        for kind in kinds {
            found += usize::from(if remove { look.remove(*kind, &path) } else { look.has(*kind, &path) });
        }
        (zxid, if found > 0 { Ok(Vec::new()) } else { Err(error::NO_WATCHER) })
    })
}

/// Sets the watches of a client's former connection again. Sends the events that these watches
/// missed, in the order of ZooKeeper's DataTree.setWatches, before the answer to the client's
/// request. Later events are held back in the outbox until this answer.
pub(crate) fn bring_back(hub: &Hub, client: &Client, former: FormerWatches<'_>) -> ComebackOutcome {
    let mut comeback = Comeback::new(former);
    loop {
        if let Some(brought) = comeback.step(hub, client) {
            return brought;
        }
        hub.step_aside();
    }
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
    const ALL: [Self; 5] = [Self::Data, Self::Exist, Self::Child, Self::Persistent, Self::Recursive];
}

/// Watches of a client's former connection that are being set again, in steps.
///
/// Each step sets up to [`TOGETHER`] watches, and uses a newer state than the step before. Events
/// that a watch missed before its step are sent before the answer to the request setWatches. Later
/// events for the watch are held back until after that answer. So in several steps, a change during
/// the steps may be sent before an earlier change. But no change is sent after an answer, to this
/// request or a later one, that shows the change.
pub(crate) struct Comeback<'a> {
    seen: Zxid,
    /// Zxid at the first step, which becomes the answer's zxid; `None` before that step. Changes
    /// during the steps have higher zxids. If the connection ends before their events are sent, the
    /// client's next setWatches finds the changes.
    since: Option<Zxid>,
    left: Peekable<Box<dyn Iterator<Item = (WatchList, &'a str)> + Send + 'a>>,
}

impl<'a> Comeback<'a> {
    pub(crate) fn new(former: FormerWatches<'a>) -> Comeback<'a> {
        let lists = WatchList::ALL.into_iter().zip(former.lists);
        let left = lists.flat_map(|(list, paths)| paths.iter().map(move |path| (list, path.as_str())));
        let left: Box<dyn Iterator<Item = _> + Send> = Box::new(left);
        let seen = Zxid(u64::try_from(former.relative_zxid).unwrap_or(0));
        Comeback { seen, since: None, left: left.peekable() }
    }

    /// Sets up to [`TOGETHER`] watches. Returns the outcome when all are set; `None` if some are
    /// left.
    pub(crate) fn step(&mut self, hub: &Hub, client: &Client) -> Option<ComebackOutcome> {
        hub.look(client, |look| {
            let since = *self.since.get_or_insert_with(|| look.state().last_zxid());
            for (list, path) in self.left.by_ref().take(TOGETHER) {
                let Some(path) = ZPath::parse(path).ok().filter(|path| !is_too_long(path, look)) else { continue };
                let set = match list {
                    WatchList::Data => data(look, &path, self.seen),
                    WatchList::Exist => exist(look, &path),
                    WatchList::Child => child(look, &path, self.seen),
                    WatchList::Persistent => look.set(WatchKind::Persistent, &path),
                    WatchList::Recursive => look.set(WatchKind::Recursive, &path),
                };
                if let Err(refusal) = set {
                    return Some(Err(refusal));
                }
            }
            self.left.peek().is_none().then_some(Ok(since))
        })
    }
}

fn data(look: &mut Look<'_>, path: &ZPath, seen: Zxid) -> Result<(), WatchRefusal> {
    match look.state().node(path).map(|node| node.stat().mzxid) {
        None => look.tell(EventKind::Deleted, path),
        Some(mzxid) if mzxid > seen => look.tell(EventKind::DataChanged, path),
        Some(_) => return look.set(WatchKind::Data, path),
    }
    Ok(())
}

fn exist(look: &mut Look<'_>, path: &ZPath) -> Result<(), WatchRefusal> {
    if look.state().node(path).is_none() {
        return look.set(WatchKind::Data, path);
    }
    look.tell(EventKind::Created, path);
    Ok(())
}

fn child(look: &mut Look<'_>, path: &ZPath, seen: Zxid) -> Result<(), WatchRefusal> {
    match look.state().node(path).map(|node| node.stat().pzxid) {
        None => look.tell(EventKind::Deleted, path),
        Some(pzxid) if pzxid > seen => look.tell(EventKind::ChildrenChanged, path),
        Some(_) => return look.set(WatchKind::Child, path),
    }
    Ok(())
}
