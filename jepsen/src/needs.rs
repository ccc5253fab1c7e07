//! Requirements of faults on the machine that runs them. They are checked before a run starts, so
//! that no fault is left out silently.

use std::io;
use std::path::{Path, PathBuf};

use crate::cluster::cgroup;
use crate::cluster::{NetworkKind, namespaces_available};
use crate::nemesis::{Fault, Need};

/// Directories in which Linux distributions install libfaketime.
const FAKETIME_DIRS: [&str; 5] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/lib64", "/usr/local/lib"];

/// Returns the path of libfaketime, a library that lets the nemesis set a node's wall clock.
///
/// # Errors
/// When the library is not installed.
pub fn faketime() -> io::Result<PathBuf> {
    let mut places = FAKETIME_DIRS.iter().map(|dir| Path::new(dir).join("faketime/libfaketimeMT.so.1"));
    places.find(|path| path.is_file()).ok_or_else(|| {
        let message = "libfaketime was not found (Debian: apt-get install faketime)";
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// Checks that these faults can be made on this machine.
///
/// # Errors
/// The requirement that is not met.
pub fn check(faults: &[Fault], network: NetworkKind) -> Result<(), String> {
    for fault in faults {
        if let Some(why) = missing(fault.need(), network) {
            return Err(format!("the nemesis {} cannot be run here: {why}", fault.name()));
        }
    }
    if network == NetworkKind::Namespaces {
        namespaces_available().map_err(|error| format!("no network namespaces here: {error}; use --network proxy"))?;
    }
    Ok(())
}

fn missing(need: Need, network: NetworkKind) -> Option<String> {
    match need {
        Need::Group(resource) => cgroup::available(resource).err().map(|error| error.to_string()),
        Need::Faketime => faketime().err().map(|error| error.to_string()),
        Need::Disk => power_disk::available().err().map(|error| error.to_string()),
        Need::Delays if network == NetworkKind::Namespaces => {
            Some("namespaces cannot delay packets: use --network proxy".into())
        }
        Need::NextProgram | Need::Operator if network == NetworkKind::Namespaces => {
            Some("operators come by this machine's own address: use --network proxy".into())
        }
        Need::Nothing | Need::Delays | Need::NextProgram | Need::Operator => None,
    }
}

/// The kind of network that is best for these faults.
pub fn best_network(faults: &[Fault]) -> NetworkKind {
    NetworkKind::best(
        faults.iter().any(|fault| matches!(fault.need(), Need::Delays | Need::NextProgram | Need::Operator)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_made_is_named() {
        assert_eq!(check(&[Fault::Kill, Fault::Slow, Fault::Halves], NetworkKind::Proxies), Ok(()));
        let why = check(&[Fault::Kill, Fault::Slow], NetworkKind::Namespaces).unwrap_err();
        assert_eq!(why, "the nemesis slow cannot be run here: namespaces cannot delay packets: use --network proxy");
    }
}
