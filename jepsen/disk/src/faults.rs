//! What is wrong with a disk, and when that begins.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fuser::Errno;

/// What an fsync does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Syncs {
    /// It makes durable.
    #[default]
    Work,
    /// It does not return until it is let go.
    Hang,
    /// It returns that much later.
    Slow(Duration),
    /// It fails with EIO.
    Fail,
}

/// What begins after a number of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing is changed any more.
    Stopped,
    /// Every fsync fails.
    SyncsFail,
}

/// The faults of a disk, now and soon.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) syncs: Syncs,
    stopped: bool,
    /// How many changes are left until then.
    planned: Option<(u64, Fault)>,
    /// Who waits for the stop.
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

    /// The disk is told to change something: a write, a name, an fsync.
    ///
    /// # Errors
    /// `EIO` when it has stopped.
    pub(crate) fn change(&mut self) -> Result<(), Errno> {
        match &mut self.planned {
            Some((0, Fault::Stopped)) => {
                self.stopped = true;
                // It may have gone.
                let _told = self.waits.take().map(|waits| waits.send(()));
            }
            Some((0, Fault::SyncsFail)) => self.syncs = Syncs::Fail,
            Some((left, _)) => *left -= 1,
            None => {}
        }
        if self.stopped { Err(Errno::EIO) } else { Ok(()) }
    }
}
