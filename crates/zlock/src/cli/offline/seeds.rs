//! Seed files, from which all members of a restored cluster start. A seed contains the restored
//! state and the decisions for the new cluster: its uuid, zxid base and members. (A zxid is the
//! zxid base plus a log index.)
//!
//! The uuid is random and the zxid base comes from a clock, but both must be equal on all members.
//! So they are decided once, and all members start from the same seed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use backup::{Decided, Manifest, Origin, Saved};
use clap::{ArgMatches, Command};
use replica::Member;
use znode::{ClusterUuid, Founding, Restore, RestoreError, SessionId, State};

use crate::cli::calendar;
use crate::cli::failure::Failure;
use crate::cli::new_file::{NewFile, failed};
use crate::cli::options::{file, flag, number, option, time};
use crate::cli::output::now_ms;
use crate::config::value::members;

/// Factor by which a time in milliseconds is multiplied to get a zxid base. Even if a cluster
/// writes a million log entries a second, its zxids stay below the base of a cluster that is
/// founded later.
const ZXIDS_A_MS: u64 = 1 << 10;

/// Largest difference between the clock of this machine and those of the old cluster.
const SKEW_MAX_MS: u64 = 60_000;

/// Reason for which a seed file replaces no other file.
const IS_THERE: &str =
    "is there already, perhaps from an earlier restore: a seed serves one restore, and all its members";

/// Adds the options of a restore or a recovery, such as the members of the new cluster.
pub(crate) fn with_options(command: Command) -> Command {
    let members_help = "All members of the new cluster, as in the key node.members of their configuration";
    let floor = "Fencing tokens also exceed this one; for a cluster whose clock may have been ahead";
    let no_grace = "Grants locks at once: only if no client of the old cluster can still hold a lock";
    let since = "Time when the last node of the old cluster stopped; shortens the grace, in which no lock is granted";
    let longest = "Longest session timeout of the old cluster, if it was raised after the backup; lengthens the grace";
    command
        .arg(option("members", members::NAME, members_help))
        .arg(file("out", "SEED", "File to write, which must not exist"))
        .arg(option("cluster-id", "NAME", "Name of the new cluster, if it differs from the old one"))
        .arg(option("token-floor", "TOKEN", floor).value_parser(number::<u64>(0)))
        .arg(flag("no-grace", no_grace).conflicts_with("down-since"))
        .arg(option("down-since", "TIME", since).value_parser(calendar::parse))
        .arg(time("session-timeout-max", longest).conflicts_with("no-grace"))
}

/// Result of writing a seed file (the data with which all members of a new cluster start).
pub(crate) struct Sown {
    pub(crate) path: PathBuf,
    pub(crate) manifest: Manifest,
    /// Number of sessions in the old cluster's state, which the restore has ended.
    pub(crate) sessions_ended: u64,
}

/// Prepares the state for a new cluster with the decisions in the options, and writes the seed
/// file. `cluster_id` is the old cluster's name. `node_id` is the node that the state comes from.
pub(crate) fn write(mut state: State, cluster_id: &str, node_id: u64, matches: &ArgMatches) -> Result<Sown, Failure> {
    let members = members_of(matches)?;
    let path =
        matches.get_one::<PathBuf>("out").ok_or_else(|| Failure::usage("--out is missing: the file to write"))?;
    if path.exists() {
        return Err(failed(path, IS_THERE));
    }
    let now_ms = now_ms();
    let origin = Manifest::of(&state, cluster_id, saved(node_id, now_ms));
    let origin = origin.ok_or_else(|| Failure::refused("its cluster was never founded: there is nothing in it"))?;
    let grace_ms = grace_ms(&state, now_ms, matches)?;
    let zxid_base = zxid_base(&state, now_ms, matches.get_one::<u64>("token-floor").copied())?;
    let founding = Founding { uuid: ClusterUuid(replica::random_uuid()), zxid_base, group: 0 };
    state.restore(Restore { founding, time_ms: now_ms, grace_ms }).map_err(impossible)?;
    let contradicts = |why| Failure::refused(format!("the restored state contradicts itself: {why}"));
    state.check_invariants().map_err(contradicts)?;
    let new_name = matches.get_one::<String>("cluster-id").map_or(cluster_id, |name| name);
    let manifest = Manifest::of(&state, new_name, saved(node_id, now_ms));
    let mut manifest = manifest.ok_or_else(|| Failure::refused("a restored state is of a cluster"))?;
    manifest.decided = Some(Decided {
        members: members.into_iter().map(kept).collect(),
        at_ms: now_ms,
        grace_ms,
        origin: Origin { cluster_id: origin.cluster_id, cluster_uuid: origin.cluster_uuid, zxid: origin.zxid },
    });
    let mut file = NewFile::begin(path)?;
    backup::write(&state, &manifest, &mut file).map_err(|error| failed(path, error))?;
    file.finish_new(path, IS_THERE)?;
    Ok(Sown { path: path.clone(), manifest, sessions_ended: origin.counts.sessions })
}

/// Returns the zxid base of the new cluster, above which fencing tokens begin: from the clock, and
/// at least `floor`. Without a floor, the clock must not be behind the state.
fn zxid_base(state: &State, now_ms: u64, floor: Option<u64>) -> Result<u64, Failure> {
    if floor.is_none() && now_ms.saturating_add(SKEW_MAX_MS) < state.time_ms() {
        let newest = calendar::show(state.time_ms());
        return Err(Failure::refused(format!(
            "fencing tokens could fall: the clock is behind the newest entry in the data, of {newest}; set the clock \
             right or, if the old cluster's clock was ahead, give --token-floor with more than the largest token that \
             was ever seen"
        )));
    }
    Ok(now_ms.saturating_mul(ZXIDS_A_MS).max(floor.unwrap_or(0)))
}

fn members_of(matches: &ArgMatches) -> Result<Vec<Member>, Failure> {
    let text = matches.get_one::<String>("members");
    let text = text.ok_or_else(|| Failure::usage("--members is missing: who is to be in the new cluster"))?;
    let found = members::parse(text).map_err(|why| Failure::usage(format!("--members: {why}")))?;
    let mut ids: Vec<u64> = found.iter().map(|member| member.id).collect();
    ids.sort_unstable();
    if ids.is_empty() || ids[0] == 0 || ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Failure::usage(format!("--members: ids must be different and not 0, but are {ids:?}")));
    }
    Ok(found)
}

fn kept(member: Member) -> backup::Member {
    backup::Member { id: member.id, peer_addr: member.peer_addr, http_addr: member.http_addr }
}

/// Returns the grace period of the new cluster in milliseconds, in which no locks are granted.
/// Clients of the old cluster may assume that they still hold locks, for at most the longest
/// session timeout. A session of the backup may have a longer timeout than the limit permits now,
/// and a later session the timeout in `--session-timeout-max`. So the grace period is the longest
/// of these timeouts, minus the time since `--down-since`, when the old cluster stopped. With
/// `--no-grace` it is 0.
fn grace_ms(state: &State, now_ms: u64, matches: &ArgMatches) -> Result<u64, Failure> {
    let later = matches.get_one::<Duration>("session-timeout-max").copied().unwrap_or_default();
    let whole = u64::from(longest_timeout_ms(state)).max(u64::try_from(later.as_millis()).unwrap_or(u64::MAX));
    if matches.get_flag("no-grace") {
        return Ok(0);
    }
    match matches.get_one::<u64>("down-since") {
        None => Ok(whole),
        Some(since) if *since > now_ms => Err(Failure::usage("--down-since is in the future")),
        // The time of the data does not count if the old cluster's clock was ahead.
        Some(since)
            if since.saturating_add(SKEW_MAX_MS) < state.time_ms()
                && state.time_ms() <= now_ms.saturating_add(SKEW_MAX_MS) =>
        {
            let newest = calendar::show(state.time_ms());
            Err(Failure::usage(format!("--down-since is before {newest}, when the old cluster still worked")))
        }
        Some(since) => Ok(whole.saturating_sub(now_ms - since)),
    }
}

fn longest_timeout_ms(state: &State) -> u32 {
    let of_sessions = state.sessions_from(SessionId(0)).map(|session| session.timeout_ms);
    of_sessions.chain([state.limits().session_timeout_max_ms]).max().unwrap_or_default()
}

fn impossible(error: RestoreError) -> Failure {
    let what = match error {
        RestoreError::BaseTooLow { zxid, .. } => {
            format!(
                "set the clock right, or give --token-floor with more than the largest token that was ever seen, at \
                 least {}",
                zxid + 1
            )
        }
        RestoreError::BaseTooHigh(_) => "set the clock right, or give a smaller --token-floor".to_owned(),
    };
    Failure::refused(format!("fencing tokens could fall: {error}; {what}"))
}

fn saved(node_id: u64, at_ms: u64) -> Saved {
    Saved { program: env!("CARGO_PKG_VERSION").into(), at_ms, node_id, local: true }
}

/// Returns the commands with which the operator applies the seed file, one for each member.
pub(crate) fn next_steps(seed: &Path, manifest: &Manifest) -> Vec<String> {
    let members = manifest.decided.iter().flat_map(|decided| &decided.members);
    members
        .map(|member| format!("  zlock restore apply {} --node-id {} --data-dir DIR", seed.display(), member.id))
        .collect()
}

#[cfg(test)]
mod tests {
    use znode::{ClientInfo, Limits, LogPosition, Op, Request, SecretHash, Term, Txn, Zxid};

    use super::*;

    #[test]
    fn a_clock_behind_the_data_needs_a_floor() {
        let mut state = State::default();
        let at = LogPosition { term: Term(1), zxid: Zxid(1) };
        let txn = Txn { proven: false, time_ms: 900_000, request: Request::new(Op::SetLimits(Limits::default())) };
        state.apply(at, txn).reply.unwrap();
        let base = |now_ms, floor| zxid_base(&state, now_ms, floor).ok();
        assert_eq!(base(839_999, None), None);
        assert_eq!(base(839_999, Some(7)), Some(839_999 * 1_024));
        assert_eq!(base(840_000, None), Some(840_000 * 1_024));
        assert_eq!(base(840_000, Some(1 << 40)), Some(1 << 40));
    }

    #[test]
    fn a_session_that_is_older_than_the_limit_counts_for_the_grace() {
        let mut state = State::default();
        let open = |timeout_ms| Op::OpenSession {
            secret_hash: SecretHash::default(),
            timeout_ms,
            label: String::new(),
            address: None,
            client: ClientInfo::default(),
        };
        let limits = Limits { session_timeout_max_ms: 10_000, ..Limits::default() };
        for (op, longest_ms) in [(open(200_000), 300_000), (Op::SetLimits(limits), 200_000), (open(9_000), 200_000)] {
            let at = LogPosition { term: Term(1), zxid: Zxid(state.last_zxid().0 + 1) };
            let txn = Txn { proven: false, time_ms: 1, request: Request::new(op) };
            state.apply(at, txn).reply.unwrap();
            assert_eq!(longest_timeout_ms(&state), longest_ms);
        }
    }
}
