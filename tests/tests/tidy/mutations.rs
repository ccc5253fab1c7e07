//! The bugs of `tests/mutations` can still be put back.

use toml::Table;

use crate::{none, root, texts};

#[test]
fn the_text_of_each_bug_stands_once_in_its_file() {
    let mut findings = Vec::new();
    for list in texts(".toml").into_iter().filter(|list| list.path.starts_with("tests/mutations/")) {
        let table: Table = list.text.parse().unwrap();
        for bug in table["bug"].as_array().unwrap() {
            let word = |key: &str| bug[key].as_str().unwrap();
            let source = std::fs::read_to_string(root().join(word("file"))).unwrap_or_default();
            let count = source.matches(word("from")).count();
            if count != 1 {
                findings.push(format!("{}: `{}` is {count} times in {}", list.path, word("name"), word("file")));
            }
        }
    }
    none(findings);
}
