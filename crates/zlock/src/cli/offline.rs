//! The commands that send no request to a node and use crates of the server: new clusters from old
//! data, certificates, and digests of passwords. Linux only, as a node runs only there.
//!
//! | file | has |
//! |---|---|
//! | `restore.rs`, `recover.rs`, `seeds.rs` | new clusters from old data |
//! | `tls.rs`, `digest.rs` | certificates of members and clients; digests of passwords |

mod digest;
mod recover;
mod restore;
mod seeds;
mod tls;

use std::path::Path;

use clap::{ArgMatches, Command};
use replica::Member;

use crate::cli::failure::Failure;
use crate::cli::output::Output;

/// Makes the certificates of members for TLS between them, in the files of `zlock tls init`.
pub(crate) fn make_certificates(directory: &Path, cluster_id: &str, members: &[Member]) -> Result<(), String> {
    const DAYS: u64 = 365;
    tls::make(directory, cluster_id, members, &[], DAYS).map(drop).map_err(Failure::into_line)
}

pub(crate) fn commands() -> Vec<Command> {
    vec![restore::command(), recover::command(), tls::command(), digest::command()]
}

/// Runs a command. Returns `None` when the command is none of these.
pub(super) fn run(name: &str, out: Output, matches: &ArgMatches) -> Option<Result<u8, Failure>> {
    match name {
        "restore" => Some(restore::run(out, matches)),
        "recover" => Some(recover::run(out, matches)),
        "tls" => Some(tls::run(out, matches)),
        "digest" => Some(digest::run(out, matches)),
        _ => None,
    }
}
