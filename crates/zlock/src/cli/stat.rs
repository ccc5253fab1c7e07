//! `zlock stat`: shows the metadata of a znode.

use clap::{ArgMatches, Command};
use zlock_client::Stat;

use super::context::{Context, path_of};
use super::failure::Failure;
use super::ls::owner;
use super::options::path_arg;
use super::output::since;

pub(crate) fn command() -> Command {
    Command::new("stat").about("Prints a znode's stat: zxids, versions, times and sizes").arg(path_arg("The znode"))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let stat = context.client.get(&path_of(matches)).await?.stat;
    let line = |(name, value): (&str, String)| context.out.line(&format!("{name:15} {value}"));
    context.out.answer(&stat, || facts(&stat).into_iter().try_for_each(line))
}

fn facts(stat: &Stat) -> [(&'static str, String); 11] {
    [
        ("czxid", stat.czxid.to_string()),
        ("mzxid", stat.mzxid.to_string()),
        ("pzxid", stat.pzxid.to_string()),
        ("created", format!("{} ago", since(stat.ctime))),
        ("changed", format!("{} ago", since(stat.mtime))),
        ("version", stat.version.to_string()),
        ("cversion", stat.cversion.to_string()),
        ("aversion", stat.aversion.to_string()),
        ("ephemeral_owner", owner(stat.ephemeral_owner)),
        ("data_length", stat.data_length.to_string()),
        ("num_children", stat.num_children.to_string()),
    ]
}
