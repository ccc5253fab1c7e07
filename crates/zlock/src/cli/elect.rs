//! `zlock elect`: runs a command while this client leads an election.

use std::time::Duration;

use clap::{ArgMatches, Command};
use zlock_client::Guard;

use super::context::Context;
use super::failure::Failure;
use super::lock;

pub(crate) fn command() -> Command {
    lock::with_command(Command::new("elect").about("Runs a command while it leads an election; like `zlock lock`"))
        .mut_arg("label", |arg| arg.help("Name of this leader for other clients [default: the command's name]"))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let election = context.client.election(lock::path_of(matches));
    let election = match matches.get_one::<Duration>("lock-delay") {
        Some(delay) => election.lock_delay(*delay),
        None => election,
    };
    let label = lock::label(matches);
    let leads = async {
        let leadership = match matches.get_one::<Duration>("wait") {
            Some(wait) => election.campaign_within(&label, *wait).await?,
            None => Some(election.campaign(&label).await?),
        };
        Ok(leadership.map(Guard::from))
    };
    lock::run_under(context, matches, leads).await
}
