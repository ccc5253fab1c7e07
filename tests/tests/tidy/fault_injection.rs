//! Bugs that can be planted never get into a release.

use std::process::Command;

use toml::Table;

use crate::{none, root, texts};

/// Compiles the guard by itself, as a crate with the feature would.
fn compiles(debug_assertions: &str) -> (bool, String) {
    let dir = tempfile::tempdir().unwrap();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let output = Command::new(rustc)
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "lib",
            "--emit",
            "metadata",
            "--cfg",
            "feature=\"fault-injection\"",
        ])
        .args(["-A", "warnings", "-C", &format!("debug-assertions={debug_assertions}"), "--out-dir"])
        .arg(dir.path())
        .arg(root().join("crates/plant/src/lib.rs"))
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn planted_bugs_are_refused_without_debug_assertions() {
    let (compiled, told) = compiles("off");
    assert!(!compiled && told.contains("never part of a release"), "{told}");
    let (compiled, told) = compiles("on");
    assert!(compiled, "{told}");
}

#[test]
fn every_way_to_planted_bugs_leads_through_the_guard_and_none_is_a_default() {
    let mut findings = Vec::new();
    for manifest in texts("Cargo.toml") {
        let table: Table = manifest.text.parse().unwrap();
        let features = table.get("features").and_then(|features| features.as_table());
        let default = features.and_then(|features| features.get("default")).map(|on| on.to_string());
        // What the client's one is stands beside it.
        if default.is_some_and(|on| on != "[\"client\"]") {
            findings.push(format!("{}: has default features", manifest.path));
        }
        let planted = features.and_then(|features| features.get("fault-injection")).and_then(|on| on.as_array());
        let leads_on = planted
            .is_some_and(|on| on.iter().any(|on| on.as_str().is_some_and(|on| on.ends_with("/fault-injection"))));
        // The guard stands in `plant`.
        if planted.is_some() && !leads_on && manifest.path != "crates/plant/Cargo.toml" {
            findings.push(format!("{}: `fault-injection` does not lead to plant/fault-injection", manifest.path));
        }
        // Tests may; what is built from a release's dependencies may not.
        for section in ["dependencies", "build-dependencies"] {
            for (name, how) in table.get(section).and_then(|table| table.as_table()).into_iter().flatten() {
                let features = how.get("features").and_then(|features| features.as_array());
                if features.is_some_and(|features| features.iter().any(|on| on.as_str() == Some("fault-injection"))) {
                    findings.push(format!("{}: {name} is always planted", manifest.path));
                }
            }
        }
        for name in ["release", "dist"] {
            let profile = table.get("profile").and_then(|profiles| profiles.get(name));
            if profile.is_some_and(|profile| profile.get("debug-assertions").is_some()) {
                findings.push(format!("{}: the profile {name} has debug assertions", manifest.path));
            }
        }
    }
    none(findings);
}
