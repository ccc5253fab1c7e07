//! Bounds on the length of files, functions and all code, and words that must not be committed.

use crate::{Text, code, none, texts};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// Bound on the code lines of the program and its clients: lines of `src` without comments, blank
/// lines and inline tests.
const PRODUCT_LINES_MAX: usize = 50_500;
/// Bound on the code lines of the packages that test and measure the program.
const PROOF_LINES_MAX: usize = 21_700;
const PROOF: &[&str] = &["crates/bench/", "crates/replay/", "crates/sim/", "crates/testkit/", "jepsen/", "tests/"];

/// Words that must not be committed. Written in halves, so that this file does not contain them.
const LEFT_OVERS: &[&str] = &[
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("db", "g!("),
    concat!("#[ig", "nore"),
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X "),
    concat!("/wo", "rk/"),
    concat!("sha", "red/design"),
    concat!("<<<<", "<<< "),
];

/// The line at which the test code of a file begins.
fn tests_begin(file: &Text) -> usize {
    let is_test = file.path.contains("tests/") || file.path.ends_with("tests.rs");
    let lines = file.text.lines().count();
    if is_test { 0 } else { file.text.lines().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(lines) }
}

#[test]
fn no_file_is_longer_than_its_bound() {
    let mut findings = Vec::new();
    for file in texts(".rs") {
        let lines = file.text.lines().count();
        // A file of tests counts in full.
        let counted = if tests_begin(&file) == 0 { lines } else { tests_begin(&file) };
        if counted > FILE_LINES_MAX {
            findings.push(format!("{}: {counted} lines", file.path));
        }
    }
    none(findings);
}

#[test]
fn no_function_is_longer_than_its_bound() {
    let mut findings = Vec::new();
    for file in texts(".rs") {
        let lines: Vec<&str> = file.text.lines().collect();
        for (first, line) in lines.iter().enumerate() {
            let Some(name) = function(line) else { continue };
            // rustfmt puts the closing brace where the function begins; a declaration in a trait
            // has no brace.
            let indent = line.len() - line.trim_start().len();
            let end = format!("{}}}", " ".repeat(indent));
            let length =
                lines[first..].iter().position(|line| *line == end || line.ends_with(';') && indent_of(line) == indent);
            let length = length.map_or(1, |length| length + 1);
            if length > FUNCTION_LINES_MAX {
                findings.push(format!("{}:{}: {name} has {length} lines", file.path, first + 1));
            }
        }
    }
    none(findings);
}

#[test]
fn the_code_is_not_longer_than_its_bounds() {
    let (mut product, mut proof) = (0, 0);
    for file in texts(".rs").iter().filter(|file| file.path.contains("/src/") && !file.path.ends_with("/tests.rs")) {
        let lines = code(&file.text).lines().filter(|line| !line.trim().is_empty()).count();
        let is_proof = PROOF.iter().any(|package| file.path.starts_with(package));
        *(if is_proof { &mut proof } else { &mut product }) += lines;
    }
    let advice = "cut code, or raise the bound and give the reason in the commit's body";
    let counts = [("product", product, PRODUCT_LINES_MAX), ("proof", proof, PROOF_LINES_MAX)];
    let longer = counts.iter().filter(|(_, lines, bound)| lines > bound);
    none(longer.map(|(kind, lines, bound)| format!("{kind}: {lines} lines, bound {bound}: {advice}")).collect());
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The name of the function that begins on this line.
fn function(line: &str) -> Option<&str> {
    let mut words = line.trim_start();
    for modifier in ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "unsafe "] {
        words = words.strip_prefix(modifier).unwrap_or(words);
    }
    let name = words.strip_prefix("fn ")?;
    name.split(['(', '<']).next()
}

#[test]
fn nothing_is_left_behind() {
    let mut findings = Vec::new();
    for file in [".rs", ".md", ".toml", ".sh", "run"].into_iter().flat_map(texts) {
        for (number, line) in file.text.lines().enumerate() {
            for left in LEFT_OVERS.iter().filter(|left| line.contains(**left)) {
                // The style guide names the words that it forbids.
                if file.path != "docs/dev/style.md" {
                    findings.push(format!("{}:{}: {left}", file.path, number + 1));
                }
            }
        }
    }
    none(findings);
}

#[test]
fn tests_wait_for_conditions_and_not_for_time() {
    let sleep = concat!("sle", "ep(");
    let mut findings = Vec::new();
    for file in texts(".rs") {
        let begin = tests_begin(&file);
        for (number, line) in file.text.lines().enumerate().skip(begin).filter(|(_, line)| line.contains(sleep)) {
            findings.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
        }
    }
    none(findings);
}

#[test]
fn libraries_print_nothing() {
    let mut findings = Vec::new();
    for file in texts(".rs") {
        let library = ["znode", "storage", "replica", "rest", "client"];
        if !library.iter().any(|library| file.path.starts_with(&format!("crates/{library}/src/"))) {
            continue;
        }
        for (number, line) in file.text.lines().take(tests_begin(&file)).enumerate() {
            if line.trim_start().starts_with("println!") || line.trim_start().starts_with("eprintln!") {
                findings.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    none(findings);
}
