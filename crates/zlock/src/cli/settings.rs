//! `zlock settings`: shows and changes the settings of a lock.

use clap::{Arg, ArgMatches, Command};
use zlock_client::LockSettings;

use super::context::{Context, path_of};
use super::failure::Failure;
use super::options::{flag, number, option};

pub(crate) fn command() -> Command {
    let number = |name, help| option(name, "NUMBER", help).value_parser(number::<u32>(0));
    let managed = "Makes the lock managed: with priorities and hand-overs, and without clients of ZooKeeper's recipes";
    let permits_max = "Makes the lock a semaphore with this number of permits; while more are held, no waiter gets one";
    Command::new("settings")
        .about("Shows the settings of a lock, or changes them")
        .long_about(
            "Shows the settings of a lock, or changes them. Most locks have none and need none.\n\n\
             Without an option the command shows the settings. An option changes its setting; all other settings stay.",
        )
        .arg(Arg::new("path").value_name("LOCK").required(true).help("Path of the lock; the first slash is optional"))
        .arg(flag("managed", managed))
        .arg(number("waiters-max", "Largest number of waiters; further ones are refused. 0: no client may wait"))
        .arg(number("permits-max", permits_max).conflicts_with("managed"))
        .arg(flag("none", "Removes all settings").conflicts_with_all(["managed", "waiters-max", "permits-max"]))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = path_of(matches);
    let number = |name| matches.get_one::<u32>(name).copied();
    let named = ["managed", "waiters-max", "permits-max"]
        .map(|name| matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine));
    let settings = if matches.get_flag("none") {
        context.client.reset_settings(&path).await?.settings
    } else {
        let now = context.client.settings(&path).await?.settings;
        let wanted = LockSettings {
            managed: now.managed || matches.get_flag("managed"),
            waiters_max: number("waiters-max").or(now.waiters_max),
            permits_max: number("permits-max").or(now.permits_max),
        };
        if named.contains(&true) { context.client.set_settings(&path, wanted).await?.settings } else { now }
    };
    let managed = settings.managed.then(|| "managed".to_owned());
    let waiters = settings.waiters_max.map(|max| format!("at most {max} waiters"));
    let limit = settings.permits_max.map(|max| format!("a semaphore of {max} permits"));
    let said: Vec<String> = [managed, waiters, limit].into_iter().flatten().collect();
    let said = if said.is_empty() { "as any lock".to_owned() } else { said.join(", ") };
    context.out.answer(&settings, || context.out.line(&said))
}
