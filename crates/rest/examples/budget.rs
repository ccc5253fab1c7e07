//! Runs operations from the HTTP router down to the synced log and back, on one node in one
//! process, for `.ci/budget` to count their instructions. `budget write 1000` sets 100 bytes of
//! data 1,000 times; `budget lock-cycle 1000` acquires and releases a lock 1,000 times.

use std::net::TcpListener;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use replica::{Config, Consistency, Member, Replica};
use rest::{RestConfig, router};
use tower::ServiceExt as _;

/// HTTP router of the node, and the key of one open session, which every request sends.
struct Door {
    router: Router,
    session: String,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(workload), Some(Ok(count))) = (arguments.first(), arguments.get(1).map(|count| count.parse::<u32>()))
    else {
        eprintln!("usage: budget write|lock-cycle COUNT");
        std::process::exit(2);
    };
    let dir = tempfile::tempdir().expect("there is room for temporary files");
    // One thread makes the order of steps, and so the count, the same in every run.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(async {
        let door = Door::open(dir.path()).await;
        measured(&door, workload, count).await;
    });
}

/// Marks the point where Callgrind starts counting; see `.ci/budget`.
#[inline(never)]
fn begin() {
    std::hint::black_box(());
}

async fn measured(door: &Door, workload: &str, count: u32) {
    begin();
    for number in 0..count {
        match workload {
            "write" => door.write().await,
            _ => door.lock_cycle(number).await,
        }
    }
}

/// Returns a node configuration with few periodic tasks. The number of times that such tasks run in
/// one measurement depends on the machine's speed, and would change the count of instructions.
fn nearly_timeless() -> Config {
    let hour = 3_600_000;
    Config {
        heartbeat_ms: hour,
        election_timeout_min_ms: 7 * hour,
        election_timeout_max_ms: 8 * hour,
        tick_ms: 1_000,
        ..Config::default()
    }
}

impl Door {
    async fn open(dir: &std::path::Path) -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let peer_addr = listener.local_addr().expect("it is bound").to_string();
        let members = vec![Member { id: 1, peer_addr, http_addr: String::new() }];
        let config = Config { members, data_dir: dir.join("data"), free_disk_min_bytes: 0, ..nearly_timeless() };
        let replica = Replica::start_on(config, listener).await.expect("the node starts");
        let soon = || tokio::time::Instant::now() + Duration::from_secs(30);
        while replica.read(Consistency::Linearizable, soon()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut door = Door { router: router(replica, RestConfig::default()), session: String::new() };
        let opened = door.call(Method::POST, "/v1/sessions", None, Body::from("{\"timeout\":\"5m\"}")).await;
        door.session = field(&opened, "session_key");
        // The lock's directory is created as a persistent znode. A container could be removed
        // between two cycles, depending on time.
        for znode in ["own", "own-lock"] {
            door.call(Method::POST, &format!("/v1/znodes/{znode}"), None, Body::empty()).await;
        }
        door
    }

    async fn write(&self) {
        self.call(Method::PUT, "/v1/znodes/own", None, Body::from([b'x'; 100].as_slice())).await;
    }

    async fn lock_cycle(&self, number: u32) {
        let key = format!("00000000-0000-4000-8000-{number:012x}");
        let held = self.call(Method::POST, "/v1/locks/own-lock?wait=30s", Some(&key), Body::empty()).await;
        let ticket = field(&held, "ticket");
        self.call(Method::DELETE, &format!("/v1/tickets{ticket}"), None, Body::empty()).await;
    }

    async fn call(&self, method: Method, path: &str, key: Option<&str>, body: Body) -> String {
        let mut request = Request::builder().method(method).uri(path).header("zlock-session-key", &self.session);
        if self.session.is_empty() {
            request.headers_mut().expect("the parts are valid").clear();
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(body).expect("the parts are valid");
        let response = self.router.clone().oneshot(request).await.expect("a router has no errors");
        let status = response.status();
        let body = response.into_body().collect().await.expect("the body is whole").to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        assert!(matches!(status, StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT), "{status}: {text}");
        text
    }
}

/// Returns the text of a field of a flat JSON object.
fn field(json: &str, name: &str) -> String {
    let value = json.split_once(&format!("\"{name}\":\"")).and_then(|(_, rest)| rest.split_once('"'));
    value.map(|(value, _)| value.to_owned()).expect("the answer has the field")
}
