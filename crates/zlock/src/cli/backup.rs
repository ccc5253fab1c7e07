//! `zlock backup`: a file with the state of a cluster.

use std::fs::{self, File};
use std::io::{BufReader, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use backup::{Backup, Manifest};
use clap::{Arg, ArgMatches, Command};
use replica::Replica;

use super::calendar;
use super::context::Context;
use super::failure::Failure;
use super::new_file::{NewFile, failed};
use super::options::{file, flag, number, option};
use super::output::Output;

/// Ending of the name of each backup in a directory.
const ENDING: &str = ".zlock-backup";

pub(crate) fn command() -> Command {
    let verify = "Reads a file's state as a restore would, checks it, and prints its digest";
    Command::new("backup")
        .about("Saves the state of the cluster in a file, and looks at such files")
        .subcommand_required(true)
        .subcommand(save_command())
        .subcommand(
            Command::new("inspect")
                .about("Checks that a file is whole, and says what it has")
                .arg(file_arg("FILE", "The file")),
        )
        .subcommand(Command::new("verify").about(verify).arg(file_arg("FILE", "The file")))
}

fn save_command() -> Command {
    let or_stdout = file_arg("FILE", "The file, or `-` for stdout, where the reader has to check it");
    let keep = "Then removes the oldest of this cluster's backups in DIR, so that so many are left";
    let local = "What one node has, though the cluster may be further: without a quorum there is no more";
    Command::new("save")
        .about("Asks a node for a backup, checks it, and only then gives the file its name")
        .arg(or_stdout.required(false).required_unless_present("dir").conflicts_with("dir"))
        .arg(file("dir", "DIR", "A directory: the file is named after the cluster, the time and the zxid"))
        .arg(option("keep", "NUMBER", keep).requires("dir").value_parser(number::<u32>(1)))
        .arg(flag("local", local))
}

/// The file that a command is about.
pub(crate) fn file_arg(value: &'static str, help: &'static str) -> Arg {
    Arg::new("file").value_name(value).required(true).value_parser(clap::value_parser!(PathBuf)).help(help)
}

/// The argument of [`file_arg`].
pub(crate) fn file_of(matches: &ArgMatches) -> &PathBuf {
    matches.get_one::<PathBuf>("file").expect("it is required")
}

/// Opens and checks a file.
pub(crate) fn open(path: &Path) -> Result<Backup<BufReader<File>>, Failure> {
    let file = File::open(path).map_err(|error| failed(path, error))?;
    Backup::open(BufReader::with_capacity(1 << 20, file)).map_err(|error| failed(path, error))
}

pub(crate) async fn save(context: &Context, matches: &ArgMatches) -> Result<u8, Failure> {
    let local = matches.get_flag("local");
    if let Some(dir) = matches.get_one::<PathBuf>("dir") {
        let keep = matches.get_one::<u32>("keep").map(|keep| *keep as usize);
        return save_in(context, dir, keep, local).await;
    }
    let path = file_of(matches);
    if path == Path::new("-") {
        return save_to_stdout(context, local).await;
    }
    let (file, manifest) = fetch(context, path, local).await?;
    told(context.out, &file.finish()?, &manifest)
}

async fn save_in(context: &Context, dir: &Path, keep: Option<usize>, local: bool) -> Result<u8, Failure> {
    let unnamed = dir.join(format!("saving-{}", std::process::id()));
    let (mut file, manifest) = fetch(context, &unnamed, local).await?;
    let prefix = prefix(&manifest.cluster_id);
    file.rename(dir.join(format!("{prefix}{}-{}{ENDING}", calendar::stamp(manifest.saved.at_ms), manifest.zxid)));
    let path = file.finish()?;
    if let Some(keep) = keep {
        remove_oldest(dir, &prefix, keep)?;
    }
    told(context.out, &path, &manifest)
}

/// The beginning of the names of a cluster's backups.
fn prefix(cluster_id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    format!("{}-", cluster_id.chars().map(plain).collect::<String>())
}

/// Removes all backups but the newest `keep`, by their names, which sort as time goes.
fn remove_oldest(dir: &Path, prefix: &str, keep: usize) -> Result<(), Failure> {
    let entries = fs::read_dir(dir).map_err(|error| failed(dir, error))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| is_backup(name, prefix))
        .collect();
    names.sort_unstable();
    for name in names.iter().rev().skip(keep) {
        let path = dir.join(name);
        fs::remove_file(&path).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// Tells whether a name is one that [`save_in`] gives: another cluster's may begin in the same way.
fn is_backup(name: &str, prefix: &str) -> bool {
    let middle = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(ENDING));
    let parts = middle.and_then(|middle| middle.split_once('-'));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    parts.is_some_and(|(stamp, zxid)| digits(zxid) && digits(&stamp.replacen('T', "", 1).replacen('Z', "", 1)))
}

/// Writes what a node sends under an unfinished name, and checks it.
async fn fetch(context: &Context, path: &Path, local: bool) -> Result<(NewFile, Manifest), Failure> {
    let mut file = NewFile::begin(path)?;
    context.client.backup(local, |bytes| file.write_all(&bytes)).await?;
    let read = Backup::open(BufReader::with_capacity(1 << 20, file.file()));
    let manifest = read.map_err(|error| failed(path, format!("what came is not whole: {error}")))?.manifest().clone();
    Ok((file, manifest))
}

async fn save_to_stdout(context: &Context, local: bool) -> Result<u8, Failure> {
    if std::io::stdout().is_terminal() {
        return Err(Failure::usage("a backup is not for a terminal: name a file, or put it behind a pipe"));
    }
    let mut stdout = std::io::stdout();
    context.client.backup(local, |bytes| stdout.write_all(&bytes)).await?;
    stdout.flush().map_err(|error| Failure::unwritten(&error))?;
    Ok(0)
}

fn told(out: Output, path: &Path, manifest: &Manifest) -> Result<u8, Failure> {
    if out.json {
        out.document(&serde_json::json!({ "file": path, "manifest": manifest }))?;
        return Ok(0);
    }
    let counts = manifest.counts;
    let what = format!("{} znodes, {} locks with {} holders", counts.znodes, counts.locks, counts.holders);
    out.line(&format!("{}: {} at zxid {}, {what}", path.display(), manifest.cluster_id, manifest.zxid))?;
    Ok(0)
}

pub(crate) fn inspect(out: Output, matches: &ArgMatches) -> Result<u8, Failure> {
    let backup = open(file_of(matches))?;
    let sha256 = hex(&backup.sha256());
    let document = serde_json::json!({ "manifest": backup.manifest(), "bytes": backup.bytes(), "sha256": sha256 });
    let row = |(name, value): (&str, String)| out.line(&format!("{name:<14}{value}"));
    out.answer(&document, || rows(&backup).into_iter().try_for_each(row))
}

fn rows<R>(backup: &Backup<R>) -> Vec<(&'static str, String)>
where
    R: std::io::Read + std::io::Seek,
{
    let Manifest { counts, saved, .. } = backup.manifest();
    let manifest = backup.manifest();
    let local = if saved.local { ", without asking a quorum" } else { "" };
    let mut rows = vec![
        ("cluster", format!("{} {}", manifest.cluster_id, manifest.cluster_uuid)),
        ("zxid", manifest.zxid.to_string()),
        ("term", manifest.term.to_string()),
        ("time", calendar::show(manifest.time_ms)),
        ("level", manifest.level.to_string()),
        ("saved", format!("{} by zlock {}{local}", calendar::show(saved.at_ms), saved.program)),
        ("znodes", format!("{} with {} bytes of data", counts.znodes, counts.data_bytes)),
        ("locks", format!("{} with {} holders of {} tickets", counts.locks, counts.holders, counts.tickets)),
        ("sessions", counts.sessions.to_string()),
    ];
    if let Some(decided) = &manifest.decided {
        let members: Vec<String> = decided.members.iter().map(|member| member.id.to_string()).collect();
        let origin = &decided.origin;
        rows.push(("seed of", format!("members {}", members.join(","))));
        rows.push(("made from", format!("{} {} at zxid {}", origin.cluster_id, origin.cluster_uuid, origin.zxid)));
        rows.push(("grace", format!("{} s", decided.grace_ms.div_ceil(1_000))));
    }
    rows.push(("file", format!("{} bytes, SHA-256 {}", backup.bytes(), hex(&backup.sha256()))));
    rows
}

pub(crate) fn verify(out: Output, matches: &ArgMatches) -> Result<u8, Failure> {
    let path = file_of(matches);
    let mut backup = open(path)?;
    let state = backup.state().map_err(|error| failed(path, error))?;
    state.check_invariants().map_err(|why| failed(path, format!("its state contradicts itself: {why}")))?;
    let digest = hex(&Replica::digest(&state));
    let manifest = backup.manifest();
    let znodes = state.znode_count();
    let line = format!("good: {} at zxid {}, {znodes} znodes, digest {digest}", manifest.cluster_id, manifest.zxid);
    let document = serde_json::json!({ "zxid": manifest.zxid, "digest": digest, "manifest": manifest });
    out.answer(&document, || out.line(&line))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_clusters_backups_are_counted() {
        let prefix = prefix("orders/eu");
        assert_eq!(prefix, "orders_eu-");
        assert!(is_backup("orders_eu-20261125T103000Z-1838527947551748.zlock-backup", &prefix));
        for other in [
            "orders_eu-west-20261125T103000Z-5.zlock-backup",
            "orders_eu-notes.zlock-backup",
            "orders_eu-20261125T103000Z-5.zlock-backup.part",
            "orders-20261125T103000Z-5.zlock-backup",
        ] {
            assert!(!is_backup(other, &prefix), "{other}");
        }
    }

    #[test]
    fn the_oldest_go() {
        let dir = tempfile::TempDir::new().unwrap();
        let name = |day: u32| format!("c-202611{day:02}T000000Z-7{ENDING}");
        for day in [3, 1, 2] {
            fs::write(dir.path().join(name(day)), "").unwrap();
        }
        fs::write(dir.path().join("c-notes.txt"), "").unwrap();
        remove_oldest(dir.path(), "c-", 2).unwrap();
        let left = |day| dir.path().join(name(day)).exists();
        assert_eq!([left(1), left(2), left(3)], [false, true, true]);
        assert!(dir.path().join("c-notes.txt").exists());
    }
}
