//! `cluster/local.sh`: its output about nodes that serve, and about a node that ended at once.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::harness::{PROGRAM, Ports};

/// Directory with the configuration files of three nodes, which have free ports. Dropping the value
/// stops the nodes that run.
struct Local {
    dir: TempDir,
    _ports: Ports,
}

impl Local {
    fn new() -> Local {
        let (dir, ports) = (tempfile::tempdir().unwrap(), Ports::claim(16).unwrap());
        let member = |id: u16| {
            let (peer, http) = (ports.addr(id * 2), ports.addr(id * 2 + 1));
            format!("    {{ id = {id}, peer_addr = \"{peer}\", http_addr = \"{http}\" }},\n")
        };
        let members = [1, 2, 3].map(member).concat();
        for id in 1..=3 {
            let data_dir = dir.path().join(format!("data{id}"));
            let text = format!(
                "node.id = {id}\nnode.data_dir = {data_dir:?}\ndisk.free_bytes_min = \"1MiB\"\nnode.members = [\n{members}]\n"
            );
            std::fs::write(dir.path().join(format!("node{id}.toml")), text).unwrap();
        }
        Local { dir, _ports: ports }
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> (bool, String) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cluster/local.sh");
        let mut command = Command::new("bash");
        command.arg(script).args(arguments).env("ZLOCK", program);
        command.env("ZLOCK_CLUSTER", self.dir.path()).env("ZLOCK_RUN", self.dir.path().join("run"));
        let Output { status, stdout, stderr } = command.output().unwrap();
        (status.success(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let (stopped, told) = self.run(Path::new(PROGRAM), &["stop"]);
        eprintln!("{stopped}: {told}");
    }
}

#[test]
fn the_script_waits_until_the_nodes_are_ready_and_reports_one_that_has_died() {
    let local = Local::new();
    let program = PathBuf::from(PROGRAM);
    // The first node alone runs, and waits for others.
    let (started, told) = local.run(&program, &["start", "1"]);
    assert!(started && told.contains("the cluster serves when the others do too"), "{told}");
    let (started, told) = local.run(&program, &["start"]);
    assert!(started && told.contains("node 1 runs already") && told.contains("the nodes are ready"), "{told}");
    let (stopped, told) = local.run(&program, &["stop", "2"]);
    assert!(stopped && told.contains("node 2 is stopped"), "{told}");

    let config = local.dir.path().join("node2.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}heart_beat = 5\n")).unwrap();
    let (started, told) = local.run(&program, &["start", "2"]);
    assert!(!started, "{told}");
    assert!(told.contains("node 2 has ended. The end of its log, ") && told.contains("run/node2.log"), "{told}");
    assert!(told.contains("unknown key `heart_beat`; did you mean `raft.heartbeat_interval`?"), "{told}");
}
