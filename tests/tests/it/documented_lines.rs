//! The shell lines of README.md and docs/http-api.md, run as they are written, with the test's
//! ports. Each answer on a page is compared with the real one.

use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::harness::{CLUSTER_ID, Call, Cluster, until};

/// Line printed behind the output of each [`Block`], to tell the outputs apart.
const MARK: &str = "~~~ end of block ~~~";

/// Part of a page's answer that the cluster gives only while all members are well.
const HEALTHY: &str = "\"healthy\":true";

/// Shell lines of a page, and the answer shown behind them.
struct Block {
    line: usize,
    shell: String,
    shown: Option<String>,
}

fn page(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read_to_string(root.join(name)).unwrap()
}

/// Finds the shell blocks of a page, each with the fenced block right behind it.
fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut open, mut after_shell): (Option<(String, String)>, bool) = (None, false);
    for (number, line) in (1..).zip(page.lines()) {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(kind)) => open = Some((kind.to_owned(), String::new())),
            (Some((kind, text)), Some("")) => {
                match (kind.as_str(), found.last_mut()) {
                    ("sh", _) => found.push(Block { line: number, shell: text.clone(), shown: None }),
                    ("json" | "http" | "text", Some(block)) if after_shell => block.shown = Some(text.clone()),
                    _ => {}
                }
                after_shell = kind == "sh";
                open = None;
            }
            (Some((_, text)), _) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => after_shell &= line.is_empty(),
        }
    }
    found
}

/// Replaces the page's first three ports, the HTTP ports of `zlock dev`, with those of the test's
/// cluster.
fn with_ports(page: &str, cluster: &Cluster) -> String {
    let mut page = page.to_owned();
    for (at, endpoint) in cluster.endpoints().iter().enumerate() {
        let (_, port) = endpoint.rsplit_once(':').unwrap();
        page = page.replace(&format!(":{}", 7001 + at), &format!(":{port}"));
    }
    page
}

/// Makes a shell that reads its lines from stdin, and ends at the first line that fails.
fn shell() -> Command {
    let mut command = Command::new("bash");
    command.args(["-eu", "-s"]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

/// Runs blocks in one shell, and gives the output of each.
async fn run(blocks: &[Block]) -> Vec<String> {
    let mut shell = shell().spawn().expect("bash");
    let mut lines = String::new();
    for block in blocks {
        // On a busy machine a member may be silent for so long that it counts as unreachable.
        if block.shown.as_ref().is_some_and(|shown| shown.contains(HEALTHY)) {
            let healthy = format!("curl -s $H/v1/cluster/health | grep -q '{HEALTHY}'");
            lines.push_str(&format!("for n in $(seq 300); do {healthy} && break; sleep 0.1; done\n"));
        }
        lines.push_str(&format!("{}printf '\\n%s\\n' '{MARK}'\n", block.shell));
    }
    shell.stdin.take().unwrap().write_all(lines.as_bytes()).await.unwrap();
    let output = shell.wait_with_output().await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed: Vec<String> = printed.split(MARK).map(|text| text.trim().to_owned()).collect();
    let ended_at = blocks.get(printed.len() - 1).map(|block| block.line);
    assert!(
        output.status.success() && ended_at.is_none(),
        "it ended in the block before line {ended_at:?}: {printed:#?}"
    );
    printed
}

/// Removes the parts of a text that differ from run to run: numbers, ids, the leader's role, and
/// blanks.
fn normal(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let text = text.replace("\"role\":\"leader\"", "\"role\":\"follower\"");
    // `zlock dev` gives its cluster this name.
    let text = text.replace(&format!("\"{CLUSTER_ID}\""), "\"dev\"");
    let is_id = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c) || c == '-';
    let mut normal = String::new();
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        let id = rest.find(|c| !is_id(c)).unwrap_or(rest.len());
        let number = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let length = if id >= 32 { id } else { number };
        if length == 0 {
            normal.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            normal.push('#');
            rest = &rest[length..];
        }
    }
    normal
}

/// Tells whether an answer matches the page. Three dots on the page stand for any text. The page
/// shows only some headers.
fn is_as_shown(shown: &str, printed: &str) -> bool {
    let (head, body) = match shown.split_once("\n\n") {
        Some((head, body)) if shown.starts_with("HTTP/") => (head, body),
        _ => ("", shown),
    };
    let (printed_head, printed_body) = match printed.replace('\r', "").split_once("\n\n") {
        Some((head, body)) if printed.starts_with("HTTP/") => (head.to_owned(), body.to_owned()),
        _ => (String::new(), printed.to_owned()),
    };
    let printed_head: Vec<String> = printed_head.lines().map(normal).collect();
    let heads = head.lines().all(|line| printed_head.contains(&normal(line)));
    let printed_body = normal(&printed_body);
    let mut rest = printed_body.as_str();
    let parts: Vec<String> = body.split("...").map(normal).collect();
    let begins = rest.starts_with(parts[0].as_str());
    let bodies = parts.iter().all(|part| match rest.find(part.as_str()) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    });
    let ends = rest.is_empty() || body.trim_end().ends_with("...");
    heads && begins && bodies && ends
}

async fn runs_and_answers_as_shown(name: &str, blocks_min: usize) {
    answers_as_shown(name, blocks_min, &Cluster::start().await).await;
}

async fn answers_as_shown(name: &str, blocks_min: usize, cluster: &Cluster) {
    let blocks = blocks(&with_ports(&page(name), cluster));
    assert!(blocks.len() >= blocks_min, "{name} has {} blocks", blocks.len());
    assert!(!page(name).contains("\n$ "), "{name} has prompts: its lines cannot be pasted");
    let printed = run(&blocks).await;
    let mut wrong = String::new();
    for (block, printed) in blocks.iter().zip(&printed) {
        if let Some(shown) = &block.shown
            && !is_as_shown(shown, printed)
        {
            wrong.push_str(&format!("{name}:{}: shown:\n{shown}answered:\n{printed}\n\n", block.line));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[tokio::test]
async fn the_lines_of_the_readme_run_as_they_are_written() {
    runs_and_answers_as_shown("README.md", 2).await;
}

#[tokio::test]
async fn the_lines_of_the_http_api_run_as_they_are_written() {
    runs_and_answers_as_shown("docs/http-api.md", 60).await;
}

/// docs/http-api.md names `jq` commands that do the same as its own shell function `field`.
#[tokio::test]
async fn jq_takes_the_same_out_of_an_answer_where_it_is_installed() {
    if Command::new("jq").arg("--version").output().await.is_err() {
        eprintln!("NOT RUN: jq is not installed");
        return;
    }
    let answer = r#"{"state":"held","ticket":"/orders/_c_1-lock-0000000000","fencing_token":17}"#;
    let page = page("docs/http-api.md");
    let field = blocks(&page).into_iter().find(|block| block.shell.contains("field()")).unwrap();
    for (own, theirs) in [("field ticket", "jq -r .ticket"), ("field fencing_token", "jq -r .fencing_token")] {
        let shell = format!("{}echo '{answer}' | {own}\necho '{answer}' | {theirs}\n", field.shell);
        let printed = run(&[Block { line: 0, shell, shown: None }]).await;
        let mut lines = printed[0].lines().skip_while(|line| line.is_empty());
        assert_eq!(lines.next(), lines.next(), "{own}");
    }
}

/// Runs documented shell lines that acquire a lock, while another session holds the lock. Kills the
/// node at which the lines wait, and releases the lock: the lines must then get it.
async fn wait_outlives_its_node(lines: String, lock: &str, cluster: &mut Cluster) {
    let holder = cluster.client(2).open_session(60_000).await;
    let acquire = Call::post(format!("/v1/locks{lock}")).session(&holder).once();
    let held: zlock_client::api::Ticket = cluster.client(2).send(acquire).await.unwrap().json();
    let zlock_client::api::Ticket::Held { ticket, .. } = held else { panic!("{held:?}") };
    let mut shell = shell().spawn().expect("bash");
    shell.stdin.take().unwrap().write_all(lines.as_bytes()).await.unwrap();
    let contenders = async |cluster: &Cluster| {
        let answer = cluster.client(2).send(Call::get(format!("/v1/locks{lock}"))).await.ok()?;
        (answer.status == 200).then(|| answer.json::<zlock_client::api::LockQueue>())
    };
    until("the lines wait", async || contenders(cluster).await.filter(|queue| queue.contenders == 2)).await;
    cluster.kill(1);
    let released = until("a leader is there", async || {
        let release = Call::delete(format!("/v1/tickets{ticket}")).session(&holder);
        cluster.client(2).send(release).await.ok().filter(|answer| answer.status == 200)
    });
    released.await;
    let output = shell.wait_with_output().await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains(r#""state":"held""#), "{printed}");
    let queue = until("the queue is shown", async || contenders(cluster).await).await;
    assert_eq!((queue.contenders, queue.holders.len()), (1, 1), "no ghost stands in the queue");
}

#[tokio::test]
async fn the_wait_of_the_http_api_outlives_the_node_that_it_waits_at() {
    let mut cluster = Cluster::start().await;
    let page = with_ports(&page("docs/http-api.md"), &cluster);
    let all = blocks(&page);
    let wanted = ["field()", "SESSION=$(", "for NODE in"];
    let lines = wanted.map(|part| all.iter().find(|block| block.shell.contains(part)).unwrap().shell.clone());
    wait_outlives_its_node(lines.concat(), "/orders", &mut cluster).await;
}
