//! Long work of a node, on threads of low priority.

use rustix::process::{getpriority_process, setpriority_process};

/// Niceness of a background thread: on a busy machine it gets about a ninth of another thread's
/// time.
pub(crate) const NICE: i32 = 10;

/// Lowers the priority of the calling thread, so that answers to clients and replication go first.
pub fn leave_the_processor() {
    // Linux keeps the niceness for each thread. If it cannot be set, the thread only competes more.
    let own = getpriority_process(None).unwrap_or_default();
    let _ = setpriority_process(None, own.max(NICE));
}
