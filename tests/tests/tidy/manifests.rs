//! Dependencies that each crate may have.

use std::collections::BTreeMap;

use toml::Table;

use crate::{none, root, texts};

/// Crates of this workspace, each with those that it may use. The table in docs/dev/architecture.md
/// says the same.
const EDGES: &[(&str, &[&str])] = &[
    ("znode", &[]),
    ("storage", &[]),
    ("backup", &["znode"]),
    ("replica", &["znode", "storage", "accept"]),
    ("jute", &[]),
    ("accept", &[]),
    ("jute-fuzz", &["jute"]),
    ("replica-fuzz", &["replica"]),
    ("rest", &["replica", "zlock-client", "znode", "backup", "accept"]),
    ("wire", &["replica", "jute", "znode", "accept"]),
    ("zlock", &["rest", "wire", "replica", "znode", "backup", "zlock-client", "accept"]),
    ("zlock-client", &[]),
    ("testkit", &["zlock-client", "jute"]),
    ("bench", &["zlock-client", "jute", "testkit"]),
    ("tests", &["zlock", "zlock-client"]),
    ("jepsen", &["zlock-client", "jute", "power-disk", "testkit"]),
    ("power-disk", &[]),
    ("sim", &["replica", "storage", "znode"]),
    ("replay", &["replica", "storage", "znode"]),
];

/// Libraries that only certain crates may use, because each library belongs to one layer.
const OWNED: &[(&str, &[&str])] = &[
    ("openraft", &["storage", "replica", "sim", "replay"]),
    ("raft-log", &["storage"]),
    ("sled", &["storage"]),
    ("axum", &["rest"]),
    ("tower", &["rest"]),
    ("imbl", &["znode"]),
    ("tokio-rustls", &["accept", "zlock-client", "testkit", "bench"]),
    ("rustls-native-certs", &["zlock-client"]),
    ("rustls-webpki", &["accept"]),
    ("toml", &["zlock", "tests"]),
    ("fuser", &["power-disk"]),
];

/// Dependencies of the pure core: they do no IO, read no clock and draw no random numbers.
const PURE: &[&str] = &["bincode", "imbl", "siphasher", "thiserror"];

/// The tables of a manifest that are called `section`: that for all targets, and those for single
/// targets.
fn tables<'a>(manifest: &'a Table, section: &str) -> Vec<&'a Table> {
    let targets = manifest.get("target").and_then(|targets| targets.as_table());
    let targets = targets.into_iter().flat_map(Table::values).filter_map(|target| target.as_table());
    [manifest].into_iter().chain(targets).filter_map(|table| table.get(section)?.as_table()).collect()
}

/// The dependencies of every crate by its name. With `with_tests`, the dependencies of its tests
/// are among them.
fn dependencies(with_tests: bool) -> BTreeMap<String, Vec<String>> {
    let mut crates = BTreeMap::new();
    for manifest in texts("Cargo.toml") {
        let table: Table = manifest.text.parse().unwrap();
        let Some(package) = table.get("package") else { continue };
        let sections = ["dependencies", "build-dependencies", "dev-dependencies"];
        let sections = sections.iter().take(if with_tests { 3 } else { 2 });
        let names = sections.flat_map(|section| tables(&table, section)).flat_map(Table::keys).cloned();
        crates.insert(package["name"].as_str().unwrap().to_owned(), names.collect());
    }
    crates
}

#[test]
fn crates_use_each_other_only_as_the_table_says() {
    let crates = dependencies(false);
    let mut findings = Vec::new();
    for (name, used) in &crates {
        let Some((_, allowed)) = EDGES.iter().find(|(edge, _)| edge == name) else {
            findings.push(format!("{name}: not in the table of tests/tests/tidy/manifests.rs"));
            continue;
        };
        for used in used.iter().filter(|used| crates.contains_key(*used) && !allowed.contains(&used.as_str())) {
            findings.push(format!("{name} must not use {used}"));
        }
    }
    none(findings);
}

#[test]
fn a_library_that_stands_for_a_layer_stays_in_it() {
    let mut findings = Vec::new();
    for (name, used) in dependencies(true) {
        for (library, owners) in OWNED {
            if used.iter().any(|used| used == library) && !owners.contains(&name.as_str()) {
                findings.push(format!("{name} must not use {library}: only {} may", owners.join(" and ")));
            }
        }
    }
    none(findings);
}

#[test]
fn the_state_machine_has_no_way_to_be_impure() {
    let used = &dependencies(false)["znode"];
    none(used.iter().filter(|used| !PURE.contains(&used.as_str())).map(|used| format!("znode uses {used}")).collect());
}

#[test]
fn the_table_in_the_architecture_names_every_edge() {
    let text = std::fs::read_to_string(root().join("docs/dev/architecture.md")).unwrap();
    let crates = dependencies(false);
    let mut findings = Vec::new();
    for (name, allowed) in EDGES.iter().filter(|(name, _)| crates.contains_key(*name)) {
        let Some(row) = text.lines().find(|line| line.starts_with(&format!("| `{name}` |"))) else {
            findings.push(format!("{name} has no row in docs/dev/architecture.md"));
            continue;
        };
        for used in crates[*name].iter().filter(|used| allowed.contains(&used.as_str())) {
            if !row.contains(&format!("`{used}`")) {
                findings.push(format!("the row of {name} in docs/dev/architecture.md does not list {used}"));
            }
        }
    }
    none(findings);
}

#[test]
fn versions_stand_in_the_root_manifest_only() {
    let mut findings = Vec::new();
    for manifest in texts("Cargo.toml") {
        let table: Table = manifest.text.parse().unwrap();
        // The fuzz targets are a workspace of their own, and not built with the others.
        if table.contains_key("workspace") {
            continue;
        }
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (name, how) in tables(&table, section).into_iter().flatten() {
                // A crate may name itself in its tests, to get a feature.
                if how.get("workspace").is_none() && how.get("path").and_then(|path| path.as_str()) != Some(".") {
                    findings.push(format!("{}: {name} has a version of its own", manifest.path));
                }
            }
        }
    }
    none(findings);
}

#[test]
fn the_workspace_has_at_most_20_test_binaries() {
    let mut binaries = Vec::new();
    for manifest in texts("Cargo.toml").into_iter().filter(|manifest| manifest.text.contains("[package]")) {
        let tests = root().join(manifest.path).with_file_name("tests");
        // A package without integration tests has no such directory.
        for entry in std::fs::read_dir(tests).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "rs") || path.join("main.rs").exists() {
                binaries.push(path.display().to_string());
            }
        }
    }
    assert!(binaries.len() <= 20, "{} test binaries: {binaries:#?}", binaries.len());
}
