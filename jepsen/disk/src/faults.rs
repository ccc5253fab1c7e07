//! Faults of a disk, present and planned.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fuser::Errno;

/// Behaviour of fsync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Syncs {
    /// Makes bytes durable.
    #[default]
    Work,
    /// Hangs until the disk is mended or the fsync is dropped.
    Hang,
    /// Returns after a delay.
    Slow(Duration),
    /// Fails with EIO.
    Fail,
}

/// Fault that begins after a number of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The disk stops, and further changes fail.
    Stopped,
    /// Every fsync fails.
    SyncsFail,
}

/// Present and planned faults of a disk.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) syncs: Syncs,
    stopped: bool,
    /// Number of changes until the planned fault.
    planned: Option<(u64, Fault)>,
    /// Sender of the message about the stop.
    waits: Option<Sender<()>>,
}

impl Faults {
    pub(crate) fn stop_after(&mut self, changes: u64) -> Receiver<()> {
        let (waits, stopped) = channel();
        (self.planned, self.waits) = (Some((changes, Fault::Stopped)), Some(waits));
        stopped
    }

    pub(crate) fn fail_after(&mut self, changes: u64) {
        self.planned = Some((changes, Fault::SyncsFail));
    }

    /// Counts a change of the disk (a write, a change of a name, an fsync), and begins the planned
    /// fault when it is due.
    pub(crate) fn change(&mut self) -> Result<(), Errno> {
        match &mut self.planned {
            Some((0, Fault::Stopped)) => {
                self.stopped = true;
                // The receiver may have gone.
                let _told = self.waits.take().map(|waits| waits.send(()));
            }
            Some((0, Fault::SyncsFail)) => self.syncs = Syncs::Fail,
            Some((left, _)) => *left -= 1,
            None => {}
        }
        if self.stopped { Err(Errno::EIO) } else { Ok(()) }
    }
}
