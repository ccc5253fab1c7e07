//! Tests that `jepsen check` judges a stored history and reports it by its exit code.

use std::path::Path;
use std::process::Command;

use jepsen::history::read_jsonl;

const STALE: &str = r#"
{"index":0,"time":1000,"process":0,"type":"invoke","f":"write","value":["k",1]}
{"index":1,"time":2000,"process":0,"type":"ok","f":"write","value":["k",1],"node":1,"zxid":7}
{"index":2,"time":3000,"process":"nemesis","type":"info","f":"start-kill","value":{"nodes":[1]}}
{"index":3,"time":4000,"process":1,"type":"invoke","f":"read","value":["k",null]}
{"index":4,"time":5000,"process":1,"type":"ok","f":"read","value":["k",null],"node":2,"zxid":7}
"#;

fn judge(dir: &Path, history: &str) -> (i32, String) {
    std::fs::write(dir.join("history.jsonl"), history).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_jepsen"));
    let output = command.arg("check").arg(dir).args(["--workload", "register"]).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_bad_history_ends_with_1_and_names_the_operations() {
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = judge(dir.path(), STALE);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("not-linearizable") && said.contains("process 1 read"), "{said}");
}

#[test]
fn a_good_one_ends_with_0_and_one_that_is_none_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = judge(
        dir.path(),
        &STALE.replace(r#""ok","f":"read","value":["k",null]"#, r#""ok","f":"read","value":["k",1]"#),
    );
    assert_eq!(code, 0, "{said}");
    assert_eq!(judge(dir.path(), "no history\n").0, 2);
    let (code, said) = judge(
        dir.path(),
        &STALE
            .replace(r#""process":1,"#, r#""process":0,"#)
            .replace(r#""type":"ok","f":"write""#, r#""type":"info","f":"write""#),
    );
    assert_eq!(code, 2, "a process that goes on after an unknown outcome: {said}");
}

#[test]
fn a_line_that_is_no_entry_is_named() {
    assert_eq!(read_jsonl(STALE).unwrap().len(), 5);
    assert!(read_jsonl("{}").unwrap_err().starts_with("line 1: "));
}
