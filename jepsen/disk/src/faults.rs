//! Faults of a disk, present and planned.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fuser::Errno;

/// Behaviour of fsync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Syncs {
    /// An fsync makes bytes durable.
    #[default]
    Work,
    /// An fsync hangs until fsyncs work again, or until hanging fsyncs are made to fail.
    Hang,
    /// An fsync makes bytes durable and returns after a delay.
    Slow(Duration),
    /// An fsync fails with EIO.
    Fail,
}

/// Present and planned faults of a disk.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) syncs: Syncs,
    /// Number of bytes on the disk above which it has no space; `None` for the disk's capacity.
    pub(crate) full_bytes: Option<u64>,
    stopped: bool,
    /// Number of changes until the planned stop, and the sender that reports it; `None` without a
    /// planned stop.
    stop: Option<(u64, Sender<()>)>,
    /// Number of changes until every fsync fails; `None` if that is not planned.
    fail: Option<u64>,
}

impl Faults {
    pub(crate) fn stop_after(&mut self, changes: u64) -> Receiver<()> {
        let (waits, stopped) = channel();
        self.stop = Some((changes, waits));
        stopped
    }

    pub(crate) fn fail_after(&mut self, changes: u64) {
        self.fail = Some(changes);
    }

    /// Ends the present faults of fsyncs and of the disk's space.
    pub(crate) fn work(&mut self) {
        (self.syncs, self.full_bytes) = (Syncs::Work, None);
    }

    /// Counts a change of the disk (a write, a change of a name, an fsync), and begins a planned
    /// fault when it is due. Fails with EIO if the disk is stopped.
    pub(crate) fn change(&mut self) -> Result<(), Errno> {
        self.stop = match self.stop.take() {
            Some((0, waits)) => {
                self.stopped = true;
                // The receiver may have been dropped.
                let _told = waits.send(());
                None
            }
            planned => planned.map(|(left, waits)| (left - 1, waits)),
        };
        if self.stopped {
            return Err(Errno::EIO);
        }
        if self.fail == Some(0) {
            self.syncs = Syncs::Fail;
        }
        // The plan ends when the fault begins, so that the fault does not begin again after a mend.
        self.fail = self.fail.and_then(|left| left.checked_sub(1));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planned_failure_begins_once() {
        let mut faults = Faults::default();
        faults.fail_after(1);
        faults.change().unwrap();
        assert_eq!(faults.syncs, Syncs::Work);
        faults.change().unwrap();
        assert_eq!(faults.syncs, Syncs::Fail);
        // As `Disk::mend` does.
        faults.syncs = Syncs::Work;
        faults.change().unwrap();
        assert_eq!(faults.syncs, Syncs::Work);
    }

    #[test]
    fn a_stop_and_a_failure_are_planned_side_by_side() {
        let mut faults = Faults::default();
        let stopped = faults.stop_after(2);
        faults.fail_after(1);
        faults.change().unwrap();
        faults.change().unwrap();
        assert_eq!(faults.syncs, Syncs::Fail);
        assert!(stopped.try_recv().is_err());
        faults.change().unwrap_err();
        assert_eq!(stopped.try_recv(), Ok(()));
        faults.change().unwrap_err();
    }
}
