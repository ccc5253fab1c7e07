//! `zlock semaphore`: runs a command while it holds one of a semaphore's permits.

use clap::{ArgMatches, Command};

use super::context::Context;
use super::failure::Failure;
use super::lock;
use super::options::{number, option};

pub(crate) fn command() -> Command {
    let number = |name, help| option(name, "NUMBER", help).value_parser(number::<u32>(1));
    let command =
        Command::new("semaphore").about("Runs a command while it holds permits of a semaphore; like `zlock lock`");
    lock::with_command(command)
        .arg(number("permits-max", "Permits of the semaphore, equal for all clients [default: the setting]"))
        .arg(number("permits", "Number of permits to hold").default_value("1"))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let permits = matches.get_one::<u32>("permits").copied().unwrap_or(1);
    let permits_max = matches.get_one("permits-max").copied();
    if let Some(max) = permits_max.filter(|max| permits > *max) {
        let line = format!("--permits {permits} is more than there are: --permits-max is {max}");
        return Err(Failure::usage(line));
    }
    let permits = context.client.semaphore(lock::path_of(matches), permits_max).permits(permits);
    lock::run_under(context, matches, lock::acquired(permits, matches)).await
}
