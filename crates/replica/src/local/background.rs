//! Long work of a node, on threads that leave the processor to the others.

use rustix::process::{getpriority_process, setpriority_process};

/// Niceness of such a thread: where all want the processor, it gets a ninth of what another one
/// gets.
pub(crate) const NICE: i32 = 10;

/// Makes the calling thread one in the background. What answers clients and replicates goes first
/// from here on.
pub fn leave_the_processor() {
    // Linux keeps this for each thread. Without it, it is only a worse neighbour.
    let own = getpriority_process(None).unwrap_or_default();
    let _ = setpriority_process(None, own.max(NICE));
}
