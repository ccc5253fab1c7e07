//! `zlock release`.

use clap::{Arg, ArgMatches, Command};
use zlock_client::Contender;

use super::context::{Context, path_of};
use super::failure::Failure;
use super::seen::plain;

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

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = path_of(matches);
    let queue = context.client.lock_queue(&path).await?;
    let mut found: Vec<Contender> = queue.holders.into_iter().chain(queue.lingering).collect();
    if found.is_empty() {
        found = vec![ticket(context, &path).await?];
    }
    let (of_sessions, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|one| one.session.is_some());
    let tickets: Vec<String> = of_sessions.into_iter().map(|one| one.ticket).collect();
    if let Some(other) = others.first().filter(|_| tickets.is_empty()) {
        return Err(no_ticket(&other.ticket));
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
    let line = |ticket: &String| context.out.line(&format!("released {}", plain(ticket)));
    context.out.answer(&serde_json::json!({ "tickets": tickets }), || tickets.iter().try_for_each(line))
}

/// The contender at a path in its parent's queue. Nothing else is released: it may be a client's
/// data.
async fn ticket(context: &Context, path: &str) -> Result<Contender, Failure> {
    // The root is no lock, and has no queue to look at.
    let lock = path.rsplit_once('/').map(|(lock, _)| lock).filter(|lock| !lock.is_empty());
    let queue = context.client.lock_queue(lock.ok_or_else(|| nobody(path))?).await?;
    let mut contenders = queue.holders.into_iter().chain(queue.lingering).chain(queue.waiters);
    contenders.find(|one| one.ticket == path).ok_or_else(|| nobody(path))
}

/// The failure when there is no ticket to release or to revoke.
pub(crate) fn nobody(path: &str) -> Failure {
    Failure::refused(format!("nobody holds {path}; `zlock locks` shows who holds what"))
}

/// A znode that queues with a name like a lock node's, and is no session's: data that a client has
/// put there.
pub(crate) fn no_ticket(path: &str) -> Failure {
    let line =
        format!("{path} is a persistent znode and no session's ticket; `zlock rm {path}` deletes it and its data");
    Failure::refused(line)
}
