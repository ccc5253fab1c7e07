//! `zlock restore`: creates the data of a new cluster from a backup. The command sends no request
//! to a node.

use std::path::PathBuf;

use clap::{ArgMatches, Command};
use replica::Member;
use replica::offline::{Beginning, begin};

use super::seeds::{self, Sown};
use crate::cli::backup::{file_arg, file_of, open};
use crate::cli::calendar;
use crate::cli::failure::Failure;
use crate::cli::new_file::failed;
use crate::cli::options::{file, flag, number, option};
use crate::cli::output::{Output, now_ms};

/// Age of a seed, in milliseconds, from which on it is refused without `--old-seed`.
const SEED_AGE_MAX_MS: u64 = 24 * 3_600_000;

pub(crate) fn command() -> Command {
    let prepare = Command::new("prepare")
        .about("Writes a seed: a backup with the new cluster's uuid, members and first fencing token, for all members")
        .arg(file_arg("FILE", "The backup"));
    let apply = Command::new("apply")
        .about("Makes the data directory of one member from a seed; then start the member with `zlock serve`")
        .arg(file_arg("SEED", "The seed that `zlock restore prepare` or `zlock recover` wrote"))
        .arg(option("node-id", "ID", "Id of the member").required(true).value_parser(number::<u64>(0)))
        .arg(file("data-dir", "DIR", "Data directory of the member, which must be empty or missing").required(true))
        .arg(flag("old-seed", "Accepts a seed that was written more than a day ago"));
    Command::new("restore")
        .about("Makes a new cluster from a backup, while no node runs")
        .subcommand_required(true)
        .subcommand(seeds::with_options(prepare).arg(flag("json", "Prints JSON")))
        .subcommand(apply.arg(flag("json", "Prints JSON")))
}

pub(crate) fn run(out: Output, matches: &ArgMatches) -> Result<u8, Failure> {
    match matches.subcommand() {
        Some(("prepare", matches)) => prepare(out, matches),
        Some(("apply", matches)) => apply(out, matches),
        _ => Err(Failure::usage("restore what? prepare, or apply")),
    }
}

fn prepare(out: Output, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = file_of(matches);
    let mut backup = open(path)?;
    if backup.manifest().decided.is_some() {
        return Err(failed(path, "is a seed already, and no backup: `zlock restore apply` takes it"));
    }
    let state = backup.state().map_err(|error| failed(path, error))?;
    let manifest = backup.manifest();
    let sown = seeds::write(state, &manifest.cluster_id, manifest.saved.node_id, matches)?;
    told(out, &sown)
}

/// Prints the content of a written seed file (the data with which all members of the new cluster
/// start), and the operator's next steps.
pub(crate) fn told(out: Output, sown: &Sown) -> Result<u8, Failure> {
    let Sown { path, manifest, sessions_ended } = sown;
    let document = serde_json::json!({ "seed": path, "sessions_ended": sessions_ended, "manifest": manifest });
    let grace_ms = manifest.decided.as_ref().map_or(0, |decided| decided.grace_ms);
    out.answer(&document, || {
        out.line(&format!("{}: the seed of {} {}", path.display(), manifest.cluster_id, manifest.cluster_uuid))?;
        out.line(&format!("fencing tokens from now on are above {}", manifest.zxid_base))?;
        let znodes = manifest.counts.znodes;
        out.line(&format!("{znodes} znodes stay; {sessions_ended} sessions end with what is theirs"))?;
        out.line(&match grace_ms {
            0 => "locks are granted as soon as a leader is elected".to_owned(),
            ms => format!("no lock is granted for {} s after a leader is elected", ms.div_ceil(1_000)),
        })?;
        out.line("take this one file to every member, and there:")?;
        seeds::next_steps(path, manifest).iter().try_for_each(|line| out.line(line))
    })
}

/// Refuses a seed that is older than [`SEED_AGE_MAX_MS`]: it may be left from an earlier restore,
/// whose members have granted tokens and taken writes since.
fn check_age(written_ms: u64, now_ms: u64) -> Result<(), String> {
    if now_ms.saturating_sub(written_ms) <= SEED_AGE_MAX_MS {
        return Ok(());
    }
    let written = calendar::show(written_ms);
    Err(format!(
        "was written on {written}: a seed serves one restore. Prepare a new one, or, if this is the seed of this restore, add \
         --old-seed"
    ))
}

fn apply(out: Output, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = file_of(matches);
    let mut seed = open(path)?;
    let manifest = seed.manifest().clone();
    let Some(decided) = manifest.decided else {
        return Err(failed(path, "is a backup and no seed: `zlock restore prepare` makes one of it"));
    };
    if !matches.get_flag("old-seed") {
        check_age(decided.at_ms, now_ms()).map_err(|why| failed(path, why))?;
    }
    let state = seed.state().map_err(|error| failed(path, error))?;
    let member =
        |member: backup::Member| Member { id: member.id, peer_addr: member.peer_addr, http_addr: member.http_addr };
    let beginning = Beginning {
        data_dir: matches.get_one::<PathBuf>("data-dir").expect("it is required").clone(),
        cluster_id: manifest.cluster_id.clone(),
        node_id: *matches.get_one("node-id").expect("it is required"),
        members: decided.members.into_iter().map(member).collect(),
    };
    let (node_id, data_dir) = (beginning.node_id, beginning.data_dir.clone());
    crate::cli::block_on(begin(beginning, &state))?.map_err(|error| Failure::refused(error.to_string()))?;
    let (cluster, uuid) = (&manifest.cluster_id, &manifest.cluster_uuid);
    let document = serde_json::json!({
        "data_dir": data_dir, "node_id": node_id, "cluster_id": cluster, "cluster_uuid": uuid,
    });
    let line = format!("{}: node {node_id} of {cluster} {uuid}; start it with `zlock serve`", data_dir.display());
    out.answer(&document, || out.line(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_of_an_earlier_restore_is_refused() {
        let written_ms = 1_795_000_000_000;
        assert_eq!(check_age(written_ms, written_ms + SEED_AGE_MAX_MS), Ok(()));
        // The clock of this machine may be behind the clock of the machine that ran `prepare`.
        assert_eq!(check_age(written_ms, written_ms - 60_000), Ok(()));
        let refused = check_age(written_ms, written_ms + SEED_AGE_MAX_MS + 1).unwrap_err();
        assert!(refused.starts_with("was written on 2026-11-18"), "{refused}");
    }
}
