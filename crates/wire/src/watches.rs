//! Requests that set, compare and remove watches.

use jute::{AddWatchRequest, Number, PathWatch, PathWatcher, Record, SetWatches2, error, watcher};
use znode::{EventKind, ZPath, Zxid, permits};

use crate::client::Client;
use crate::hub::{Hub, Look};
use crate::reads::Reader;
use crate::watch_table::{Full, WatchKind};

/// A read that can set a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watching {
    Exists,
    Data,
    Children { with_stat: bool },
}

/// The zxid that an answer was made at, and its body.
pub(crate) type Answered = (Zxid, Result<Vec<u8>, i32>);

/// What became of a client's watches.
pub(crate) enum Brought {
    /// They are set, and what they missed is told.
    Back(Zxid),
    /// There is no room for them here.
    TooMany,
}

/// Reads and sets a watch. The outbox is held: release it with the answer.
pub(crate) fn read(hub: &Hub, client: &Client, what: Watching, which: &PathWatch) -> Answered {
    let identities = client.identities();
    let (state, set) = hub.look(client, |look| {
        let Ok(path) = ZPath::parse(&which.path) else { return (look.state().clone(), Ok(())) };
        let node = look.state().node(&path);
        let readable = node.is_some_and(|node| permits(node.acl(), znode::READ, &identities));
        let set = match what {
            // Also where nothing is: it waits for it.
            Watching::Exists => look.set(WatchKind::Data, &path),
            Watching::Data if readable => look.set(WatchKind::Data, &path),
            Watching::Children { .. } if readable => look.set(WatchKind::Child, &path),
            Watching::Data | Watching::Children { .. } => Ok(()),
        };
        (look.state().clone(), set)
    });
    // Outside of the guard: the answer may be long.
    let reader = Reader { state: &state, identities: &identities };
    let body = match (set, what) {
        (Err(Full), _) => Err(error::QUOTA_EXCEEDED),
        (Ok(()), Watching::Exists) => reader.exists(&which.path),
        (Ok(()), Watching::Data) => reader.data(&which.path),
        (Ok(()), Watching::Children { with_stat }) => reader.children(&which.path, with_stat),
    };
    (state.last_zxid(), body)
}

/// addWatch. The outbox is held.
pub(crate) fn add(hub: &Hub, client: &Client, add: &AddWatchRequest) -> Answered {
    hub.look(client, |look| {
        let kind = match add.mode {
            watcher::MODE_PERSISTENT => Ok(WatchKind::Persistent),
            watcher::MODE_PERSISTENT_RECURSIVE => Ok(WatchKind::Recursive),
            _ => Err(error::MARSHALLING),
        };
        let path = ZPath::parse(&add.path).map_err(|_| error::BAD_ARGUMENTS);
        let set = kind.and_then(|kind| look.set(kind, &path?).map_err(|Full| error::QUOTA_EXCEEDED));
        (look.state().last_zxid(), set.map(|()| Number { number: 0 }.to_bytes()))
    })
}

/// checkWatches and removeWatches. The outbox is held.
pub(crate) fn check(hub: &Hub, client: &Client, which: &PathWatcher, remove: bool) -> Answered {
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

/// Sets the watches of a former connection again, and tells what they missed: before the answer, and in the order of
/// ZooKeeper's DataTree.setWatches. The outbox is held.
pub(crate) fn bring_back(hub: &Hub, client: &Client, watches: &SetWatches2) -> Brought {
    let seen = Zxid(u64::try_from(watches.relative_zxid).unwrap_or(0));
    hub.look(client, |look| {
        let set = [
            again(look, &watches.data, |look, path| data(look, path, seen)),
            again(look, &watches.exist, exist),
            again(look, &watches.child, |look, path| child(look, path, seen)),
            again(look, &watches.persistent, |look, path| look.set(WatchKind::Persistent, path)),
            again(look, &watches.persistent_recursive, |look, path| look.set(WatchKind::Recursive, path)),
        ];
        if set.contains(&Err(Full)) { Brought::TooMany } else { Brought::Back(look.state().last_zxid()) }
    })
}

fn again<'a>(
    look: &mut Look<'a>,
    paths: &[String],
    mut one: impl FnMut(&mut Look<'a>, &ZPath) -> Result<(), Full>,
) -> Result<(), Full> {
    paths.iter().filter_map(|path| ZPath::parse(path).ok()).try_for_each(|path| one(look, &path))
}

fn data(look: &mut Look<'_>, path: &ZPath, seen: Zxid) -> Result<(), Full> {
    match look.state().node(path).map(|node| node.stat().mzxid) {
        None => look.tell(EventKind::Deleted, path),
        Some(mzxid) if mzxid > seen => look.tell(EventKind::DataChanged, path),
        Some(_) => return look.set(WatchKind::Data, path),
    }
    Ok(())
}

fn exist(look: &mut Look<'_>, path: &ZPath) -> Result<(), Full> {
    if look.state().node(path).is_none() {
        return look.set(WatchKind::Data, path);
    }
    look.tell(EventKind::Created, path);
    Ok(())
}

fn child(look: &mut Look<'_>, path: &ZPath, seen: Zxid) -> Result<(), Full> {
    match look.state().node(path).map(|node| node.stat().pzxid) {
        None => look.tell(EventKind::Deleted, path),
        Some(pzxid) if pzxid > seen => look.tell(EventKind::ChildrenChanged, path),
        Some(_) => return look.set(WatchKind::Child, path),
    }
    Ok(())
}
