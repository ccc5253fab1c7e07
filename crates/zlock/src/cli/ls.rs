//! `zlock ls`: lists the children of a znode.

use clap::{Arg, ArgMatches, Command};
use zlock_client::NamedStat;

use super::context::{Context, path_of};
use super::failure::Failure;
use super::options::flag;
use super::output::since;
use super::seen::plain;

pub(crate) fn command() -> Command {
    Command::new("ls")
        .about("Lists the children of a znode")
        .arg(Arg::new("path").value_name("PATH").default_value("/").help("The znode"))
        .arg(flag("long", "Shows the stat of each child").short('l'))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let (path, out) = (path_of(matches), context.out);
    if !matches.get_flag("long") {
        let names = context.client.children(&path).await?;
        return out.answer(&names, || names.iter().try_for_each(|name| out.line(&plain(name))));
    }
    let children = context.client.children_with_stats(&path).await?;
    let rows: Vec<Vec<String>> = children.iter().map(row).collect();
    out.answer(&children, || out.table(&["NAME", "VERSION", "BYTES", "CHILDREN", "SESSION", "CHANGED"], &rows))
}

fn row(child: &NamedStat) -> Vec<String> {
    let stat = &child.stat;
    vec![
        plain(&child.name),
        stat.version.to_string(),
        stat.data_length.to_string(),
        stat.num_children.to_string(),
        owner(stat.ephemeral_owner),
        format!("{} ago", since(stat.mtime)),
    ]
}

/// Formats the owner of a znode: the session of an ephemeral znode, `-` for a persistent one.
/// Numbers from 2^53 on stand for ZooKeeper's container and TTL znodes.
pub(crate) fn owner(ephemeral_owner: u64) -> String {
    match ephemeral_owner {
        0 => "-".into(),
        id if id < 1 << 53 => id.to_string(),
        0x8000_0000_0000_0000 => "container".into(),
        _ => "ttl".into(),
    }
}
