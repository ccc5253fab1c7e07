//! Named points of the code at which a crash test can delay, fail or kill the process. Without the
//! feature `failpoints` they do nothing.

/// Names of all failpoints. A crash test kills the process at each of them.
#[cfg(feature = "failpoints")]
pub const FAILPOINTS: &[&str] = &[
    "log.append",
    "log.flush",
    "log.flushed",
    "log.truncate",
    "log.purge",
    "log.purged",
    "vote.save",
    "vote.saved",
    "meta.create",
    "meta.created",
    "meta.log-begun",
    "meta.founding",
    "meta.joined",
    "meta.log-bytes",
    "meta.rejoining",
    "log.given-up",
    "log.replaced",
    "record.written",
    "record.renamed",
    "db.flush",
    "db.fsync",
    "db.fsynced",
    "db.closing",
    "db.sync",
    "db.copy",
    "snapshot.begin",
    "snapshot.chunk",
    "snapshot.manifest",
    "snapshot.flip",
    "snapshot.flipped",
    "snapshot.cleanup",
    "snapshot.cleaned",
    "receive.begin",
    "receive.chunk",
    "receive.verify",
    "receive.verified",
];

/// Runs the action that a test has set for the failpoint `name`. Does nothing without an action.
///
/// # Errors
/// Only if a test told the failpoint to fail.
#[cfg(feature = "failpoints")]
pub(crate) fn pass(name: &'static str) -> std::io::Result<()> {
    debug_assert!(FAILPOINTS.contains(&name), "{name} is missing in FAILPOINTS");
    match fail::eval(name, |how| how) {
        None => Ok(()),
        // `full` simulates a full disk, any other action a failing disk.
        Some(Some(how)) if how == "full" => Err(rustix::io::Errno::NOSPC.into()),
        Some(_) => Err(rustix::io::Errno::IO.into()),
    }
}

/// Does nothing: this build has no failpoints.
///
/// # Errors
/// None in this build.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn pass(_name: &'static str) -> std::io::Result<()> {
    Ok(())
}

/// Size of a chunk of the log in bytes, as a test has set it; `None` for the default size.
#[cfg(feature = "failpoints")]
pub(crate) fn chunk_bytes() -> Option<usize> {
    fail::eval("log.chunk-bytes", |bytes| bytes?.parse().ok()).flatten()
}

/// Size of a chunk of the log in bytes, as a test has set it; always `None` in this build.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn chunk_bytes() -> Option<usize> {
    None
}
