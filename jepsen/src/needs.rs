//! What faults need of this machine. What is missing is said before anything is started: no fault
//! is left out in silence.

use std::io;
use std::path::{Path, PathBuf};

use crate::cluster::{NetworkKind, disk, namespaces_available};
use crate::nemesis::Fault;

/// Where distributions put the library.
const FAKETIME_DIRS: [&str; 5] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/lib64", "/usr/local/lib"];

/// The library that makes wall clocks jump.
///
/// # Errors
/// When it is not installed.
pub fn faketime() -> io::Result<PathBuf> {
    let mut places = FAKETIME_DIRS.iter().map(|dir| Path::new(dir).join("faketime/libfaketimeMT.so.1"));
    places.find(|path| path.is_file()).ok_or_else(|| {
        let message = "libfaketime was not found (Debian: apt-get install faketime)";
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// Whether these faults can be made here.
///
/// # Errors
/// What is missing.
pub fn check(faults: &[Fault], network: NetworkKind) -> Result<(), String> {
    for fault in faults {
        let missing = match fault {
            Fault::Clock => faketime().err().map(|error| error.to_string()),
            Fault::PowerLoss if power_disk::available().is_ok() => None,
            Fault::DiskFull | Fault::Fsync | Fault::PowerLoss if !disk::available() => {
                Some("it needs root, mount and mkfs.ext4".into())
            }
            Fault::Slow if network == NetworkKind::Namespaces => {
                Some("namespaces cannot delay packets: use --network proxy".into())
            }
            _ => None,
        };
        if let Some(why) = missing {
            return Err(format!("the nemesis {} cannot be run here: {why}", fault.name()));
        }
    }
    if network == NetworkKind::Namespaces {
        namespaces_available().map_err(|error| format!("no network namespaces here: {error}; use --network proxy"))?;
    }
    Ok(())
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
