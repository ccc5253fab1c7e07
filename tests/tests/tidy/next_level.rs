//! The format level after the newest one. Only a build with the feature `next-level` may have it.

use toml::{Table, Value};

use crate::{none, texts};

/// All tables of dependencies in a manifest, including those of the workspace and of single
/// targets.
fn dependencies(table: &Table) -> Vec<&Table> {
    let sections = table.iter().filter_map(|(name, value)| Some((name, value.as_table()?)));
    sections
        .flat_map(|(name, inner)| if name.ends_with("dependencies") { vec![inner] } else { dependencies(inner) })
        .collect()
}

#[test]
fn no_dependency_asks_for_the_level_after_the_newest() {
    let mut findings = Vec::new();
    for manifest in texts("Cargo.toml") {
        let table: Table = manifest.text.parse().unwrap();
        let asks = |how: &Value| {
            let features = how.get("features").and_then(Value::as_array);
            features.is_some_and(|all| all.iter().any(|one| one.as_str() == Some("next-level")))
        };
        let found = dependencies(&table).into_iter().flatten().filter(|(_, how)| asks(how));
        findings.extend(found.map(|(name, _)| format!("{}: `{name}` with next-level", manifest.path)));
    }
    none(findings);
}
