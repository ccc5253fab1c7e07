//! `zlock settings`.

use clap::{Arg, ArgAction, ArgMatches, Command};
use zlock_client::LockSettings;

use super::context::{Context, path_of};
use super::failure::Failure;

pub(crate) fn command() -> Command {
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("NUMBER").value_parser(clap::value_parser!(u32)).help(help)
    };
    Command::new("settings")
        .about("Shows what a lock is, or says it: then what is left out is as in any lock")
        .arg(Arg::new("path").value_name("LOCK").required(true).help("The path; the first slash may be left out"))
        .arg(
            Arg::new("managed")
                .long("managed")
                .action(ArgAction::SetTrue)
                .help("Only acquires queue, not lock nodes made by hand: there may be priorities and hand-overs"),
        )
        .arg(number("waiters-max", "How many may wait; with 0 every acquire is a try"))
        .arg(number("limit", "The permits of a semaphore").conflicts_with("managed"))
        .arg(
            Arg::new("none")
                .long("none")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["managed", "waiters-max", "limit"])
                .help("As any lock"),
        )
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = path_of(matches);
    let number = |name| matches.get_one::<u32>(name).copied();
    let wanted = LockSettings {
        managed: matches.get_flag("managed"),
        waiters_max: number("waiters-max"),
        limit: number("limit"),
    };
    let settings = if wanted != LockSettings::default() || matches.get_flag("none") {
        context.client.set_lock(&path, wanted).await?.settings
    } else {
        context.client.lock_queue(&path).await?.settings.unwrap_or_default()
    };
    if context.out.json {
        context.out.document(&settings)?;
        return Ok(0);
    }
    let managed = settings.managed.then(|| "managed".to_owned());
    let waiters = settings.waiters_max.map(|max| format!("at most {max} waiters"));
    let limit = settings.limit.map(|limit| format!("a semaphore of {limit} permits"));
    let said: Vec<String> = [managed, waiters, limit].into_iter().flatten().collect();
    context.out.line(&if said.is_empty() { "as any lock".to_owned() } else { said.join(", ") })?;
    Ok(0)
}
