//! Answers to wrong requests and wrong command lines, compared with golden texts in `refusals/`.
//!
//! Each text names the fault, the intended word if it can be guessed, and the remedy.
//! `UPDATE_GOLDENFILES=1 tests/run refusals` writes the texts anew; check the changes with `git
//! diff`.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use goldenscript::Runner;
use serde_json::Value;

use crate::harness::{Cluster, Options, PROGRAM};

/// First header of a request with a JSON body.
const JSON: &str = "Content-Type: application/json";

struct Door {
    cluster: Cluster,
    /// Directory with a link to the program `zlock`, for the shell's `PATH`.
    dir: tempfile::TempDir,
    /// Values of variables: `$NAME` in a golden text stands for the value, which differs from run
    /// to run.
    known: BTreeMap<String, String>,
}

impl Door {
    fn open() -> Door {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let cluster = runtime.block_on(Cluster::start_with(Options { nodes: 1, ..Options::default() }));
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(PROGRAM, dir.path().join("zlock")).unwrap();
        Door { cluster, dir, known: BTreeMap::new() }
    }

    /// Sends an HTTP request with these bytes: `line` is the first line without its version.
    /// Returns the status, and the body as JSON.
    fn request(&self, line: &str, headers: &[String], body: &str) -> (u16, Value) {
        let addr = self.cluster.endpoint(1);
        let mut text = format!("{line} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n");
        for header in headers {
            text += &format!("{header}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // Bytes of a request that the node does not read reset the connection, behind the answer.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{line}: {answer:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    /// Runs a line in a shell that finds `zlock` and the node's address. Returns the exit code and
    /// the output.
    fn shell(&self, line: &str) -> String {
        let path = format!("{}:{}", self.dir.path().display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 2>&1; {line}")]).env("PATH", path).env("XDG_CONFIG_HOME", self.dir.path());
        shell.env("ZLOCK_ENDPOINTS", self.cluster.endpoints().join(",")).stdin(Stdio::null());
        let output = shell.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        format!("{} {}", output.status.code().unwrap(), lines.join("\n"))
    }

    fn filled(&self, text: &str) -> String {
        self.known.iter().rev().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${name}"), value))
    }

    /// Replaces the parts of a text that differ from run to run.
    fn plain(&self, text: &str) -> String {
        let mut text = text.replace(self.cluster.endpoint(1), "NODE");
        for (name, value) in self.known.iter().rev() {
            text = text.replace(value, &format!("${name}"));
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let (mut plain, mut before) = (String::new(), "");
        for word in text.split_inclusive(' ') {
            let bare = word.trim_end_matches([' ', ',', ';', ')', '}', '\n']);
            let number = bare.rsplit([':', '(']).next().unwrap();
            let is_number = number.starts_with(|c: char| c.is_ascii_digit());
            let shown = match before {
                "for " if is_number && text.contains("held by session") => "TIME",
                "pid " => "PID",
                _ if bare == host.trim_end() => "HOST",
                _ if is_number && number.len() > 15 => "NUMBER",
                _ => number,
            };
            plain += &word.replacen(number, shown, usize::from(shown != number));
            before = word;
        }
        plain
    }
}

impl Runner for Door {
    type Command = goldenscript::Command;

    fn run(&mut self, command: &goldenscript::Command, _: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        let output = match command.name.as_str() {
            // The command opens a session, which is `$NAME` from now on.
            "session" => {
                let name = args.next_pos().ok_or("session NAME")?.to_owned();
                let (status, answer) = self.request("POST /v1/sessions", &[JSON.into()], r#"{"timeout":"60s"}"#);
                let secret = answer["session_key"].as_str().ok_or("no session")?.to_owned();
                self.known.insert(format!("{name}_ID"), secret.split('.').next().unwrap().to_owned());
                self.known.insert(name, secret);
                status.to_string()
            }
            // The command has a request's first line, then its headers. With `ticket=NAME`, the
            // ticket of its answer is `$NAME` from now on.
            "http" => {
                let (body, ticket) = (args.take_key("body").unwrap_or_default(), args.take_key("ticket"));
                let line = self.filled(args.next_pos().ok_or("http LINE [HEADER..] [body=TEXT] [ticket=NAME]")?);
                let mut headers = Vec::new();
                while let Some(header) = args.next_pos() {
                    headers.push(self.filled(header));
                }
                let (status, answer) = self.request(&line, &headers, body);
                if let Some(name) = ticket {
                    let ticket = answer["ticket"].as_str().ok_or("no ticket")?;
                    self.known.insert(name.to_owned(), ticket.to_owned());
                }
                let slug = answer["type"].as_str().map(|uri| uri.trim_start_matches("urn:zlock:problem:"));
                let detail = answer["detail"].as_str();
                slug.zip(detail).map_or(status.to_string(), |(slug, detail)| format!("{status} {slug}: {detail}"))
            }
            "sh" => {
                let line = args.next_pos().ok_or("sh LINE")?;
                self.shell(&self.filled(line))
            }
            other => return Err(format!("no command is called {other}").into()),
        };
        args.reject_next()?;
        Ok(self.plain(&output))
    }
}

fn play(script: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/refusals");
    goldenscript::run(&mut Door::open(), dir.join(script)).unwrap();
}

#[test]
fn wrong_requests_are_answered_in_words() {
    play("http");
}

#[test]
fn wrong_command_lines_are_answered_in_words() {
    play("cli");
}
