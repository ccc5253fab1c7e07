//! Tests with a failing disk: fsync errors, no space left, power losses. A library preloaded into
//! the child process simulates the failures.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::harness::{data_dir_in_memory, rounds, seeded};
use crate::workload::{Ended, Run, Told};

#[path = "../shim/shadow.rs"]
mod shadow;

/// Compiles the library of the faulty disk once for all tests of this process. Returns its path.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_dir, path) = LIBRARY.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libfaulty_disk.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shim/faulty_disk.rs");
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
        let mut command = Command::new(rustc);
        command.args(["--edition", "2024", "--crate-type", "cdylib", "-C", "opt-level=1", source, "-o"]).arg(&path);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (dir, path)
    });
    path
}

fn with_fault(name: &str, value: String) -> Vec<(&str, String)> {
    vec![("LD_PRELOAD", library().to_str().unwrap().to_string()), (name, value)]
}

/// Makes a data directory in which a child process has written one cycle (each kind of write once).
/// Adds the child's acknowledged writes to `told`.
fn begun(told: &mut Told) -> (TempDir, PathBuf) {
    let (parent, dir) = data_dir_in_memory();
    assert!(Run { cycles: 1, ..Run::default() }.spawn(&dir).watch(told, usize::MAX).ok);
    (parent, dir)
}

/// Tells whether the storage did not open, or failed and refused everything afterwards. A panic of
/// sled is accepted too, as a panic ends the process in release builds.
fn stopped(ended: &Ended) -> bool {
    let said = |words| ended.stderr.contains(words);
    !ended.ok && (said("refused: ") || said("refused afterwards: true") || said("/sled-0.34.7/"))
}

#[test]
fn a_failed_fsync_stops_the_node_whichever_it_is() {
    for nth in 1..=45 {
        let mut told = Told::default();
        let (_parent, dir) = if nth % 2 == 0 { begun(&mut told) } else { data_dir_in_memory() };
        let env = with_fault("FAULTY_DISK_FAIL_SYNC_AT", nth.to_string());
        let ended = Run { cycles: 4, env, ..Run::default() }.spawn(&dir).watch(&mut told, usize::MAX);
        assert!(stopped(&ended), "sync {nth} failed: {ended:?}");
        told.check(&dir, &format!("sync {nth} failed"));
    }
}

#[test]
fn a_full_disk_stops_the_node_and_loses_nothing() {
    let (seed, mut rng) = seeded();
    for _ in 0..rounds(12, 25) {
        let bytes = rng.u64(..1_500_000);
        let context = format!("seed {seed}: full after {bytes} bytes");
        let mut told = Told::default();
        let (_parent, dir) = begun(&mut told);
        let env = with_fault("FAULTY_DISK_BYTES", bytes.to_string());
        let ended = Run { cycles: 1_000, env, ..Run::default() }.spawn(&dir).watch(&mut told, usize::MAX);
        // Accepted too: only a snapshot's copy found no space. A real node would go on.
        let unread = !ended.ok && ended.stderr.contains("not fatal: snapshot-copy-failed: ");
        assert!(unread || stopped(&ended), "{context}: {ended:?}");
        // The operator frees space.
        told.check(&dir, &context);
    }
}

#[test]
fn what_was_acknowledged_survives_power_losses() {
    let (seed, mut rng) = seeded();
    let mut told = Told::default();
    let (parent, mut dir) = begun(&mut told);
    let shadow = parent.path().join("shadow");
    let losses = rounds(20, 40);
    for loss in 0..losses {
        std::fs::create_dir(&shadow).unwrap();
        shadow::record_all(&shadow, &dir).unwrap();
        let env = with_fault("FAULTY_DISK_SHADOW", shadow.to_str().unwrap().into());
        let run = Run { cycles: 1_000, env, ..Run::default() };
        run.spawn(&dir).watch(&mut told, rng.usize(1..30));
        let survived = parent.path().join(format!("data-{loss}"));
        // Share, of 256, of unsynced pages that the power loss keeps.
        let kept = [0, 32, 128, 224, 256][rng.usize(..5)];
        shadow::restore(&shadow, &dir, &survived, &mut || u16::from(rng.u8(..)) < kept).unwrap();
        told.check(&survived, &format!("seed {seed}, power loss {loss}"));
        std::fs::remove_dir_all(&shadow).unwrap();
        std::fs::remove_dir_all(std::mem::replace(&mut dir, survived)).unwrap();
    }
    assert!(told.facts > 5 * losses, "{} facts", told.facts);
}
