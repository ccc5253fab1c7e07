//! Tests of a mounted disk, through the kernel. They need root and /dev/fuse; otherwise each prints
//! that it was not run.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use power_disk::{Mounted, PAGE_BYTES};
use tempfile::TempDir;

/// Mounts an empty disk in a new directory; `None` where the machine cannot mount one.
fn disk(test: &str) -> Option<(TempDir, Mounted)> {
    if let Err(why) = power_disk::available() {
        // Written to stderr directly, because the test harness captures the output of `eprintln!`.
        let _ = writeln!(io::stderr(), "NOT RUN: {test}: no FUSE disk here: {why}");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted = Mounted::on(dir.path()).unwrap();
    Some((dir, mounted))
}

fn sync_dir(dir: &Path) {
    File::open(dir).unwrap().sync_all().unwrap();
}

#[test]
fn files_are_as_on_any_disk_until_the_power_goes() {
    let Some((dir, _mounted)) = disk("files_are_as_on_any_disk_until_the_power_goes") else { return };
    let inside = dir.path().join("a/b");
    fs::create_dir_all(&inside).unwrap();
    for i in 0..500 {
        fs::write(inside.join(format!("file-{i}")), format!("text {i}")).unwrap();
    }
    assert_eq!(fs::read_dir(&inside).unwrap().count(), 500);
    assert_eq!(fs::read_to_string(inside.join("file-77")).unwrap(), "text 77");
    fs::rename(inside.join("file-77"), dir.path().join("moved")).unwrap();
    fs::rename(dir.path().join("moved"), inside.join("file-78")).unwrap();
    assert_eq!(fs::read_to_string(inside.join("file-78")).unwrap(), "text 77");
    let mut file = OpenOptions::new().read(true).append(true).open(inside.join("file-0")).unwrap();
    file.write_all(b" and more").unwrap();
    assert_eq!(fs::read_to_string(inside.join("file-0")).unwrap(), "text 0 and more");
    file.set_len(4).unwrap();
    assert_eq!(
        (file.metadata().unwrap().len(), fs::read_to_string(inside.join("file-0")).unwrap()),
        (4, "text".into())
    );
    let sparse = OpenOptions::new().read(true).write(true).create_new(true).open(dir.path().join("sparse")).unwrap();
    sparse.write_all_at(&[1; 100_000], 1 << 20).unwrap();
    let (size, taken) = (sparse.metadata().unwrap().len(), sparse.metadata().unwrap().blocks() * 512);
    assert_eq!((size, taken), ((1 << 20) + 100_000, 25 * PAGE_BYTES as u64));
    assert_eq!(fs::read(dir.path().join("sparse")).unwrap()[(1 << 20) - 1..][..2], [0, 1]);
    fs::remove_dir_all(dir.path().join("a")).unwrap();
    assert!(!inside.exists());
}

#[test]
fn a_lock_keeps_others_out_until_its_holder_is_gone() {
    let Some((dir, _mounted)) = disk("a_lock_keeps_others_out_until_its_holder_is_gone") else { return };
    let path = dir.path().join("LOCK");
    let first = File::create(&path).unwrap();
    first.try_lock().unwrap();
    let second = File::open(&path).unwrap();
    assert!(second.try_lock().is_err());
    drop(first);
    second.try_lock().unwrap();
}

#[test]
fn a_cut_keeps_what_was_synced_and_loses_of_the_rest() {
    let Some((dir, mounted)) = disk("a_cut_keeps_what_was_synced_and_loses_of_the_rest") else { return };
    let (mut holes, mut gone) = (0, 0);
    for seed in 0..60 {
        let (kept, new) = (dir.path().join("kept"), dir.path().join("new"));
        let _ = fs::remove_file(&new);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&kept).unwrap();
        file.write_all_at(&[1; PAGE_BYTES], 0).unwrap();
        file.sync_data().unwrap();
        sync_dir(dir.path());
        file.write_all_at(&[2; 16 * PAGE_BYTES], PAGE_BYTES as u64).unwrap();
        File::create(&new).unwrap().sync_all().unwrap();
        drop(file);
        let cut = mounted.cut(seed);
        let bytes = fs::read(&kept).unwrap();
        assert_eq!(bytes[..PAGE_BYTES], [1; PAGE_BYTES], "seed {seed}");
        let survived: Vec<bool> = bytes[PAGE_BYTES..].chunks(PAGE_BYTES).map(|page| page[0] == 2).collect();
        holes += usize::from(survived.windows(2).any(|pair| pair == [false, true]));
        gone += usize::from(!new.exists());
        assert_eq!((cut.pages_kept + cut.pages_lost, cut.names_kept + cut.names_lost), (16, 1), "seed {seed}");
    }
    assert!(holes > 5 && gone > 5, "{holes} {gone}");
}

#[test]
fn what_a_killed_process_had_not_synced_is_lost_or_kept() {
    let Some((dir, mounted)) = disk("what_a_killed_process_had_not_synced_is_lost_or_kept") else { return };
    let (path, mut lost, mut kept) = (dir.path().join("a"), 0, 0);
    for seed in 0..30 {
        fs::write(&path, "durable\n").unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        sync_dir(dir.path());
        let script = format!("echo unsynced >>{}; echo written; exec sleep 1000", path.display());
        let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        mounted.cut(seed);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("durable\n"), "seed {seed}: {text:?}");
        lost += usize::from(!text.contains("unsynced"));
        kept += usize::from(text.contains("unsynced"));
    }
    assert!(lost > 3 && kept > 3, "{lost} {kept}");
}

#[test]
fn an_fsync_hangs_until_it_is_let_go() {
    let Some((dir, mounted)) = disk("an_fsync_hangs_until_it_is_let_go") else { return };
    let file = File::create(dir.path().join("a")).unwrap();
    sync_dir(dir.path());
    for mends in [true, false] {
        mounted.hang();
        let syncing = file.try_clone().unwrap();
        file.write_all_at(b"x", 0).unwrap();
        let waiting = thread::spawn(move || syncing.sync_all());
        while mounted.hung() == 0 {
            thread::yield_now();
        }
        // During a hanging fsync the kernel blocks writes to its file, but not to other files.
        fs::write(dir.path().join("b"), "y").unwrap();
        assert!(!waiting.is_finished());
        if mends {
            mounted.mend();
            waiting.join().unwrap().unwrap();
        } else {
            mounted.drop_hung();
            assert_eq!(waiting.join().unwrap().unwrap_err().raw_os_error(), Some(5));
        }
        file.sync_all().unwrap();
    }
}

#[test]
fn a_slow_fsync_takes_its_time_and_makes_durable() {
    let Some((dir, mounted)) = disk("a_slow_fsync_takes_its_time_and_makes_durable") else { return };
    let file = File::create(dir.path().join("a")).unwrap();
    sync_dir(dir.path());
    let delay = Duration::from_millis(80);
    mounted.slow(delay);
    file.write_all_at(b"x", 0).unwrap();
    let began = Instant::now();
    file.sync_all().unwrap();
    assert!(began.elapsed() >= delay, "{:?}", began.elapsed());
    assert_eq!((mounted.delayed(), mounted.hung()), (1, 0));
    mounted.cut(1);
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"x");
}

#[test]
fn a_slow_fsync_ends_when_the_disk_is_mended() {
    let Some((dir, mounted)) = disk("a_slow_fsync_ends_when_the_disk_is_mended") else { return };
    for mends in [true, false] {
        let file = File::create(dir.path().join("a")).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        // The delay is longer than any test may take.
        mounted.slow(Duration::from_secs(1_000_000));
        let waiting = thread::spawn(move || file.sync_all());
        while mounted.hung() == 0 {
            thread::yield_now();
        }
        if mends {
            mounted.mend()
        } else {
            mounted.drop_hung()
        }
        assert_eq!(waiting.join().unwrap().is_ok(), mends);
    }
}

#[test]
fn an_fsync_fails_and_forgets_what_it_should_have_written() {
    let Some((dir, mounted)) = disk("an_fsync_fails_and_forgets_what_it_should_have_written") else { return };
    let file = File::create(dir.path().join("a")).unwrap();
    sync_dir(dir.path());
    file.write_all_at(b"lost", 0).unwrap();
    mounted.fail();
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(5));
    mounted.mend();
    file.sync_data().unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "lost");
    // An fsync through a read-only handle drops the cache, so that reads come from the disk.
    File::open(dir.path().join("a")).unwrap().sync_all().unwrap();
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), [0; 4]);
    mounted.cut(1);
    assert!(!fs::read_to_string(dir.path().join("a")).unwrap().contains("lost"));
}

#[test]
fn a_full_disk_takes_writes_again_when_it_is_mended() {
    let Some((dir, mounted)) = disk("a_full_disk_takes_writes_again_when_it_is_mended") else { return };
    let file = dir.path().join("a");
    fs::write(&file, "before").unwrap();
    mounted.fill();
    assert_eq!(rustix::fs::statvfs(dir.path()).unwrap().f_bavail, 0);
    let full = fs::write(dir.path().join("b"), "x").unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(fs::read_to_string(&file).unwrap(), "before");
    mounted.mend();
    fs::write(dir.path().join("b"), "x").unwrap();
}

#[test]
fn the_disk_goes_with_its_owner() {
    let Some((dir, mounted)) = disk("the_disk_goes_with_its_owner") else { return };
    fs::write(dir.path().join("a"), "x").unwrap();
    drop(mounted);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
