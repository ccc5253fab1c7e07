//! Entries are written as Jepsen, Knossos and Elle read them.

use jepsen::history::{Entry, Kind, NemesisTag, Process, read_jsonl};
use serde_json::json;

fn entry() -> Entry {
    Entry {
        index: 4,
        time: 120,
        process: Process::Client(7),
        kind: Kind::Ok,
        f: "cas".into(),
        value: json!(["k", [1, 2]]),
        error: None,
        node: Some(3),
        zxid: Some(99),
    }
}

#[test]
fn an_operation_is_a_map_of_keywords() {
    let text = "{:type :ok, :f :cas, :value [\"k\" [1 2]], :process 7, :time 120, :index 4, :node 3, :zxid 99}";
    assert_eq!(entry().to_edn(), text);
    let nemesis = Entry {
        process: Process::Nemesis(NemesisTag::Nemesis),
        kind: Kind::Info,
        f: "start-kill".into(),
        value: json!({"nodes": [1], "is_a": null, "why": "so \"it\" is\n"}),
        node: None,
        zxid: None,
        ..entry()
    };
    let text = "{:type :info, :f :start-kill, :value {:is-a nil, :nodes [1], :why \"so \\\"it\\\" is\\n\"}, :process :nemesis, :time 120, :index 4}";
    assert_eq!(nemesis.to_edn(), text);
}

#[test]
fn json_lines_read_back() {
    let line = serde_json::to_string(&entry()).unwrap();
    assert_eq!(read_jsonl(&format!("{line}\n\n{line}\n")).unwrap(), [entry(), entry()]);
    assert!(read_jsonl("{}").unwrap_err().starts_with("line 1: "));
}
