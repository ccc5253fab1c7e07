//! The id of this node: a whole number, or `hostname` for an id that the hostname ends with.

pub use super::count::show;

const HOSTNAME: &str = "hostname";

/// Name of this kind of value in the help.
pub const NAME: &str = "ID|hostname";

/// Reads a whole number, or takes the id from the machine's hostname.
///
/// # Errors
/// A message when the text is neither, or the hostname does not end with a number.
pub fn parse(text: &str) -> Result<u64, String> {
    match text {
        HOSTNAME => of_hostname(&rustix::system::uname().nodename().to_string_lossy()),
        _ => super::count::parse(text).map_err(|wrong| format!("{wrong}, nor `{HOSTNAME}`")),
    }
}

/// Returns the id of the pod of a StatefulSet with this hostname: its ordinal, which counts from 0,
/// plus 1. A domain after the first dot is ignored.
pub(in crate::config) fn of_hostname(hostname: &str) -> Result<u64, String> {
    let label = hostname.split('.').next().unwrap_or_default();
    let ordinal = label.rsplit_once('-').and_then(|(_, ordinal)| super::members::ordinal(ordinal));
    let wrong = || format!("the hostname `{hostname}` does not end with `-` and a number, as `zlock-0` does");
    ordinal.map(|ordinal| u64::from(ordinal) + 1).ok_or_else(wrong)
}
