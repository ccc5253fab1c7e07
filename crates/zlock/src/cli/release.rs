//! `zlock release`: releases a lock or a ticket (a contender's znode in the lock's queue) of the
//! caller's own session.

use clap::{Arg, ArgMatches, Command};
use zlock_client::{Error, ProblemType, Release, SessionKey};

use super::context::{Context, path_of};
use super::failure::Failure;
use super::seen::plain;

/// Environment variable with the session key of the caller's session, as `zlock session exec` sets
/// it.
pub(crate) const SESSION_KEY: &str = "ZLOCK_SESSION_KEY";

/// Number of digits at the end of a ticket's name, the sequence number of a sequential znode.
const DIGITS: usize = 10;

pub(crate) fn command() -> Command {
    Command::new("release")
        .about("Releases a lock or one ticket of the session in ZLOCK_SESSION_KEY")
        .long_about(
            "Releases a lock or one ticket of the session in ZLOCK_SESSION_KEY.\n\n\
             `zlock session exec` sets ZLOCK_SESSION_KEY for its command. LOCK is the path of a lock that the session \
             holds with one ticket; TICKET is the path of a ticket that holds or waits. The command releases one hold. \
             `zlock break` takes a lock away from other sessions.",
        )
        .arg(Arg::new("path").value_name("LOCK|TICKET").required(true).help("Path, as in `zlock locks --json`"))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = path_of(matches);
    let released = give_back(context, &own_session(&path)?, &path).await?;
    let left = match released.holds {
        0 => String::new(),
        1 => ", 1 hold is left".to_owned(),
        holds => format!(", {holds} holds are left"),
    };
    context.out.answer(&released, || context.out.line(&format!("released {}{left}", plain(&path))))
}

fn own_session(path: &str) -> Result<SessionKey, Failure> {
    // An empty variable counts as unset.
    let key = std::env::var(SESSION_KEY).ok().filter(|key| !key.trim().is_empty());
    let Some(key) = key else {
        let what = format!("there is no session that could give {path} back: {SESSION_KEY} is not set");
        let how = "`zlock session exec` sets it";
        return Err(Failure::refused(format!("{what}, {how}; `zlock break {path}` takes it away from its holders")));
    };
    key.trim().parse().map_err(|error| Failure::refused(format!("{SESSION_KEY}: {error}")))
}

/// Releases the ticket at `path`, if the path has the form of a ticket's name; otherwise the lock
/// at `path`.
async fn give_back(context: &Context, key: &SessionKey, path: &str) -> Result<Release, Error> {
    let client = &context.client;
    if !is_ticket_name(path) {
        return client.release_held(key, path).await;
    }
    match client.release_ticket(key, path).await {
        // The name of a lock can have the form of a ticket's name, so the path is tried as a lock,
        // too.
        Err(no_ticket) if is_no_ticket(&no_ticket) => match client.release_held(key, path).await {
            Err(error) if error.code() == Some(ProblemType::NotHolder) => Err(no_ticket),
            released => released,
        },
        released => released,
    }
}

fn is_ticket_name(path: &str) -> bool {
    let digits = path.bytes().rev().take_while(u8::is_ascii_digit).count();
    digits >= DIGITS
}

/// Tells whether an error means that the path is no ticket of this session, so that it may be the
/// path of a lock.
fn is_no_ticket(error: &Error) -> bool {
    use ProblemType::{BadRequest, NotOwner, TicketGone};
    matches!(error.code(), Some(BadRequest | NotOwner | TicketGone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_ticket_ends_with_ten_digits() {
        let names = ["/l/x-0000000001", "/l/0000000001_ab__WRIT__0000000001__lock__0000000001", "/0000000001"];
        assert!(names.into_iter().all(is_ticket_name));
        assert!(!["/l", "/orders/7", "/l/x-000000001", "/l/0000000001_", "/"].into_iter().any(is_ticket_name));
    }
}
