//! The alerts for Prometheus, with their tests, their runbook, and the metrics that they read.

use std::collections::BTreeSet;

use crate::{none, root};

const PAGE: &str = "docs/operating.md";
const RULES: &str = "deploy/prometheus/zlock.rules.yml";
const RULES_TEST: &str = "deploy/prometheus/zlock.test.yml";
const DASHBOARD: &str = "deploy/grafana/zlock.json";

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Text behind `start` in each line that begins with `start`, apart from its indentation.
fn rests(text: &str, start: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix(start)).map(str::to_owned).collect()
}

/// Names of all alerts.
fn alerts() -> BTreeSet<String> {
    let alerts = rests(&read(RULES), "- alert: ");
    assert!(alerts.len() > 20, "{alerts:?}");
    alerts
}

#[test]
fn each_alert_has_its_heading_in_the_runbook() {
    let (alerts, mut headings) = (alerts(), rests(&read(PAGE), "#### "));
    headings.retain(|heading| heading.starts_with("Zlock"));
    let without_heading = alerts.difference(&headings).map(|alert| format!("{PAGE} has no heading {alert}"));
    let without_alert = headings.difference(&alerts).map(|heading| format!("{RULES} has no alert {heading}"));
    none(without_heading.chain(without_alert).collect());
}

#[test]
fn each_alert_links_to_its_heading() {
    let links = rests(&read(RULES), &format!("runbook_url: {PAGE}#"));
    let without_link = alerts().into_iter().filter(|alert| !links.contains(&alert.to_lowercase()));
    none(without_link.map(|alert| format!("{RULES}: {alert} has no link")).collect());
}

#[test]
fn each_alert_has_a_test() {
    let tests = rests(&read(RULES_TEST), "- name: ");
    none(alerts().difference(&tests).map(|alert| format!("{RULES_TEST} has no test {alert}")).collect());
}

/// Names of the metrics in the golden file, and of the samples of its histograms.
fn metrics() -> BTreeSet<String> {
    let golden = read("crates/rest/tests/golden/metrics.txt");
    let mut names = BTreeSet::new();
    for line in golden.lines().skip(1) {
        let mut cells = line.split(" | ");
        let (name, kind) = (cells.next().unwrap(), cells.next().unwrap());
        names.insert(name.to_owned());
        if kind == "histogram" {
            names.extend(["_bucket", "_sum", "_count"].map(|part| format!("{name}{part}")));
        }
    }
    names
}

#[test]
fn each_metric_of_rules_dashboard_and_runbook_exists() {
    let metrics = metrics();
    let mut findings = BTreeSet::new();
    for path in [RULES, RULES_TEST, DASHBOARD, PAGE] {
        let text = read(path);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let unknown = words.filter(|word| word.starts_with("zlock_") && !metrics.contains(*word));
        findings.extend(unknown.map(|word| format!("{path}: the program has no metric {word}")));
    }
    none(findings.into_iter().collect());
}
