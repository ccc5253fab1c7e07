use std::fs;

use super::*;
use crate::limits::Limit;
use crate::results::Part;
use crate::scenario::Figure;

fn figures(per_second: f64) -> Figures {
    Figures { per_second, p50_us: 1e6 / per_second, p99_us: 1e7 / per_second, ..Figures::default() }
}

/// Returns results with two workloads of 64 clients, a limit of 40,000 entries a second, a scenario
/// of one size, a scenario measured at two sizes, and a failure.
fn results() -> Results {
    let mut results = Results::default();
    let limit = Limit { name: "entries".into(), batch: Some(64), per_second: 40_000.0 };
    results.run = Run { commit: "abc".into(), scale: 1.0, limits: vec![limit], ..Run::default() };
    for (workload, rate) in [(Workload::Write, 10_000.0), (Workload::LockCycle, 4_000.0)] {
        results.add_round(workload, 64, Kind::ZlockZk, figures(rate));
        results.add_round(workload, 64, Kind::Etcd, figures(rate / 2.0));
    }
    let fan_out = Figure { name: "last told".into(), size: None, unit: "ms", value: 12.0 };
    results.add_figures(Scenario::FanOut, Kind::Etcd, vec![fan_out]);
    for (size, value) in [(1, 250.0), (10, 240.0)] {
        let grown = |name: &str| Figure { name: name.into(), size: Some(size), unit: "1/s", value };
        results.add_figures(Scenario::GrowthWaiters, Kind::ZlockRest, vec![grown("hand-offs"), grown("writes")]);
    }
    results.fail(Part::Scenario(Scenario::Million), Kind::Etcd, "first line\n\nlast line".into());
    results
}

#[track_caller]
fn check(text: &str, line: &str) {
    assert!(text.lines().any(|other| other == line), "no line {line:?} in\n{text}");
}

#[test]
fn a_page_keeps_its_text_and_has_every_table() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    fs::write(&page, format!("# Before\n{BEGIN}\nold figures\n{END}\nafter\n")).unwrap();
    for _ in 0..2 {
        write(&results(), dir.path(), Some(&page)).unwrap();
    }
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.starts_with(&format!("# Before\n{BEGIN}\n")) && text.ends_with(&format!("{END}\nafter\n")), "{text}");
    assert!(!text.contains("old figures"));
    // Shares of the limit: a lock cycle is two entries.
    check(&text, "| write | 64 | 40000 | - | 25.0 % | - | 12.5 % |");
    check(&text, "| lock-cycle | 64 | 40000 | - | 20.0 % | - | 10.0 % |");
    check(&text, "| write | 64 | zlock-zk | etcd | 2.00 (2.00-2.00) | 2.00 (2.00-2.00) | 2.00 (2.00-2.00) | - |");
    check(&text, "| fan-out |  | last told | ms | - | - | - | 12.0 |");
    check(&text, "| growth-waiters | 10 | writes | 1/s | 240 | - | - | - |");
    check(&text, "* failed: million on etcd: first line last line");
    check(&text, "Failed clients and parts: 1.");
}

#[test]
fn a_page_without_marks_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    fs::write(&page, "# Mine").unwrap();
    assert!(write(&results(), dir.path(), Some(&page)).is_err());
    assert_eq!(fs::read_to_string(&page).unwrap(), "# Mine");
}
