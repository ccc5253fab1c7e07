//! Golden scripts: what each transaction answers, which events it makes, and what can be read afterwards.
//!
//! The scripts in `scripts/` each begin with a sentence that says what they show. `UPDATE_GOLDENFILES=1` writes the
//! output anew; read the diff. After every command the invariants are checked, and a second replica, read back from a
//! snapshot after every single command, must answer alike and have the same records.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod script;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use script::Script;

#[test]
fn every_script_gives_its_golden_output() {
    let paths = scripts();
    assert!(paths.len() > 100, "only {} scripts were found", paths.len());
    let mut failed = Vec::new();
    for path in paths {
        let run = catch_unwind(AssertUnwindSafe(|| goldenscript::run(&mut Script::default(), &path)));
        match run {
            Ok(Ok(())) => {}
            Ok(Err(error)) => failed.push(format!("{}: {error}", path.display())),
            Err(_) => failed.push(format!("{}: differs or panicked, see above", path.display())),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_script_begins_with_a_sentence() {
    for path in scripts() {
        let text = fs::read_to_string(&path).unwrap();
        let sentence = text.lines().take_while(|line| line.starts_with("# ")).collect::<String>();
        assert!(sentence.trim_end().ends_with('.'), "{} does not begin with a sentence", path.display());
    }
}

fn scripts() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts"), &mut paths);
    paths.sort();
    paths
}

fn walk(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, paths) } else { paths.push(path) }
    }
}
