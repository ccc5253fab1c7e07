//! The deliberate bugs of `tests/mutations`, which show that tests find bugs. The texts that they
//! replace must still be in the sources, and the tests that find them must exist.

use toml::Table;

use crate::{none, root, texts};

/// All deliberate bugs, each with the path of the list that contains it.
fn bugs() -> Vec<(String, Table)> {
    let lists = texts(".toml").into_iter().filter(|list| list.path.starts_with("tests/mutations/"));
    let of_list = |list: crate::Text| {
        let table: Table = list.text.parse().unwrap();
        let bugs = table["bug"].as_array().unwrap().clone();
        bugs.into_iter().map(move |bug| (list.path.clone(), bug.as_table().unwrap().clone())).collect::<Vec<_>>()
    };
    lists.flat_map(of_list).collect()
}

#[test]
fn the_test_of_each_bug_is_there() {
    let sources = texts(".rs");
    let mut findings = Vec::new();
    for (list, bug) in bugs() {
        let Some(test) = bug.get("test").and_then(|test| test.as_str()) else { continue };
        let words: Vec<&str> = test.split(' ').collect();
        let behind = |flag: &str| words.iter().position(|word| *word == flag).map(|at| words[at + 1]);
        let package = behind("-p").unwrap();
        let dir = if package == "tests" {
            "tests/".into()
        } else {
            format!("crates/{}/", package.trim_start_matches("zlock-"))
        };
        let target = behind("--test").map_or(dir.clone(), |target| format!("{dir}tests/{target}"));
        let filter = words.last().unwrap();
        let found = sources.iter().any(|source| {
            source.path.starts_with(&target)
                && (source.path.contains(&format!("/{filter}")) || source.text.contains(filter))
        });
        if !found {
            findings.push(format!("{list}: {}", words.join(" ")));
        }
    }
    none(findings);
}

#[test]
fn each_bug_has_a_name_of_its_own_and_something_that_finds_it() {
    let (mut findings, mut names) = (Vec::new(), std::collections::BTreeSet::new());
    for (list, bug) in bugs() {
        let name = bug["name"].as_str().unwrap().to_owned();
        if !["test", "sim", "jepsen"].iter().any(|finder| bug.contains_key(*finder)) {
            findings.push(format!("{list}: nothing finds `{name}`"));
        }
        if let Some(name) = names.replace(name) {
            findings.push(format!("{list}: another bug is called `{name}`"));
        }
    }
    none(findings);
}

#[test]
fn the_texts_of_each_bug_stand_once_in_their_files() {
    let mut findings = Vec::new();
    for (list, bug) in bugs() {
        let edits = match bug.get("edit") {
            Some(edits) => edits.as_array().unwrap().iter().map(|edit| edit.as_table().unwrap().clone()).collect(),
            None => vec![bug.clone()],
        };
        for edit in edits {
            let word = |key: &str| edit[key].as_str().unwrap();
            let source = std::fs::read_to_string(root().join(word("file"))).unwrap_or_default();
            let count = source.matches(word("from")).count();
            if count != 1 || word("from") == word("to") {
                findings.push(format!("{list}: {}: a text is {count} times in {}", bug["name"], word("file")));
            }
        }
    }
    none(findings);
}

/// The table of deliberate bugs has a row for each bug, with its effect and the tests that find it.
#[test]
fn the_table_of_planted_bugs_names_each_of_them() {
    let page = std::fs::read_to_string(root().join("docs/dev/planted-bugs.md")).unwrap();
    let rows = || page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let mut findings = Vec::new();
    let planted: Vec<Table> =
        bugs().into_iter().filter(|(list, _)| list.ends_with("/planted.toml")).map(|(_, bug)| bug).collect();
    for bug in &planted {
        let (name, what) = (bug["name"].as_str().unwrap(), bug["what"].as_str().unwrap());
        if !rows().any(|(row, rest)| row == name && rest.starts_with(&format!("{what} | "))) {
            findings.push(format!("`{name}` has no row, or another one"));
        }
    }
    let unknown = rows().filter(|(row, _)| planted.iter().all(|bug| bug["name"].as_str() != Some(row)));
    findings.extend(unknown.map(|(row, _)| format!("`{row}` is in no list")));
    none(findings);
}

/// The simulation's seeds of deliberate bugs are among those that each run of the tests plays.
#[test]
fn the_seed_of_each_bug_is_played() {
    let listed = std::fs::read_to_string(root().join("crates/sim/tests/seeds.txt")).unwrap();
    let mut findings = Vec::new();
    for (list, bug) in bugs() {
        let Some(seed) = bug.get("sim").map(|sim| sim["seed"].to_string()) else { continue };
        if !listed.lines().any(|line| line == seed) {
            findings.push(format!("{list}: {}: crates/sim/tests/seeds.txt lacks the seed {seed}", bug["name"]));
        }
    }
    none(findings);
}
