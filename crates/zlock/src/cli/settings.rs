//! `zlock settings`: shows and changes the settings of a lock.

use clap::{Arg, ArgMatches, Command};
use zlock_client::LockSettings;

use super::context::{Context, path_of};
use super::failure::Failure;
use super::options::{flag, number, option};

pub(crate) fn command() -> Command {
    let number = |name, help| option(name, "NUMBER", help).value_parser(number::<u32>(0));
    let managed = "Makes it a managed lock, which can have priorities and hand-overs. Clients that create lock nodes themselves, as ZooKeeper's recipes do, are refused then";
    let permits_max = "Makes it a semaphore with so many permits. Fewer than are held: no waiter gets one until enough are given back";
    Command::new("settings")
        .about("Shows the settings of a lock, or changes them")
        .long_about(
            "Shows the settings of a lock, or changes them. Most locks have none and need none.\n\n\
             Without an option it shows them. An option changes the setting that it names, and the others stay.",
        )
        .arg(Arg::new("path").value_name("LOCK").required(true).help("The path; the first slash may be left out"))
        .arg(flag("managed", managed))
        .arg(number("waiters-max", "How many may wait; further ones are refused. With 0 nobody waits"))
        .arg(number("permits-max", permits_max).conflicts_with("managed"))
        .arg(flag("none", "Takes all settings back").conflicts_with_all(["managed", "waiters-max", "permits-max"]))
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
