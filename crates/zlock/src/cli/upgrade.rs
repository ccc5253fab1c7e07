//! `zlock upgrade`: shows the cluster's format level (the version of its log entries and
//! snapshots), and raises it after an upgrade of all nodes.

use clap::{Arg, ArgMatches, Command};
use zlock_client::{MemberUpgrade, Upgrade};

use super::context::Context;
use super::failure::Failure;
use super::options::{group, number};
use super::output::{Output, Tone};
use super::seen::plain;

pub(crate) fn command() -> Command {
    let status = Command::new("status").about("Shows the cluster's level, and the version of each member's program");
    let level = Arg::new("level").value_name("LEVEL").value_parser(number::<u16>(0));
    let finalize = Command::new("finalize")
        .about("Raises the cluster's level if every member knows it; afterwards older programs cannot be used again")
        .arg(level.help("The new level [default: the highest that any member knows]"));
    group("upgrade", "Shows the progress of an upgrade, or finalises it. For operators")
        .subcommand(status)
        .subcommand(finalize)
}

pub(crate) async fn status(context: &Context) -> Result<u8, Failure> {
    let upgrade = context.client.upgrade().await?;
    context.out.answer(&upgrade, || print(context.out, &upgrade))
}

pub(crate) async fn finalize(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let upgrade = context.client.finalize_upgrade(matches.get_one::<u16>("level").copied()).await?;
    context.out.answer(&upgrade, || context.out.line(&format!("the cluster is at level {}", upgrade.level)))
}

fn print(out: Output, upgrade: &Upgrade) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = upgrade.members.iter().map(|member| row(out, member)).collect();
    out.table(&["NODE", "VERSION", "LEVELS", "REACHABLE"], &rows)?;
    out.line(&in_words(upgrade))
}

fn row(out: Output, member: &MemberUpgrade) -> Vec<String> {
    let levels = member.level_min.zip(member.level_max).map(|(min, max)| format!("{min} to {max}"));
    let reachable = if member.reachable { out.paint(Tone::Good, "yes") } else { out.paint(Tone::Bad, "no") };
    let version = member.version.as_deref().map_or("-".into(), plain);
    vec![member.id.to_string(), version, levels.unwrap_or_else(|| "-".into()), reachable]
}

fn in_words(upgrade: &Upgrade) -> String {
    let level = upgrade.level;
    match upgrade.next_level {
        Some(next) => {
            format!(
                "the cluster is at level {level}, and all members are ready for {next}: zlock upgrade finalize {next}"
            )
        }
        None if upgrade.members.iter().any(|member| member.level_max.is_some_and(|max| max > level)) => {
            format!("the cluster is at level {level}, and not all members are ready for the next")
        }
        None => format!("the cluster is at level {level}, and no member knows a higher one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_next_is_said_in_words() {
        let member = |max| MemberUpgrade {
            id: 1,
            version: Some("0.1.0".into()),
            level_min: Some(1),
            level_max: Some(max),
            reachable: true,
        };
        let words = |next_level, members| in_words(&Upgrade { level: 1, next_level, members });
        assert!(words(Some(2), vec![member(2)]).ends_with("ready for 2: zlock upgrade finalize 2"));
        assert!(words(None, vec![member(2), member(1)]).ends_with("not all members are ready for the next"));
        assert!(words(None, vec![member(1)]).ends_with("no member knows a higher one"));
    }
}
