//! Operations on the cluster as a whole: its founding, its format level, and removed nodes.

use crate::{Cluster, Error, Founding, Op, Refusal, Reply, Request, State, ZXID_BASE_MAX, Zxid};

impl State {
    /// The zxid of the entry at `index` in the log: the index plus the cluster's zxid base. Before
    /// the founding the base is 0. An entry whose `request` founds the cluster uses the base in
    /// that request.
    pub fn zxid_of(&self, index: u64, request: Option<&Request>) -> Zxid {
        let founding = match request.map(|request| &request.op) {
            Some(Op::Found(founding)) if founding.zxid_base <= ZXID_BASE_MAX => Some(founding),
            _ => None,
        };
        let founding = self.cluster().map(Cluster::founding).or(founding);
        Zxid(founding.map_or(0, |founding| founding.zxid_base) + index)
    }

    /// Founds the cluster. A second founding changes nothing, because two leaders may each have
    /// proposed a founding.
    pub(crate) fn found(&mut self, founding: Founding) -> Result<Reply, Refusal> {
        if founding.zxid_base > ZXID_BASE_MAX {
            return Err(Error::BadArguments.into());
        }
        if self.cluster().is_none() {
            self.set_cluster(Cluster::new(founding, 1));
        }
        Ok(Reply::Done)
    }

    pub(crate) fn set_level(&mut self, level: u16) -> Result<Reply, Refusal> {
        let cluster = self.founded()?;
        if level <= cluster.level {
            return Err(Error::BadArguments.into());
        }
        cluster.level = level;
        Ok(Reply::Done)
    }

    pub(crate) fn note_removed(&mut self, node_id: u64, now: Zxid) -> Result<Reply, Refusal> {
        self.founded()?.removed.entry(node_id).or_insert(now);
        Ok(Reply::Done)
    }

    #[cfg(feature = "next-level")]
    pub(crate) fn set_note(&mut self, text: &str) -> Result<Reply, Refusal> {
        self.founded()?.note = Some(text.into());
        Ok(Reply::Done)
    }

    /// Restores the cluster's note (a text for people) from a snapshot. Returns false if there is
    /// no cluster, its format level has no notes, or there is a note already.
    #[cfg(feature = "next-level")]
    pub(crate) fn restore_note(&mut self, text: &str) -> bool {
        let good = self.level() >= 2 && self.cluster().is_some_and(|cluster| cluster.note().is_none());
        good && self.set_note(text).is_ok()
    }
}
