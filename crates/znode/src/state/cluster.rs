//! The cluster as a whole: which one it is, where its zxids begin, and at which level of the format
//! it is.
//!
//! Its first leader founds it with its first entry, before anything else is proposed. From then on
//! every member knows the cluster from others of the same name by its uuid.

use std::sync::Arc;

use imbl::OrdMap;

use crate::{Founding, Zxid};

/// The cluster as all its members know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub(crate) founding: Founding,
    pub(crate) level: u16,
    /// Ids of nodes that were members, with the zxids of the entries that say so.
    pub(crate) removed: OrdMap<u64, Zxid>,
    /// Fields that later programs keep at the cluster, each with a number: operations under way, a
    /// hash of what was applied. A program that does not know a number keeps the field.
    pub(crate) more: OrdMap<u16, Arc<[u8]>>,
    /// Free text for people.
    #[cfg(feature = "next-level")]
    pub(crate) note: Option<Arc<str>>,
}

impl Cluster {
    pub(crate) fn new(founding: Founding, level: u16) -> Cluster {
        Cluster {
            founding,
            level,
            removed: OrdMap::new(),
            more: OrdMap::new(),
            #[cfg(feature = "next-level")]
            note: None,
        }
    }

    /// Decisions made when it was founded.
    pub fn founding(&self) -> &Founding {
        &self.founding
    }

    /// The level of the format that its members write.
    pub fn level(&self) -> u16 {
        self.level
    }

    /// Nodes that were members, with the zxids at which they were removed. Their ids are never used
    /// again.
    pub fn removed(&self) -> impl Iterator<Item = (u64, Zxid)> {
        self.removed.iter().map(|(id, zxid)| (*id, *zxid))
    }

    /// The note that stands there for people; none before the level with which that came.
    #[cfg(feature = "next-level")]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}
