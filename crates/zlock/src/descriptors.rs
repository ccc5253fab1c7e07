//! Limit of open files: raised as far as permitted, with a reserve that clients' connections cannot
//! use.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

use crate::config::Settings;

/// Number of file descriptors reserved for the disk, peers, operators, listeners, the extra
/// connections that full servers accept, and connections that are being refused or whose PROXY
/// header is being read.
const RESERVE: u64 = 384;
/// Smallest limit of open files with which a node starts: the reserve, and a few for clients.
const LIMIT_MIN: u64 = RESERVE + 64;

/// Raises the soft limit of open files to the hard limit. If the descriptors beyond the reserve are
/// too few for the configured connections, lowers the settings for HTTP and ZooKeeper connections
/// in proportion.
///
/// # Errors
/// A message when the limit is below [`LIMIT_MIN`].
pub(crate) fn share(settings: &mut Settings) -> Result<(), String> {
    let limit = raised();
    if limit < LIMIT_MIN {
        return Err(format!(
            "this process may have {limit} open files, and a node needs {LIMIT_MIN} at least: raise the limit \
             (`ulimit -n`, or LimitNOFILE of a unit of systemd)"
        ));
    }
    let has_zookeeper = settings.zookeeper_listen.or(settings.zookeeper_tls_listen).is_some();
    let http = settings.rest.connections_max as u64;
    let zookeeper = if has_zookeeper { settings.wire.connections_max as u64 } else { 0 };
    let left = limit - RESERVE;
    if http.saturating_add(zookeeper) <= left {
        return Ok(());
    }
    let (http, zookeeper) = in_proportion(http, zookeeper, left);
    warn!(
        open_files_max = limit,
        http.connections_max = http,
        zookeeper.connections_max = zookeeper,
        "fewer connections than configured: the process may not have so many open files"
    );
    settings.rest.connections_max = usize::try_from(http).unwrap_or(usize::MAX);
    if has_zookeeper {
        settings.wire.connections_max = usize::try_from(zookeeper).unwrap_or(usize::MAX);
    }
    Ok(())
}

/// Raises this process's soft limit of open files to the hard limit, and returns the limit.
fn raised() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        info!(%error, "the limit of open files stays what it is");
        return current.unwrap_or(u64::MAX);
    }
    maximum.unwrap_or(u64::MAX)
}

/// Splits `left` into two shares in the proportion of `one` and `other`. Each share is at least 1,
/// unless its proportion is 0.
fn in_proportion(one: u64, other: u64, left: u64) -> (u64, u64) {
    let share = |wanted: u64| {
        let all = u128::from(one) + u128::from(other);
        let share = u128::from(wanted) * u128::from(left) / all.max(1);
        u64::try_from(share).unwrap_or(u64::MAX).max(u64::from(wanted > 0))
    };
    (share(one), share(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_share_what_is_left() {
        assert_eq!(in_proportion(16_384, 4_096, 1_000), (800, 200));
        assert_eq!(in_proportion(16_384, 0, 64), (64, 0));
        assert_eq!(in_proportion(16_384, 1, 64), (63, 1));
        assert_eq!(in_proportion(u64::MAX, u64::MAX, 64), (32, 32));
    }
}
