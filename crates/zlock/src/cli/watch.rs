//! `zlock watch`: prints changes of znodes as they happen.

use clap::{ArgMatches, Command};
use zlock_client::WatchKind;

use super::context::{Context, path_of};
use super::failure::Failure;
use super::options::{number, option, path_arg};
use super::output::word;
use super::seen::plain;

pub(crate) fn command() -> Command {
    let kind = option("kind", "KIND", "Kind of events to print");
    let since = option("since", "ZXID", "Prints also past events after this zxid [default: only new events]");
    Command::new("watch")
        .about("Prints events of znodes, one in each line, until the command is interrupted")
        .arg(path_arg("The znode"))
        .arg(kind.value_parser(["data", "exists", "children", "subtree"]).default_value("subtree"))
        .arg(since.value_parser(number::<u64>(0)))
        .arg(option("count", "NUMBER", "Number of events after which the command ends").value_parser(number::<u64>(1)))
}

pub(crate) async fn run(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let kind = match matches.get_one::<String>("kind").map(String::as_str) {
        Some("data") => WatchKind::Data,
        Some("exists") => WatchKind::Exists,
        Some("children") => WatchKind::Children,
        _ => WatchKind::Subtree,
    };
    let mut watcher = context.client.watch(path_of(matches), kind);
    if let Some(since) = matches.get_one("since") {
        watcher.resume_from(*since);
    }
    let mut left = matches.get_one::<u64>("count").copied().unwrap_or(u64::MAX);
    while left > 0 {
        let event = match watcher.next().await {
            Ok(event) => event,
            // Goes on watching when no node is reachable for some time.
            Err(zlock_client::Error::Unavailable { .. } | zlock_client::Error::Unknown { .. })
                if watcher.position().is_some() =>
            {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        left -= 1;
        if context.out.json {
            context.out.document(&event)?;
            continue;
        }
        let what = word(&event.kind);
        context.out.line(&format!("{} {what} {}", event.zxid, plain(&event.path)))?;
    }
    Ok(0)
}
