//! `zlock backup`: saves the state of a cluster to a file, and checks such files.

use std::cmp::Reverse;
use std::fs::{self, DirEntry, File};
use std::io::{self, BufReader, ErrorKind, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use backup::{Backup, Manifest};
use clap::{Arg, ArgMatches, Command};

use super::calendar;
use super::context::Context;
use super::failure::Failure;
use super::new_file::{NewFile, failed, is_unfinished};
use super::options::{file, flag, number, option};
use super::output::Output;
use super::seen::plain;

/// Suffix of the names that backups get in a directory.
const ENDING: &str = ".zlock-backup";
/// Time without a write after which an unfinished file is a leftover of a run that was killed. A
/// download that gets no bytes fails much earlier.
const LEFT_OVER: Duration = Duration::from_secs(86_400);

pub(crate) fn command() -> Command {
    let verify = "Reads the state in a backup file as a restore does, checks it, and prints its digest";
    Command::new("backup")
        .about("Saves the state of the cluster in a backup file, and checks backup files")
        .subcommand_required(true)
        .subcommand(save_command())
        .subcommand(
            Command::new("inspect")
                .about("Checks that a backup file is complete, and describes its content")
                .arg(file_arg("FILE", "The backup file")),
        )
        .subcommand(Command::new("verify").about(verify).arg(file_arg("FILE", "The backup file")))
}

fn save_command() -> Command {
    let or_stdout = file_arg("FILE", "The backup file to write, or `-` for stdout; then the reader must check it");
    let keep = "Number of this cluster's backups to keep in DIR; the command then removes the oldest ones";
    let local = "Saves what one node has applied, which may be older than the cluster's state; works without a quorum";
    Command::new("save")
        .about("Gets a backup from a node, checks it, and only then gives the file its name")
        .arg(or_stdout.required(false).required_unless_present("dir").conflicts_with("dir"))
        .arg(file("dir", "DIR", "Directory for the file, which is named after the cluster, the time and the zxid"))
        .arg(option("keep", "NUMBER", keep).requires("dir").value_parser(number::<u32>(1)))
        .arg(flag("local", local))
}

/// Makes the argument for the path of a backup file that a command reads.
pub(crate) fn file_arg(value: &'static str, help: &'static str) -> Arg {
    Arg::new("file").value_name(value).required(true).value_parser(clap::value_parser!(PathBuf)).help(help)
}

/// Returns the path in the argument of [`file_arg`].
pub(crate) fn file_of(matches: &ArgMatches) -> &PathBuf {
    matches.get_one::<PathBuf>("file").expect("it is required")
}

/// Opens a backup file and checks it.
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
    let (file, manifest) = fetch(context, NewFile::begin(path)?, path, local).await?;
    file.finish(path)?;
    told(context.out, path, &manifest)
}

async fn save_in(context: &Context, dir: &Path, keep: Option<usize>, local: bool) -> Result<u8, Failure> {
    let unfinished = NewFile::begin_in(dir).map_err(|error| failed(dir, error))?;
    let (file, manifest) = fetch(context, unfinished, dir, local).await?;
    let path = dir.join(name_of(&manifest));
    file.finish(&path)?;
    let removed = keep.map_or(Ok(()), |keep| remove_oldest(dir, &manifest, keep));
    if keep.is_some() {
        remove_leftovers(dir);
    }
    // Printed first: the backup is saved even if an old one cannot be removed.
    let code = told(context.out, &path, &manifest)?;
    removed.map(|()| code)
}

/// Returns the file name of a backup: cluster, beginning of the uuid, time and zxid. The uuid
/// distinguishes clusters of the same name.
fn name_of(manifest: &Manifest) -> String {
    let Manifest { cluster_id, cluster_uuid, saved, zxid, .. } = manifest;
    let uuid: String = cluster_uuid.chars().take(8).collect();
    let name = format!("{cluster_id}-{uuid}-{}-{zxid}{ENDING}", calendar::stamp(saved.at_ms));
    let permitted = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    name.chars().map(permitted).collect()
}

/// Removes old backups of the cluster in `dir`, so that `keep` files remain: the new backup
/// `saved`, and the older backups with the highest zxids. The order is by zxid, as clocks can go
/// back and zxids cannot.
fn remove_oldest(dir: &Path, saved: &Manifest, keep: usize) -> Result<(), Failure> {
    let entries = fs::read_dir(dir).map_err(|error| failed(dir, error))?;
    let others = entries.filter_map(|entry| other_backup(&entry.ok()?, saved));
    let mut others: Vec<(Manifest, PathBuf)> = others.collect();
    others.sort_unstable_by_key(|(manifest, _)| Reverse((manifest.zxid, manifest.saved.at_ms)));
    for (_, path) in others.iter().skip(keep - 1) {
        remove(path)?;
    }
    Ok(())
}

/// Removes an old backup. A file that another run has removed meanwhile is no error.
fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(failed(path, format!("an old backup cannot be removed: {error}")))
        }
        _ => Ok(()),
    }
}

/// Removes the unfinished files of runs that were killed. Errors are ignored: the next run tries
/// again.
fn remove_leftovers(dir: &Path) {
    let is_left_over = |entry: &DirEntry| {
        let written = entry.metadata().ok().filter(fs::Metadata::is_file).and_then(|file| file.modified().ok());
        let is_old = written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > LEFT_OVER);
        is_old && entry.file_name().to_str().is_some_and(is_unfinished)
    };
    for entry in fs::read_dir(dir).into_iter().flatten().flatten().filter(is_left_over) {
        let _ = fs::remove_file(entry.path());
    }
}

/// Reads the manifest of an older backup of the same cluster. Returns `None` for the file of
/// `saved` itself, for a backup of another cluster, and for a file that is no backup.
fn other_backup(entry: &DirEntry, saved: &Manifest) -> Option<(Manifest, PathBuf)> {
    let (name, path) = (entry.file_name().into_string().ok()?, entry.path());
    // Only regular files are opened: the open of a named pipe would wait for a writer.
    if !name.ends_with(ENDING) || name == name_of(saved) || !entry.file_type().ok()?.is_file() {
        return None;
    }
    let manifest = backup::read_manifest(File::open(&path).ok()?).ok()?;
    (manifest.cluster_uuid == saved.cluster_uuid && name == name_of(&manifest)).then_some((manifest, path))
}

/// Receives a backup from a node into an unfinished file, and checks it. A failure names `path`,
/// the file's final name or its directory.
async fn fetch(context: &Context, mut file: NewFile, path: &Path, local: bool) -> Result<(NewFile, Manifest), Failure> {
    download(context, local, &mut file, |error| failed(path, error)).await?;
    let read = Backup::open(BufReader::with_capacity(1 << 20, file.file()));
    let manifest = read.map_err(|error| failed(path, format!("what came is not whole: {error}")))?.manifest().clone();
    Ok((file, manifest))
}

async fn save_to_stdout(context: &Context, local: bool) -> Result<u8, Failure> {
    if io::stdout().is_terminal() {
        return Err(Failure::usage("a backup is not for a terminal: name a file, or put it behind a pipe"));
    }
    let unwritten = |error: &io::Error| Failure::unwritten_and(error, "the backup is not whole");
    download(context, local, io::stdout(), unwritten).await?;
    Ok(0)
}

/// Receives a backup from a node and writes it to `to`. `unwritten` makes the failure of an error
/// of a write, which is no fault of a node.
async fn download(
    context: &Context,
    local: bool,
    mut to: impl Write,
    unwritten: impl Fn(&io::Error) -> Failure,
) -> Result<(), Failure> {
    let mut refused = None;
    let received = context.client.backup(local, |bytes| {
        to.write_all(&bytes).map_err(|error| {
            let kind = error.kind();
            refused = Some(error);
            kind.into()
        })
    });
    let received = received.await;
    if let Some(error) = refused {
        return Err(unwritten(&error));
    }
    received?;
    to.flush().map_err(|error| unwritten(&error))
}

fn told(out: Output, path: &Path, manifest: &Manifest) -> Result<u8, Failure> {
    let counts = manifest.counts;
    let what = format!("{} znodes, {} locks with {} holders", counts.znodes, counts.locks, counts.holders);
    let line = format!("{}: {} at zxid {}, {what}", path.display(), plain(&manifest.cluster_id), manifest.zxid);
    out.answer(&serde_json::json!({ "file": path, "manifest": manifest }), || out.line(&line))
}

pub(crate) fn inspect(out: Output, matches: &ArgMatches) -> Result<u8, Failure> {
    let backup = open(file_of(matches))?;
    let sha256 = hex(&backup.sha256());
    let document = serde_json::json!({ "manifest": backup.manifest(), "bytes": backup.bytes(), "sha256": sha256 });
    let row = |(name, value): (&str, String)| out.line(&format!("{name:<14}{}", plain(&value)));
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
    let digest = hex(&backup::digest(&state));
    let manifest = backup.manifest();
    let znodes = state.znode_count();
    let cluster = plain(&manifest.cluster_id);
    let line = format!("good: {cluster} at zxid {}, {znodes} znodes, digest {digest}", manifest.zxid);
    let document = serde_json::json!({ "zxid": manifest.zxid, "digest": digest, "manifest": manifest });
    out.answer(&document, || out.line(&line))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use backup::{Counts, Saved};
    use tempfile::TempDir;

    use super::*;

    const EU: (&str, &str) = ("orders/eu", "11111111-aaaa");

    /// Returns the manifest of a backup that was saved on this day of November 2026.
    fn manifest((cluster_id, cluster_uuid): (&str, &str), day: u32, zxid: u64) -> Manifest {
        let at_ms = calendar::parse(&format!("2026-11-{day:02}T10:30:00Z")).unwrap();
        Manifest {
            cluster_id: cluster_id.into(),
            cluster_uuid: cluster_uuid.into(),
            zxid_base: 0,
            zxid,
            term: 1,
            time_ms: 1,
            level: 1,
            counts: Counts::default(),
            saved: Saved { program: "0.1.0".into(), at_ms, node_id: 1, local: false },
            decided: None,
        }
    }

    fn write(path: &Path, manifest: &Manifest) {
        backup::write(&znode::State::default(), manifest, File::create(path).unwrap()).unwrap();
    }

    /// Saves backups with these manifests and removes old ones. Returns, in the order of `saved`,
    /// whether each file still exists.
    fn left(dir: &TempDir, saved: &[Manifest], keep: usize) -> Vec<bool> {
        let paths: Vec<PathBuf> = saved.iter().map(|manifest| dir.path().join(name_of(manifest))).collect();
        paths.iter().zip(saved).for_each(|(path, manifest)| write(path, manifest));
        remove_oldest(dir.path(), saved.last().unwrap(), keep).unwrap();
        paths.iter().map(|path| path.exists()).collect()
    }

    #[test]
    fn the_oldest_go_by_their_zxids_and_not_by_a_clock() {
        let dir = TempDir::new().unwrap();
        assert_eq!(name_of(&manifest(EU, 25, 7)), "orders_eu-11111111-20261125T103000Z-7.zlock-backup");
        let saved = [(5, 7), (6, 8), (2, 9)].map(|(day, zxid)| manifest(EU, day, zxid));
        assert_eq!(left(&dir, &saved, 2), [false, true, true]);
    }

    #[test]
    fn the_backup_just_saved_stays_though_its_node_lags() {
        let dir = TempDir::new().unwrap();
        let saved = [(5, 7), (6, 10), (7, 9)].map(|(day, zxid)| manifest(EU, day, zxid));
        assert_eq!(left(&dir, &saved, 2), [false, true, true]);
        assert_eq!(left(&dir, &saved, 1), [false, false, true]);
    }

    #[test]
    fn an_old_backup_that_is_gone_already_is_no_error() {
        let dir = TempDir::new().unwrap();
        assert!(remove(&dir.path().join("gone")).is_ok());
        assert!(remove(dir.path()).unwrap_err().into_line().contains("an old backup cannot be removed"));
    }

    #[test]
    fn other_files_and_other_clusters_backups_stay() {
        let dir = TempDir::new().unwrap();
        let others = [("orders_eu", "22222222-bbbb"), ("orders/eu-2", "33333333-cccc"), ("orders/eu", "11111111-dddd")];
        let others = others.map(|cluster| manifest(cluster, 1, 1));
        let mut saved = others.to_vec();
        saved.extend([manifest(EU, 5, 7), manifest(EU, 6, 8)]);
        let by_hand = dir.path().join(format!("before-the-upgrade{ENDING}"));
        write(&by_hand, &manifest(EU, 1, 1));
        let no_backup = dir.path().join(name_of(&manifest(EU, 1, 2)));
        fs::write(&no_backup, "notes").unwrap();
        assert_eq!(left(&dir, &saved, 1), [true, true, true, false, true]);
        assert!(by_hand.exists() && no_backup.exists());
    }

    #[test]
    fn only_old_unfinished_files_are_leftovers() {
        let dir = TempDir::new().unwrap();
        let put = |name: &str, age: Duration| {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        put("saving-1.part", 2 * LEFT_OVER);
        put("saving-2.part", Duration::from_secs(60));
        put("notes.part", 2 * LEFT_OVER);
        fs::create_dir(dir.path().join("saving-3.part")).unwrap();
        remove_leftovers(dir.path());
        let stay = ["saving-1.part", "saving-2.part", "notes.part", "saving-3.part"];
        assert_eq!(stay.map(|name| dir.path().join(name).exists()), [false, true, true, true]);
    }
}
