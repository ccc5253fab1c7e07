//! The rules of docs/dev/architecture.md and docs/dev/style.md that a machine can check.

#![allow(clippy::unwrap_used)]

mod alerts;
mod circles;
mod documents;
mod manifests;
mod mutations;
mod next_level;
mod sources;
mod words;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A file of the repository: its path from the root, and its text.
struct Text {
    path: String,
    text: String,
}

/// Every text file below the root whose name ends in `ending`, sorted by path. Hidden directories
/// except `.ci` are skipped, and so is cargo's output.
fn texts(ending: &str) -> Vec<Text> {
    let (root, mut found, mut dirs) = (root(), Vec::new(), vec![root()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && (!name.starts_with('.') || name == ".ci") && !["target", "zlock-data"].contains(&&*name)
            {
                dirs.push(path);
            } else if path.is_file() && name.ends_with(ending) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push(Text { path: path.strip_prefix(&root).unwrap().display().to_string(), text });
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    assert!(!found.is_empty(), "no file ends in {ending}");
    found
}

/// A source without its comments, and without its tests at the end.
fn code(text: &str) -> String {
    let end = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\npub(crate) mod tests {"];
    let end = end.iter().filter_map(|tests| text.find(tests)).min().unwrap_or(text.len());
    text[..end].lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Panics if there are findings, and lists all of them.
#[track_caller]
fn none(findings: Vec<String>) {
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}
