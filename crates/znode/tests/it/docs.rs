//! Comparison of docs/znode-model.md with the code.

use std::path::Path;

use znode::{Error, Limits};

const MODEL: &str = include_str!("../../../../docs/znode-model.md");

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
fn every_limit_stands_in_the_table_with_what_happens_at_it() {
    let (_, table) = MODEL.split_once("| limit | default | at the limit |\n").unwrap();
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    for (limit, at_the_bound) in Limits::ROWS {
        let named = rows.iter().find(|row| row.contains(&format!("`{limit}`")));
        let row = named.unwrap_or_else(|| panic!("no limit {limit}"));
        assert!(row.contains(at_the_bound), "{limit}: {at_the_bound} is not said in {row}");
        let error = Error::ALL.iter().any(|error| format!("{error:?}") == *at_the_bound);
        assert!(error || at_the_bound.contains(' '), "no error {at_the_bound}");
    }
}

#[test]
fn every_script_that_a_rule_names_exists() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    // A rule continues in indented lines, and may contain a list.
    let rules = MODEL.replace("\n    * ", "\n").replace("\n    ", " ");
    let names = rules.lines().flat_map(|line| line.split('*').skip(1).step_by(2)).flat_map(|names| names.split(", "));
    for name in names.filter(|name| name.contains('/')) {
        assert!(scripts.join(name).exists(), "no script {name}");
    }
}
