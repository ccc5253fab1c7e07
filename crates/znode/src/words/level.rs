//! Levels of the format of the log and of snapshots: those that a program knows, and the error for
//! a level that it does not know.

use std::fmt;

use bincode::{Decode, Encode};

/// The lowest format level of a cluster in which this program can be a member.
pub const LEVEL_MIN: u16 = 1;

/// The highest format level that this program knows. Every change of an entry's bytes, or of what
/// an entry does, is a new level.
#[cfg(not(feature = "next-level"))]
pub const LEVEL_MAX: u16 = 1;
/// The highest format level in a build for tests of upgrades: one more than in a released program.
#[cfg(feature = "next-level")]
pub const LEVEL_MAX: u16 = 2;

/// Format levels (versions of the format of log and snapshots) that a program knows: all from the
/// lowest to the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Levels {
    /// The lowest format level that the program knows.
    pub min: u16,
    /// The highest format level that the program knows.
    pub max: u16,
}

impl Levels {
    /// The format levels that this program knows.
    pub const OWN: Levels = Levels { min: LEVEL_MIN, max: LEVEL_MAX };

    /// Tells whether the format level `level` is one of these.
    pub fn contains(self, level: u16) -> bool {
        (self.min..=self.max).contains(&level)
    }

    /// Checks that a program that knows these format levels can be a member of a cluster at
    /// `level`.
    ///
    /// # Errors
    /// [`OtherLevel`] when the program does not know the level.
    pub fn check(self, level: u16) -> Result<(), OtherLevel> {
        if self.contains(level) { Ok(()) } else { Err(OtherLevel { level, known: self }) }
    }
}

impl Default for Levels {
    fn default() -> Self {
        Levels::OWN
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "only {}", self.max) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

/// Program that a node runs: its version, and the format levels that it knows. A format level is a
/// version of the formats of entries and snapshots. Each node tells both to the other members.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Program {
    /// The program's version, for people.
    pub version: String,
    /// Format levels (versions of the formats of entries and snapshots) that the program knows.
    pub levels: Levels,
}

impl Default for Program {
    /// Describes the program that is running.
    fn default() -> Self {
        let next = if cfg!(feature = "next-level") { "+next-level" } else { "" };
        Program { version: format!("{}{next}", env!("CARGO_PKG_VERSION")), levels: Levels::OWN }
    }
}

/// An error: the cluster is at a format level (version of the format of log and snapshots) that a
/// program does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this cluster is at level {level}; this zlock knows {known}: start {} zlock", self.wanted())]
pub struct OtherLevel {
    /// The format level of the cluster.
    pub level: u16,
    /// The format levels that the program knows.
    pub known: Levels,
}

impl OtherLevel {
    fn wanted(&self) -> &'static str {
        if self.level > self.known.max { "a newer" } else { "an older" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_know_a_level_says_which_one_to_start() {
        let known = Levels { min: 2, max: 3 };
        let said = |level| known.check(level).map_err(|error| error.to_string());
        assert_eq!((said(2), said(3)), (Ok(()), Ok(())));
        assert_eq!(said(4).unwrap_err(), "this cluster is at level 4; this zlock knows 2 to 3: start a newer zlock");
        let only = Levels { min: 2, max: 2 };
        let said = only.check(1).unwrap_err().to_string();
        assert_eq!(said, "this cluster is at level 1; this zlock knows only 2: start an older zlock");
    }
}
