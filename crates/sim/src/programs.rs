//! Program versions of the nodes: that of this build, or an older one that does not know the newest
//! format level. Each start of a node chooses one at random. Until the cluster's level is raised, a
//! node may change back and forth.
//!
//! Programs differ only in builds with the feature `next-level`. Other builds know one level, and
//! no older program.

use replica::Program;
use znode::{LEVEL_MAX, LEVEL_MIN, Levels};

use crate::counts::Counts;
use crate::machine::Node;

/// Random choice of the program with which a node starts.
pub(crate) struct Programs {
    random: fastrand::Rng,
    /// Whether all nodes run the newest program from now on.
    settled: bool,
    pub(crate) seen: Counts,
}

impl Programs {
    pub(crate) fn new(random: fastrand::Rng) -> Programs {
        Programs { random, settled: false, seen: Counts::default() }
    }

    /// Ends the use of older programs.
    pub(crate) fn settle(&mut self) {
        self.settled = true;
    }

    /// Sets the program with which a node will start. `level` is the highest format level that any
    /// node's status shows.
    pub(crate) fn choose(&mut self, node: &mut Node, level: u16) {
        if LEVEL_MAX == LEVEL_MIN {
            return;
        }
        // Old programs are rarer once they can no longer run.
        let one_in = if level == LEVEL_MAX { 6 } else { 3 };
        let old = !self.settled && self.random.u8(..one_in) == 0;
        let max = if old { LEVEL_MAX - 1 } else { LEVEL_MAX };
        let before = node.levels().max;
        self.seen.note("programs upgraded", u64::from(node.boots > 0 && max > before));
        self.seen.note("programs downgraded", u64::from(node.boots > 0 && max < before));
        let levels = Levels { min: LEVEL_MIN, max };
        node.run_program(Program { version: format!("0.{max}.0"), levels });
    }

    /// Tells whether a node had a legitimate reason `why` to end: it runs an old program, and the
    /// reason asks for a newer one. The node is restarted then, sooner or later with the newer
    /// program.
    pub(crate) fn may_end(&mut self, node: &Node, why: &str) -> bool {
        let may = why.contains("start a newer zlock") && node.levels().max < LEVEL_MAX;
        self.seen.note("programs turned away", u64::from(may));
        may
    }
}
