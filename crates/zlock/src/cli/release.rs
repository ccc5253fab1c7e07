//! `zlock release`.

use clap::{Arg, ArgMatches, Command};
use serde::Serialize;

use super::context::{Context, path_of};
use super::failure::Failure;

pub(crate) fn command() -> Command {
    Command::new("release")
        .about("Takes a lock away from those who hold it, or one ticket out of a queue")
        .long_about(
            "Takes a lock away from those who hold it, or one ticket out of a queue.\n\n\
             The lock node is deleted, and the next in the queue is granted. The holder is not asked: it learns of it when it \
             looks (`zlock lock` ends its command), and its fencing token is dead at once.",
        )
        .arg(Arg::new("path").value_name("LOCK|TICKET").required(true).help("As `zlock locks --json` shows them"))
}

#[derive(Serialize)]
struct Released {
    tickets: Vec<String>,
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = path_of(matches);
    let queue = context.client.lock_queue(&path).await?;
    let mut tickets: Vec<String> = queue.holders.into_iter().chain(queue.lingering).map(|one| one.ticket).collect();
    if tickets.is_empty() {
        tickets = vec![ticket(context, &path).await?];
    }
    for ticket in &tickets {
        match context.client.delete(ticket).await {
            // Released meanwhile, which is as good.
            Err(error) if error.is_no_node() => {}
            deleted => {
                deleted?;
            }
        }
    }
    if context.out.json {
        context.out.document(&Released { tickets })?;
    } else {
        tickets.iter().try_for_each(|ticket| context.out.line(&format!("released {ticket}")))?;
    }
    Ok(0)
}

/// The path, if it is a contender in its parent's queue. Nothing else is deleted: it may be
/// a client's data.
async fn ticket(context: &Context, path: &str) -> Result<String, Failure> {
    let nobody = || Failure::refused(format!("nobody holds {path}; `zlock locks` shows who holds what"));
    // The root is no lock, and has no queue to look at.
    let lock = path.rsplit_once('/').map(|(lock, _)| lock).filter(|lock| !lock.is_empty()).ok_or_else(nobody)?;
    let queue = context.client.lock_queue(lock).await?;
    let mut contenders = queue.holders.iter().chain(&queue.lingering).chain(&queue.waiters);
    contenders.find(|one| one.ticket == path).map(|one| one.ticket.clone()).ok_or_else(nobody)
}
