//! Golden scripts: the answer to each transaction, its events, and all that can be read afterwards.
//!
//! Each script in `scripts/` shows one claim, which is its first sentence. Then come blocks of one
//! command, or of at most three that belong together, with their output below. A comment before a
//! block explains the block where that is needed. After every command the invariants are checked.
//! A second replica, which is read back from a snapshot after every command, must give the same
//! answers and have the same records.
//!
//! ```text
//! cargo test -p znode --test it scripts                       every script; names the failed ones
//! ZLOCK_SCRIPT=upgrade cargo test -p znode --test it scripts  scripts with `upgrade` in the path
//! UPDATE_GOLDENFILES=1 cargo test -p znode --test it scripts  writes the output; read the diff
//! ```
//!
//! Lock nodes are shown by the key of the acquire that made them, and can be named so in arguments.
//! For number 0 of key 6:
//!
//! ```text
//! k6 lock 0      0000000000_00000000000000000000000000000006__WRIT__0000000000__lock__0000000000
//! k6 reader 0    0000000000_00000000000000000000000000000006__READ__0000000000__rlock__0000000000
//! k6 lease 0     _c_00000000-0000-0000-0000-000000000006-lease-0000000000
//! ```
//!
//! A key has aliases from the first command on that has it as `key=`; names of other keys and of
//! other clients are shown as they are. `release 6` and other commands about a ticket take the key
//! alone. The command `names full` turns aliases off, for scripts about the bytes of names.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::script::Script;

#[test]
fn every_script_gives_its_golden_output() {
    let word = std::env::var("ZLOCK_SCRIPT").unwrap_or_default();
    let paths: Vec<_> = scripts().into_iter().filter(|path| name(path).contains(&word)).collect();
    assert!(!paths.is_empty(), "no script has {word:?} in its path");
    let count = paths.len();
    let failed: Vec<_> = paths.iter().filter_map(|path| failure(path)).collect();
    assert!(failed.is_empty(), "{} of {count} scripts failed:\n{}", failed.len(), failed.join("\n"));
}

/// Runs a script. Returns its name and the reason if it failed, `None` if it passed.
fn failure(path: &Path) -> Option<String> {
    let run = catch_unwind(AssertUnwindSafe(|| goldenscript::run(&mut Script::default(), path)));
    let why = match run {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "differs or panicked, see above".into(),
    };
    Some(format!("{}: {why}", name(path)))
}

#[test]
fn every_script_begins_with_a_sentence() {
    let paths = scripts();
    assert!(paths.len() > 100, "only {} scripts were found", paths.len());
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let sentence = text.lines().take_while(|line| line.starts_with("# ")).collect::<String>();
        assert!(sentence.trim_end().ends_with('.'), "{} does not begin with a sentence", name(&path));
    }
}

#[test]
fn every_long_script_has_sentences_between_its_blocks() {
    for path in scripts() {
        let text = fs::read_to_string(&path).unwrap();
        let blocks = text.lines().filter(|line| *line == "---").count();
        let mut body = text.lines().skip_while(|line| line.starts_with("# "));
        assert!(blocks <= 4 || body.any(|line| line.starts_with("# ")), "{}: {blocks} blocks", name(&path));
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// Name of a script as the rules in docs/znode-model.md write it: `upgrade/tokens`.
fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

fn scripts() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    walk(&root(), &mut paths);
    paths.sort();
    paths
}

fn walk(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, paths) } else { paths.push(path) }
    }
}
