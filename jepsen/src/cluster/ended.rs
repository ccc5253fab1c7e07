//! Ends of nodes' processes.

/// Text in the last log line of a node that refuses to start on damaged data.
pub(super) const DAMAGED: &str = "is damaged: ";

/// Unexpected end of a node's process: one that the harness did not cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Number of the node.
    pub node: u64,
    /// Exit status of the process.
    pub how: String,
    /// True when the node's disk was broken while the process ran, or when a broken disk has left
    /// damaged data. In both cases the end of the process is correct.
    pub for_its_disk: bool,
    /// True when the kernel killed the process because its control group had no memory left.
    pub for_its_memory: bool,
    /// True when the node found its data damaged and refused to start. Its message then says that
    /// the data must be moved away.
    pub refused_damage: bool,
    /// Last lines of the node's log.
    pub last_lines: Vec<String>,
}

impl Ended {
    /// Tells whether a broken disk or a lack of memory explains the end.
    pub fn is_excused(&self) -> bool {
        self.for_its_disk || self.for_its_memory
    }
}

/// Result of a start that must fail: the process ends by itself, such as an old program on newer
/// data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Exit code of the process; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Last lines of the node's log.
    pub last_lines: Vec<String>,
}
