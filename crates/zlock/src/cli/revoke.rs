//! `zlock revoke`: asks the holders of a lock to release it.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};

use super::break_lock::{no_ticket, nobody};
use super::context::{Context, path_of};
use super::failure::Failure;
use super::options::time;
use super::seen::plain;

pub(crate) fn command() -> Command {
    Command::new("revoke")
        .about("Asks the holders of a lock, or of one ticket, to release it")
        .arg(Arg::new("path").value_name("LOCK|TICKET").required(true).help("Path, as in `zlock locks --json`"))
        .arg(time("deadline", "Time after which holders lose the lock if they have not released it [default: never]"))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = path_of(matches);
    let revoked = context.client.revoke(&path, matches.get_one::<Duration>("deadline").copied()).await;
    // A lock without holders and waiters may have no znode.
    let revoked = match revoked {
        Err(error) if error.is_no_node() => return Err(nobody(&path)),
        revoked => revoked?,
    };
    let line = |ticket: &String| context.out.line(&format!("asked {}", plain(ticket)));
    let done = context.out.answer(&revoked, || revoked.tickets.iter().try_for_each(line))?;
    if revoked.tickets.is_empty() {
        let held = context.client.lock_queue(&path).await?.holders;
        return Err(held.first().map_or_else(|| nobody(&path), |holder| no_ticket(&holder.ticket)));
    }
    Ok(done)
}
