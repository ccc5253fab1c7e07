//! The bugs of `tests/mutations` can still be put back, and their tests can still be run.

use toml::Table;

use crate::{none, root, texts};

/// Each bug with the list that it is in.
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
        let words: Vec<&str> = bug["test"].as_str().unwrap().split(' ').collect();
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
fn the_text_of_each_bug_stands_once_in_its_file() {
    let mut findings = Vec::new();
    for (list, bug) in bugs() {
        let word = |key: &str| bug[key].as_str().unwrap();
        let source = std::fs::read_to_string(root().join(word("file"))).unwrap_or_default();
        let count = source.matches(word("from")).count();
        if count != 1 {
            findings.push(format!("{list}: `{}` is {count} times in {}", word("name"), word("file")));
        }
    }
    none(findings);
}
