//! Connections over real sockets: slow clients, bounds on connections, and clients that go away.

use std::time::Duration;

use rest::{Entrances, RestConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::node::{Node, PATIENCE, number, text};

/// A node whose HTTP server listens on a port.
struct Server {
    node: Node,
    addr: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start(config: RestConfig) -> Server {
        let node = Node::start().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            // Dropping the sender stops the server, too.
            let _ = stopped.await;
        };
        let task = tokio::spawn(rest::serve(listener, node.replica.clone(), config, shutdown));
        Server { node, addr, stop, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    /// Waits until the server has noticed the ends of earlier connections, and so serves a new one.
    async fn until_there_is_room(&self) {
        let served = timeout(PATIENCE, async {
            let request = "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            while !read_to_end(self.send(request).await).await.starts_with("HTTP/1.1 200") {}
        });
        served.await.expect("room in time");
    }

    async fn send(&self, request: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }
}

const LOOK: &str = "HEAD /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Reads until the server closes the connection.
async fn read_to_end(mut stream: impl AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    // A reset after the answer counts as a close, too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the server closes in time");
    String::from_utf8(bytes).unwrap()
}

/// Reads the next answer's head on a connection that stays open.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(timeout(PATIENCE, stream.read_u8()).await.expect("an answer in time").unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

fn acquire(session: &str, lock_and_query: &str) -> String {
    format!("POST /v1/locks{lock_and_query} HTTP/1.1\r\nhost: localhost\r\nzlock-session-key: {session}\r\n\r\n")
}

#[tokio::test]
async fn requests_are_served_one_after_another_on_one_connection() {
    let server = Server::start(RestConfig::default()).await;
    let mut stream = server.connect().await;
    for _ in 0..3 {
        stream.write_all(b"HEAD /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("zlock-node: 1\r\n"), "{head}");
    }
    let close = server.send("GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    assert!(read_to_end(close).await.ends_with("{\"live\":true}\n"));
}

#[tokio::test]
async fn pipelined_old_and_absolute_requests_are_served() {
    let server = Server::start(RestConfig::default()).await;
    let last = "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let five = read_to_end(server.send(&format!("{}{last}", LOOK.repeat(4))).await).await;
    assert_eq!(five.matches("HTTP/1.1 200 OK\r\n").count(), 5, "{five}");
    for request in ["GET /livez HTTP/1.0\r\n\r\n", &last.replace("/livez", "http://localhost/livez")] {
        let answer = read_to_end(server.send(request).await).await;
        assert!(answer.contains(" 200 OK\r\n") && answer.ends_with("{\"live\":true}\n"), "{request}: {answer}");
    }
}

/// A proxy's fence check with a `Content-Length` and no body. With `proxy_pass_request_body off`,
/// nginx's `auth_request` copies that header from its client's request.
#[tokio::test]
async fn a_question_of_a_proxy_is_answered_without_the_body_that_it_tells_the_length_of() {
    let server = Server::start(RestConfig::default()).await;
    for question in ["GET /v1/fence?path=/l&fencing_token=1", "PUT /v1/fence/invoices/7"] {
        let head = format!("{question} HTTP/1.1\r\nhost: localhost\r\nzlock-lock: /l\r\ncontent-length: 4\r\n\r\n");
        let answer = read_to_end(server.send(&head).await).await;
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{question}: {answer}");
    }
}

#[tokio::test]
async fn a_full_house_says_so() {
    let server = Server::start(RestConfig { connections_max: 1, ..RestConfig::default() }).await;
    let mut first = server.send(LOOK).await;
    read_head(&mut first).await;
    first.write_all(b"GET /v1/znodes/a?watch=data&wait=60s HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    // The refusal shows the zxid at the moment of the refusal.
    server.node.post("/v1/znodes/b", "").await.expect(201);
    let now = server.node.get("/v1/znodes/b").await.expect(200);
    let refused = read_to_end(server.connect().await).await;
    for name in ["zlock-zxid", "zlock-node", "zlock-leader", "cache-control", "x-content-type-options"] {
        let line = format!("\r\n{name}: {}\r\n", now.header(name));
        assert!(refused.contains(&line), "{line}: {refused}");
    }
    assert!(refused.contains(&format!(r#""zxid":{}}}"#, now.header("zlock-zxid"))), "{refused}");
    assert!(refused.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{refused}");
    assert!(refused.contains("\r\nconnection: close\r\n") && refused.ends_with("}\n"), "{refused}");
    assert!(refused.contains("retry-after: 1\r\n") && refused.contains("too many connections"), "{refused}");
    drop(first);
    server.until_there_is_room().await;
}

#[tokio::test]
async fn an_idle_connection_gives_way_in_a_full_house() {
    let server = Server::start(RestConfig { connections_max: 1, ..RestConfig::default() }).await;
    let mut idle = server.send(LOOK).await;
    read_head(&mut idle).await;
    server.until_there_is_room().await;
    assert_eq!(read_to_end(idle).await, "");
}

#[tokio::test]
async fn a_door_that_drains_serves_on_and_closes_with_each_answer() {
    let server = Server::start(RestConfig { drain_time_ms: 600_000, ..RestConfig::default() }).await;
    let mut kept = server.send(LOOK).await;
    read_head(&mut kept).await;
    server.stop.send(()).unwrap();
    let close = "\r\nconnection: close\r\n";
    // New connections are accepted, and told to use another node.
    let told = timeout(PATIENCE, async {
        loop {
            let mut stream = TcpStream::connect(server.addr).await.unwrap();
            stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
            let head = read_head(&mut stream).await;
            if head.starts_with("HTTP/1.1 503 ") {
                return format!("{head}{}", read_to_end(stream).await);
            }
        }
    });
    let told = told.await.expect("it drains in time");
    assert!(told.contains(close) && told.contains("not ready: draining"), "{told}");
    let mut look = TcpStream::connect(server.addr).await.unwrap();
    look.write_all(b"GET /v1/cluster HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let look = read_to_end(look).await;
    assert!(look.contains(r#""status":"draining""#), "{look}");
    // The next request on an earlier connection is still answered.
    kept.write_all(LOOK.as_bytes()).await.unwrap();
    let answer = read_to_end(kept).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(close), "{answer}");
    server.task.abort();

    let Server { stop, task, .. } = Server::start(RestConfig { drain_time_ms: 50, ..RestConfig::default() }).await;
    stop.send(()).unwrap();
    timeout(PATIENCE, task).await.expect("it ends when its time is over").unwrap().unwrap();
}

#[tokio::test]
async fn a_node_that_stops_after_a_delay_is_not_ready_and_ends_no_connection_before() {
    let config = RestConfig { drain_delay_ms: 600_000, drain_time_ms: 600_000, ..RestConfig::default() };
    let server = Server::start(config).await;
    let mut kept = server.send(LOOK).await;
    read_head(&mut kept).await;
    server.stop.send(()).unwrap();
    let told = timeout(PATIENCE, async {
        loop {
            // All requests go over the earlier connection.
            kept.write_all(b"HEAD /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
            let head = read_head(&mut kept).await;
            assert!(!head.contains("connection: close"), "{head}");
            if head.starts_with("HTTP/1.1 503 ") {
                return;
            }
        }
    });
    told.await.expect("it is told in time");
    kept.write_all(LOOK.as_bytes()).await.unwrap();
    assert!(read_head(&mut kept).await.starts_with("HTTP/1.1 200 OK\r\n"));
    server.task.abort();
}

#[tokio::test]
async fn operators_come_in_by_their_socket_also_when_the_door_is_full_and_are_as_many_as_it_takes() {
    let (node, dir) = (Node::start().await, tempfile::tempdir().unwrap());
    let path = dir.path().join("admin.sock");
    let (tcp, admin) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), UnixListener::bind(&path).unwrap());
    let addr = tcp.local_addr().unwrap();
    let entrances = Entrances { listeners: tcp.into(), admin: Some(admin) };
    let config = RestConfig { connections_max: 1, ..RestConfig::default() };
    tokio::spawn(rest::serve(entrances, node.replica.clone(), config, std::future::pending()));
    // A waiting client has the only connection that `connections_max` allows.
    let mut waiting = TcpStream::connect(addr).await.unwrap();
    let wait = "GET /v1/znodes?watch=data&since=0&wait=10m HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let since = wait.replace("since=0", &format!("since={}", node.replica.state().last_zxid()));
    waiting.write_all(since.as_bytes()).await.unwrap();
    node.until_watches(1).await;
    // More connections than the admin socket may have: silent ones are closed for new ones.
    let mut silent = Vec::new();
    for _ in 0..70 {
        silent.push(UnixStream::connect(&path).await.unwrap());
    }
    for (route, status) in
        [("/v1/admin/drain", "200 OK"), ("/v1/cluster", "200 OK"), ("/v1/admin/none", "404 Not Found")]
    {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        let request = format!("GET {route} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_to_end(stream).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{route}: {answer}");
    }
    // The oldest silent connections were closed.
    assert_eq!(read_to_end(silent.swap_remove(0)).await, "");
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_cut_off() {
    let config = RestConfig { connections_max: 1, write_timeout_ms: 100, ..RestConfig::default() };
    let server = Server::start(config).await;
    server.node.post("/v1/znodes/large", &"x".repeat(1_000_000)).await.expect(201);
    // The answers are longer than the sockets' buffers.
    let requests = "GET /v1/znodes/large HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(64);
    let stalled = server.send(&requests).await;
    server.until_there_is_room().await;
    drop(stalled);
}

#[tokio::test]
async fn a_long_answer_that_was_taken_makes_room_for_the_next() {
    let server = Server::start(RestConfig { bodies_bytes_max: 300 << 10, ..RestConfig::default() }).await;
    server.node.post("/v1/znodes/long", &"x".repeat(100_000)).await.expect(201);
    let mut stream = server.connect().await;
    for _ in 0..3 {
        stream.write_all(b"GET /v1/znodes/long HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let head = read_head(&mut stream).await;
        let (_, length) = head.split_once("content-length: ").expect("a length");
        let mut body = vec![0; length.lines().next().unwrap().parse().unwrap()];
        timeout(PATIENCE, stream.read_exact(&mut body)).await.expect("an answer in time").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body.len() > 100_000, "{head}");
    }
}

#[tokio::test]
async fn slow_heads_and_idle_connections_are_closed() {
    let config = RestConfig { header_read_timeout_ms: 100, idle_timeout_ms: 100, ..RestConfig::default() };
    let server = Server::start(config).await;
    // One connection has sent nothing, one half a head, and one is idle after an answer.
    assert_eq!(read_to_end(server.connect().await).await, "");
    let half = read_to_end(server.send("GET /livez HTTP/1.1\r\nhost:").await).await;
    assert!(half.is_empty() || half.starts_with("HTTP/1.1 408"), "{half}");
    let idle = read_to_end(server.send("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await).await;
    assert!(idle.starts_with("HTTP/1.1 200 OK"), "{idle}");
    // A request that waits is not idle.
    let wait = "GET /v1/znodes/a?watch=data&wait=300ms HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let waited = read_to_end(server.send(wait).await).await;
    assert!(waited.starts_with("HTTP/1.1 200 OK"), "{waited}");
}

#[tokio::test]
async fn half_a_body_is_given_up() {
    let server = Server::start(RestConfig { body_read_timeout_ms: 100, ..RestConfig::default() }).await;
    let request = "POST /v1/znodes/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nhalf";
    let answer = read_to_end(server.send(request).await).await;
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout"), "{answer}");
    assert!(answer.contains("request-timeout"), "{answer}");
}

#[tokio::test]
async fn a_head_that_is_far_too_large_is_cut_off() {
    let server = Server::start(RestConfig::default()).await;
    let many: String = (0..400).map(|at| format!("x-{at}: 1\r\n")).collect();
    let answer = read_to_end(server.send(&format!("GET /livez HTTP/1.1\r\n{many}\r\n")).await).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let long = "a".repeat(20_000);
    let answer = read_to_end(server.send(&format!("GET /{long} HTTP/1.1\r\nconnection: close\r\n\r\n")).await).await;
    assert!(answer.starts_with("HTTP/1.1 414"), "{answer}");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_answered_while_it_comes() {
    let server = Server::start(RestConfig::default()).await;
    let body = "x".repeat(4_000_000);
    let request =
        format!("POST /v1/znodes/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut stream = server.send(&request).await;
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 413"));
    // A client that sends `Expect` is refused at once, and does not send the body.
    let asks =
        "POST /v1/znodes/a HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 4000000\r\n\r\n";
    assert!(read_head(&mut server.send(asks).await).await.starts_with("HTTP/1.1 413"));
}

#[tokio::test]
async fn a_client_that_goes_leaves_the_queue() {
    let server = Server::start(RestConfig::default()).await;
    let node = &server.node;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/l").await.expect(200);
    let waiting = server.send(&acquire(&second, "/l?wait=20s")).await;
    node.until_contenders("/l", 2).await;
    drop(waiting);
    node.until_contenders("/l", 1).await;
    node.release(&first, text(&held, "ticket")).await.expect(200);
    node.until_contenders("/l", 0).await;
}

#[tokio::test]
async fn a_client_that_sends_no_more_is_answered_unless_it_may_wait() {
    let server = Server::start(RestConfig { body_read_timeout_ms: 500, ..RestConfig::default() }).await;
    let node = &server.node;
    let (first, second) = (node.session().await, node.session().await);
    let last = async |request: &str| {
        let mut stream = server.send(request).await;
        stream.shutdown().await.unwrap();
        read_to_end(stream).await
    };
    let with_body = |head: &str, body: &str| {
        format!(
            "{head} HTTP/1.1\r\nhost: localhost\r\nzlock-session-key: {second}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for (request, answer) in [
        ("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), "200 OK"),
        ("GET /v1/znodes HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), "200 OK"),
        (with_body("POST /v1/znodes/a", "x"), "201 Created"),
        (with_body("POST /v1/locks/other", r#"{"label":"x"}"#), "200 OK"),
        (acquire(&first, "/l"), "200 OK"),
    ] {
        let answered = last(&request).await;
        assert!(answered.starts_with(&format!("HTTP/1.1 {answer}")), "{request}: {answered}");
    }
    // Half a body does not complete the request.
    let half = with_body("POST /v1/znodes/b", "x").replace("length: 1", "length: 2");
    assert!(last(&half).await.starts_with("HTTP/1.1 408"));
    let several = r#"{"locks":[{"path":"/l"},{"path":"/m"}],"wait":"20s"}"#;
    for request in [
        acquire(&second, "/l?wait=20s"),
        with_body("POST /v1/locks/l", r#"{"wait":"20s"}"#),
        with_body("POST /v1/multilocks", several)
            .replace("zlock-session-key", "content-type: application/json\r\nzlock-session-key"),
        "GET /v1/znodes/a?watch=data&wait=20s HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
    ] {
        assert_eq!(last(&request).await, "", "{request}");
    }
    node.until_contenders("/l", 1).await;
}

#[tokio::test]
async fn a_grant_that_was_delivered_is_kept() {
    let server = Server::start(RestConfig::default()).await;
    let node = &server.node;
    let (session, other) = (node.session().await, node.session().await);
    let mut stream = server.send(&acquire(&session, "/l")).await;
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    drop(stream);
    // The log has the withdrawal of another waiter after any withdrawal that the first connection
    // could have caused.
    let waiting = server.send(&acquire(&other, "/l?wait=20s")).await;
    node.until_contenders("/l", 2).await;
    drop(waiting);
    node.until_contenders("/l", 1).await;
    assert_eq!(node.get("/v1/locks/l").await.expect(200).body["holders"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn shutdown_ends_waits_and_withdraws() {
    let Server { node, addr, stop, task } = Server::start(RestConfig::default()).await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/l").await.expect(200);
    let mut waiting = TcpStream::connect(addr).await.unwrap();
    waiting.write_all(acquire(&second, "/l?wait=20s").as_bytes()).await.unwrap();
    let mut watching = TcpStream::connect(addr).await.unwrap();
    watching.write_all(b"GET /v1/znodes/a?watch=data&wait=20s HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    node.until_contenders("/l", 2).await;
    stop.send(()).unwrap();
    for stream in [waiting, watching] {
        let answer = read_to_end(stream).await;
        // A request that the server had not read yet gets no answer.
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503"), "{answer}");
    }
    timeout(Duration::from_secs(10), task).await.expect("it ends in time").unwrap().unwrap();
    let queue = node.get("/v1/locks/l").await.expect(200);
    assert_eq!(number(&queue, "contenders"), 1);
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn shutdown_withdraws_for_clients_that_went_just_before() {
    let Server { node, addr, stop, task } = Server::start(RestConfig::default()).await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/l").await.expect(200);
    let mut waiting = TcpStream::connect(addr).await.unwrap();
    waiting.write_all(acquire(&second, "/l?wait=20s").as_bytes()).await.unwrap();
    node.until_contenders("/l", 2).await;
    drop(waiting);
    drop(stop);
    timeout(PATIENCE, task).await.expect("it ends in time").unwrap().unwrap();
    // The server has ended together with all its background work.
    let queue = node.get("/v1/locks/l").await.expect(200);
    assert_eq!(number(&queue, "contenders"), 1);
}
