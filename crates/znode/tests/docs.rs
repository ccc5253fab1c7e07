//! docs/znode-model.md says what the code does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use znode::{Error, Limits};

const MODEL: &str = include_str!("../../../docs/znode-model.md");

#[test]
fn every_error_stands_in_the_table_with_its_number() {
    for error in Error::ALL {
        let row = format!("| `{error:?}` | {} |", error.code());
        assert!(MODEL.contains(&row), "no row {row}");
    }
    let rows = MODEL.lines().filter(|line| line.starts_with("| `") && line.contains("` | -")).count();
    assert_eq!(rows, Error::ALL.len(), "a row too many, or an error that this test does not know");
}

#[test]
fn every_limit_stands_in_the_table() {
    let limits = format!("{:?}", Limits::default());
    for field in limits.split([' ', '{', ',']).filter_map(|word| word.strip_suffix(':')) {
        assert!(MODEL.contains(&format!("`{field}`")), "no limit {field}");
    }
}

#[test]
fn every_script_that_a_rule_names_exists() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    // A rule goes on in lines that are further in, and may have a list.
    let rules = MODEL.replace("\n    * ", "\n").replace("\n    ", " ");
    let names = rules.lines().flat_map(|line| line.split('*').skip(1).step_by(2)).flat_map(|names| names.split(", "));
    for name in names.filter(|name| name.contains('/')) {
        assert!(scripts.join(name).exists(), "no script {name}");
    }
}
