//! Which program a node runs: the one of this build, or an older one that does not know the newest
//! level. At each start of a node chance says which, and until the level is raised a node may go
//! forth and back.
//!
//! Only in builds with the feature `next-level`: the others know one level, and nothing older.

use replica::Program;
use znode::{LEVEL_MAX, LEVEL_MIN, Levels};

use crate::counts::Counts;
use crate::machine::Node;

/// Chooses programs.
pub(crate) struct Programs {
    random: fastrand::Rng,
    /// From then on all nodes run the newest program.
    settled: bool,
    pub(crate) seen: Counts,
}

impl Programs {
    pub(crate) fn new(random: fastrand::Rng) -> Programs {
        Programs { random, settled: false, seen: Counts::default() }
    }

    /// Faults are over.
    pub(crate) fn settle(&mut self) {
        self.settled = true;
    }

    /// Before a node is started: gives it the program that it will run. `level` is the highest that
    /// any node shows.
    pub(crate) fn choose(&mut self, node: &mut Node, level: u16) {
        if LEVEL_MAX == LEVEL_MIN {
            return;
        }
        // Few try an old program when it cannot run any more.
        let one_in = if level == LEVEL_MAX { 6 } else { 3 };
        let old = !self.settled && self.random.u8(..one_in) == 0;
        let max = if old { LEVEL_MAX - 1 } else { LEVEL_MAX };
        let before = node.levels().max;
        self.seen.note("programs upgraded", u64::from(node.boots > 0 && max > before));
        self.seen.note("programs downgraded", u64::from(node.boots > 0 && max < before));
        let levels = Levels { min: LEVEL_MIN, max };
        node.run_program(Program { version: format!("0.{max}.0"), levels });
    }

    /// Whether a node may have ended so: it runs an old program, and says what to start. It is then
    /// started again, at some time with the newer one.
    pub(crate) fn may_end(&mut self, node: &Node, why: &str) -> bool {
        let may = why.contains("start a newer zlock") && node.levels().max < LEVEL_MAX;
        self.seen.note("programs turned away", u64::from(may));
        may
    }
}
