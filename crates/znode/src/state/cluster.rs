//! The cluster as a whole: its uuid, its zxid base, and the level of the formats of log and
//! snapshots.
//!
//! The first leader founds the cluster with its first entry, before anything else is proposed. From
//! then on the uuid distinguishes the cluster from all others, also from those with the same name.

use std::sync::Arc;

use imbl::OrdMap;

use crate::{Founding, Zxid};

/// Facts about the cluster that all its members agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub(crate) founding: Founding,
    pub(crate) level: u16,
    /// Ids of nodes that were members, with the zxids of the entries that note their removal.
    pub(crate) removed: OrdMap<u64, Zxid>,
    /// Fields that only later versions of the program know, each under a number. A program that
    /// does not know a number keeps the field unchanged.
    pub(crate) more: OrdMap<u16, Arc<[u8]>>,
    /// The cluster's note, a text for people; `None` if there is no note.
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

    /// Values fixed when the cluster was founded.
    pub fn founding(&self) -> &Founding {
        &self.founding
    }

    /// The level of the formats in which the members write log and snapshots.
    pub fn level(&self) -> u16 {
        self.level
    }

    /// Ids of removed nodes, with the zxids of the entries that note the removal. The ids are never
    /// used again.
    pub fn removed(&self) -> impl Iterator<Item = (u64, Zxid)> {
        self.removed.iter().map(|(id, zxid)| (*id, *zxid))
    }

    /// The cluster's note, a text for people; `None` if there is no note.
    #[cfg(feature = "next-level")]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}
