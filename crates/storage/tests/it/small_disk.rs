//! Test of a full disk without simulated errors: a tmpfs, mounted by root or in a user namespace.
//! Where neither is allowed, the test passes with a note on stderr, and only `faulty_disk.rs`
//! covers full disks.

use std::fs;
use std::io::Write;
use std::process::Command;

use tempfile::TempDir;

use crate::workload::{Run, Told};

/// A mounted tmpfs. The drop unmounts it.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(dir.path()).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| SmallDisk(dir))
    }

    /// Writes a file that takes all free space.
    fn fill(&self) {
        let mut filler = fs::File::create(self.0.path().join("filler")).unwrap();
        for block in [vec![1; 1 << 16], vec![1; 1 << 10], vec![1; 1]] {
            while filler.write(&block).is_ok_and(|written| written > 0) {}
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

/// Environment variable that marks a test process that already runs in its own namespace.
const IN_NAMESPACE: &str = "ZLOCK_TEST_IN_NAMESPACE";

/// Runs the test with this name in a new process, in a user namespace with the right to mount.
fn again_in_a_namespace(test: &str) {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount"]);
    if std::env::var_os(IN_NAMESPACE).is_some() || !unshare.arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("NOT TESTED: {test}: this user may neither mount a tmpfs nor make a user namespace");
        return;
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount"]).arg(std::env::current_exe().unwrap());
    let again = unshare.args(["--exact", test]).env(IN_NAMESPACE, "1").output().unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
}

#[test]
fn a_node_with_ballast_starts_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount("24m") else {
        return again_in_a_namespace("small_disk::a_node_with_ballast_starts_on_a_full_disk");
    };
    let dir = disk.0.path().join("data");
    let mut told = Told::default();
    let mut run =
        |cycles| Run { cycles, ballast_bytes: 4 << 20, ..Run::default() }.spawn(&dir).watch(&mut told, usize::MAX);
    assert!(run(2).ok);
    assert!(dir.join("ballast").exists());

    disk.fill();
    let ended = run(0);
    assert!(ended.ok, "the ballast is given up: {ended:?}");
    assert!(!dir.join("ballast").exists());

    // The node writes until the space freed by the ballast is full, and stops.
    let ended = run(10_000);
    assert!(ended.stderr.contains("refused afterwards: true"), "{ended:?}");

    disk.fill();
    let ended = run(0);
    // The start may succeed, if it can delete enough files of the last run.
    assert!(ended.ok || ended.stderr.contains("is full, and opening needs some space"), "{ended:?}");

    // The operator frees space.
    fs::remove_file(disk.0.path().join("filler")).unwrap();
    told.check(&dir, "after the disk was full");
}
