//! The commands of docs/security.md, run as they are written, with the ports of the test.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::harness::{PROGRAM, Ports};

/// Shell lines in the blocks of a page, in their order.
fn shell_lines(page: &str) -> String {
    let blocks = page.split("```sh\n").skip(1);
    blocks.filter_map(|block| block.split("```").next()).collect()
}

#[test]
fn the_commands_make_a_cluster_that_takes_only_its_certificates() {
    testkit::reset_ignored_signals().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(root.join("docs/security.md")).unwrap();
    let ports = Ports::claim(9).unwrap();
    let port = |n: u16| ports.addr(n).rsplit_once(':').unwrap().1.to_owned();
    let mark = |n: u16| format!("<port {n}>");
    let mut lines = shell_lines(&page);
    // All ports of the page become marks first, because a new port may contain a port of the page.
    for (n, family) in (0..).zip(["700", "710", "744"]) {
        for member in 1..=3 {
            lines = lines.replace(&format!("{family}{member}"), &mark(3 * n + member - 1));
        }
        // The loop over the nodes takes each node's port from an array.
        lines = lines.replace(&format!("{family}$n"), &format!("${{p{family}[$n]}}"));
    }
    for n in 0..9 {
        lines = lines.replace(&mark(n), &port(n));
    }
    let arrays: String = (0..).zip(["700", "710", "744"]).fold(String::new(), |text, (n, family)| {
        text + &format!("p{family}=(0 {} {} {})\n", port(3 * n), port(3 * n + 1), port(3 * n + 2))
    });
    let without =
        format!("curl -s --cacert certs/ca.pem https://localhost:{}/v1/locks; echo \"curl ended with $?\"\n", port(6));
    let denied = "zlock get / --certificate certs/client-operator.pem --key certs/client-operator-key.pem; echo \"get ended with $?\"\n";
    // A voter that is late with an answer is not counted on until its next one.
    let list = lines.lines().find(|line| line.starts_with("zlock member list ")).unwrap();
    let counted = format!("until {list} | grep 'one voter may fail'; do sleep 0.1; done\n");
    let script =
        format!("set -eu\ntrap 'kill $(jobs -p); wait' EXIT\n{arrays}{lines}set +e\n{without}{denied}{counted}");
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    symlink(PROGRAM, bin.join("zlock")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("timeout");
    command.args(["60", "bash", "-c", &script]).current_dir(dir.path()).env("PATH", path);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let has_all = [
        "the lock is held",
        "one voter may fail",
        "with TLS, 0 without",
        "super:lK75jTNcA+U9vtVEw5vB51mj/w4=",
        "curl ended with 56",
        "get ended with 1",
    ];
    for part in has_all {
        assert!(stdout.contains(part), "{part}:\n{stdout}\n{stderr}");
    }
}
