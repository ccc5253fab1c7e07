//! `zlock quota`: shows, sets and removes the quota of a subtree.
//!
//! A quota is the data of the znode `/zookeeper/quota<subtree>/zookeeper_limits`, in the format of
//! ZooKeeper's `setquota`. The nodes maintain the present counts of the subtree in the sibling
//! znode `zookeeper_stats`.

use clap::{ArgMatches, Command};
use serde::Serialize;
use zlock_client::{Client, Error, ProblemType};
use znode::QuotaLimits;

use super::context::{Context, path_of};
use super::create::{make, make_parents};
use super::failure::Failure;
use super::options::{group, option, path_arg};

/// Name of the znode with the limits of a subtree.
const LIMITS: &str = "zookeeper_limits";
/// Name of the znode with the present number of znodes and bytes in a subtree.
const STATS: &str = "zookeeper_stats";
/// Largest number of tries of a change that conflicts with other clients' changes.
const TRIES: u32 = 5;

pub(crate) fn command() -> Command {
    let limit = |name, help| option(name, "NUMBER|none", help).value_parser(number);
    let get = Command::new("get").about("Shows the quota of a subtree, and what the subtree uses");
    let set = Command::new("set").about("Sets limits of a subtree's quota; limits that are not given stay as they are");
    let rm = Command::new("rm").about("Removes the quota of a subtree");
    let set = set
        .arg(path_arg("The subtree"))
        .arg(limit("count", "Largest number of znodes; further ones are refused"))
        .arg(limit("bytes", "Largest number of bytes of data; more are refused"))
        .arg(limit("soft-count", "Number of znodes above which the leader logs a warning"))
        .arg(limit("soft-bytes", "Number of bytes of data above which the leader logs a warning"))
        .group(
            clap::ArgGroup::new("limits")
                .args(["count", "bytes", "soft-count", "soft-bytes"])
                .required(true)
                .multiple(true),
        );
    group("quota", "Shows or sets how many znodes and bytes a subtree may have")
        .subcommand(get.arg(path_arg("The subtree")))
        .subcommand(set)
        .subcommand(rm.arg(path_arg("The subtree")))
}

/// Parses a number, or `none` for no limit.
fn number(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(None);
    }
    let number = text.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok());
    number.map(Some).ok_or_else(|| "write a number, or none".to_owned())
}

type Limit = Option<u64>;

/// JSON document that `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    path: &'a str,
    count: Share,
    bytes: Share,
}

/// Present number of one quantity, with its limits.
#[derive(Serialize)]
struct Share {
    used: Option<u64>,
    hard: Limit,
    soft: Limit,
}

/// Returns the data for a limits znode in ZooKeeper's format.
fn text(limits: QuotaLimits) -> String {
    let number = |limit: Limit| limit.map_or("-1".to_owned(), |number| number.to_string());
    format!(
        "count={},bytes={}=;byteHardLimit={};countHardLimit={}",
        number(limits.count),
        number(limits.bytes),
        number(limits.bytes_hard),
        number(limits.count_hard)
    )
}

/// Replaces limits by those that are given as options.
fn with(mut limits: QuotaLimits, matches: &ArgMatches) -> QuotaLimits {
    let places = [
        ("count", &mut limits.count_hard),
        ("bytes", &mut limits.bytes_hard),
        ("soft-count", &mut limits.count),
        ("soft-bytes", &mut limits.bytes),
    ];
    for (name, place) in places {
        if let Some(limit) = matches.get_one::<Limit>(name) {
            *place = *limit;
        }
    }
    limits
}

fn directory(path: &str) -> String {
    format!("/zookeeper/quota{path}")
}

/// Reads the quota znode `name` of the subtree `path`, with its version; `None` when it does not
/// exist.
async fn read(client: &Client, path: &str, name: &str) -> Result<Option<(QuotaLimits, i32)>, Error> {
    match client.get(&format!("{}/{name}", directory(path))).await {
        Ok(node) => Ok(Some((QuotaLimits::parse(&node.data).unwrap_or_default(), node.stat.version))),
        Err(error) if error.is_no_node() => Ok(None),
        Err(error) => Err(error),
    }
}

fn no_quota(path: &str) -> Failure {
    Failure::refused(format!("{path} has no quota; `zlock quota set {path}` gives it one"))
}

/// Returns the path of the subtree in the arguments. The root and ZooKeeper's own znodes are
/// refused.
fn subtree_of(matches: &ArgMatches) -> Result<String, Failure> {
    let path = path_of(matches);
    if path == "/" || path == "/zookeeper" || path.starts_with("/zookeeper/") {
        return Err(Failure::refused(format!("{path} has no quota: name another subtree")));
    }
    Ok(path)
}

pub(crate) async fn get(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = subtree_of(matches)?;
    let (quota, _) = read(&context.client, &path, LIMITS).await?.ok_or_else(|| no_quota(&path))?;
    show(context, &path, quota).await
}

pub(crate) async fn set(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = subtree_of(matches)?;
    let quota = write(&context.client, &path, matches).await?;
    if context.out.json { show(context, &path, quota).await } else { Ok(0) }
}

pub(crate) async fn rm(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = subtree_of(matches)?;
    let client = &context.client;
    let deleted = client.delete(format!("{}/{LIMITS}", directory(&path))).await;
    deleted.map_err(|error| if error.is_no_node() { no_quota(&path) } else { error.into() })?;
    // Also deletes the znode with the counts and the parent. The parent stays if a quota of a
    // deeper subtree is below it.
    for left in [format!("{}/{STATS}", directory(&path)), directory(&path)] {
        if let Err(Error::Unavailable { reason } | Error::Unknown { reason }) = client.delete(left).await {
            return Err(Error::Unknown { reason }.into());
        }
    }
    context.out.answer(&serde_json::json!({ "removed": path }), || Ok(()))
}

/// Reads, changes and writes the limits of a subtree; repeats this when another client has written
/// in between. Returns the new limits.
async fn write(client: &Client, path: &str, matches: &ArgMatches) -> Result<QuotaLimits, Failure> {
    let (directory, mut tries) = (directory(path), 0);
    loop {
        tries += 1;
        let found = read(client, path, LIMITS).await?;
        let quota = with(found.map(|(quota, _)| quota).unwrap_or_default(), matches);
        let limits = format!("{directory}/{LIMITS}");
        let written = match found {
            Some((_, version)) => client.set(limits, text(quota)).version(version).await.map(drop),
            None => {
                make_parents(client, &limits).await?;
                client.create(limits, text(quota)).await.map(drop)
            }
        };
        match written {
            Ok(()) => {
                make(client, &format!("{directory}/{STATS}")).await?;
                return Ok(quota);
            }
            Err(error) if tries < TRIES && is_race(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_race(error: &Error) -> bool {
    matches!(error.code(), Some(ProblemType::BadVersion | ProblemType::NodeExists | ProblemType::NoNode))
}

/// Prints a quota together with the present counts of its subtree. The counts are the data of a
/// znode, in the form `count=12,bytes=340`.
async fn show(context: &Context, path: &str, quota: QuotaLimits) -> Result<u8, Failure> {
    let (used, _) = read(&context.client, path, STATS).await?.unwrap_or_default();
    let count = Share { used: used.count, hard: quota.count_hard, soft: quota.count };
    let bytes = Share { used: used.bytes, hard: quota.bytes_hard, soft: quota.bytes };
    let document = Document { path, count, bytes };
    let said = |limit: Option<u64>| limit.map_or("-".to_owned(), |number| number.to_string());
    let row = |what: &str, share: &Share| vec![what.to_owned(), said(share.used), said(share.hard), said(share.soft)];
    let rows = [row("znodes", &document.count), row("bytes", &document.bytes)];
    context.out.answer(&document, || context.out.table(&["OF", "USED", "AT MOST", "WARNS ABOVE"], &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_read_and_written_as_zookeeper_does() {
        let data = "count=-1,bytes=7=;byteHardLimit=1000;countHardLimit=10";
        let quota = QuotaLimits::parse(data.as_bytes()).unwrap();
        assert_eq!((quota.count_hard, quota.bytes_hard), (Some(10), Some(1_000)));
        assert_eq!((quota.count, quota.bytes), (None, Some(7)));
        assert_eq!(text(quota), data);
    }

    #[test]
    fn options_change_what_they_name() {
        let matches = |args: &[&str]| {
            let all = [&["quota", "set", "/a"], args].concat();
            let matches = command().try_get_matches_from(all).unwrap();
            matches.subcommand_matches("set").unwrap().clone()
        };
        let quota = with(QuotaLimits::default(), &matches(&["--count", "5", "--soft-bytes", "9"]));
        assert_eq!(text(quota), "count=-1,bytes=9=;byteHardLimit=-1;countHardLimit=5");
        let quota = with(quota, &matches(&["--count", "none", "--bytes", "0"]));
        assert_eq!(text(quota), "count=-1,bytes=9=;byteHardLimit=0;countHardLimit=-1");
        assert!(command().try_get_matches_from(["quota", "set", "/a"]).is_err(), "nothing is said");
        assert!(number("-1").is_err() && number("9223372036854775808").is_err());
    }
}
