//! Watches of a client, which it sets again on its next connection.

use std::collections::BTreeSet;

use jute::{Request, SetWatches2, error, event, watcher};

/// Watches that have not fired, by kind and path, as a ZooKeeper client library tracks them.
#[derive(Default)]
pub(super) struct Armed {
    data: BTreeSet<String>,
    exist: BTreeSet<String>,
    child: BTreeSet<String>,
    persistent: BTreeSet<String>,
    recursive: BTreeSet<String>,
}

impl Armed {
    /// Adds the watch that a request has set, or removes the watches that it has removed. `code` is
    /// the error code in the answer to the request.
    pub(super) fn answered(&mut self, request: &Request, code: i32) {
        let ok = code == error::OK;
        let (set, path) = match request {
            Request::Exists(which) if which.watch && code == error::NO_NODE => (&mut self.exist, &which.path),
            Request::GetData(which) | Request::Exists(which) if which.watch && ok => (&mut self.data, &which.path),
            Request::GetChildren(which) | Request::GetChildren2(which) if which.watch && ok => {
                (&mut self.child, &which.path)
            }
            Request::AddWatch(add) if ok && add.mode == watcher::MODE_PERSISTENT => (&mut self.persistent, &add.path),
            Request::AddWatch(add) if ok => (&mut self.recursive, &add.path),
            Request::RemoveWatches(which) if ok => {
                let all = [&mut self.data, &mut self.exist, &mut self.child, &mut self.persistent, &mut self.recursive];
                all.into_iter().for_each(|set| _ = set.remove(&which.path));
                return;
            }
            _ => return,
        };
        set.insert(path.clone());
    }

    /// Removes the one-shot watches that an event has used up.
    pub(super) fn fired(&mut self, kind: i32, path: &str) {
        if kind == event::NODE_CHILDREN_CHANGED {
            self.child.remove(path);
            return;
        }
        self.data.remove(path);
        self.exist.remove(path);
        if kind == event::NODE_DELETED {
            self.child.remove(path);
        }
    }

    /// Returns the `SetWatches2` request for all watches; `None` when there are none.
    pub(super) fn again(&self, relative_zxid: i64) -> Option<Request> {
        let all = [&self.data, &self.exist, &self.child, &self.persistent, &self.recursive];
        if all.iter().all(|set| set.is_empty()) {
            return None;
        }
        let [data, exist, child, persistent, persistent_recursive] =
            all.map(|set| set.iter().cloned().collect::<Vec<String>>());
        Some(Request::SetWatches2(SetWatches2 { relative_zxid, data, exist, child, persistent, persistent_recursive }))
    }
}

#[cfg(test)]
mod tests {
    use jute::PathWatch;

    use super::*;

    #[test]
    fn what_has_not_fired_is_brought_along() {
        let mut armed = Armed::default();
        let which = |path: &str| PathWatch { path: path.into(), watch: true };
        armed.answered(&Request::GetData(which("/a")), error::OK);
        armed.answered(&Request::GetData(which("/gone")), error::NO_NODE);
        armed.answered(&Request::Exists(which("/b")), error::NO_NODE);
        armed.answered(&Request::GetChildren(which("/c")), error::OK);
        armed.fired(event::NODE_DATA_CHANGED, "/a");
        armed.fired(event::NODE_CHILDREN_CHANGED, "/b");
        let Some(Request::SetWatches2(again)) = armed.again(7) else { panic!("watches are set") };
        assert_eq!((again.relative_zxid, again.data, again.exist), (7, vec![], vec!["/b".to_owned()]));
        assert_eq!(again.child, ["/c"]);
        armed.fired(event::NODE_CREATED, "/b");
        armed.fired(event::NODE_DELETED, "/c");
        assert_eq!(armed.again(8), None);
    }
}
