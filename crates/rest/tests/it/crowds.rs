//! Many requests at once, from one address or from slow senders, while others must be served.

use std::net::SocketAddr;

use axum::body::Body;
use axum::http::{Method, Request};
use replica::Bound;
use rest::RestConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::node::{Node, PATIENCE, number};

async fn serve(config: RestConfig) -> (Node, SocketAddr) {
    let node = Node::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(rest::serve(listener, node.replica.clone(), config, std::future::pending()));
    (node, addr)
}

/// Connects from the address 127.0.0.`last`, so that the server sees another client address. Every
/// address of 127.0.0.0/8 is on this machine.
async fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

async fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let read = async {
        while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                break;
            }
        }
    };
    timeout(PATIENCE, read).await.expect("an answer in time");
    String::from_utf8_lossy(&bytes).into_owned()
}

const WRITE: &str = "POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 17\r\n\r\n{\"timeout\":\"30s\"}";
const WATCH: &str = "GET /v1/znodes/watched?watch=data&wait=60s HTTP/1.1\r\nhost: localhost\r\n\r\n";
const LOOK: &str = "HEAD /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// 64 clients announce bodies of 4 MiB, 210 more send bodies in chunks, and each sends one byte of
/// its body. Memory is counted by the bytes that were sent, so writes of other clients must
/// succeed.
#[tokio::test]
async fn bodies_that_are_announced_and_do_not_come_delay_no_write() {
    let (_node, addr) = serve(RestConfig::default()).await;
    let mut stalled = Vec::new();
    let announced = "POST /v1/txn HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4194304\r\n\r\n{";
    let chunked = "POST /v1/txn HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n";
    for number in 0..64 + 210 {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(if number < 64 { announced } else { chunked }.as_bytes()).await.unwrap();
        stalled.push(stream);
    }
    // The node accepts connections in the order in which they come: when it answers the last one,
    // it has read from all of them.
    for _ in 0..3 {
        let answer = ask(&mut TcpStream::connect(addr).await.unwrap(), WRITE).await;
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_comes_slowly_gives_way_to_one_that_comes() {
    let config = RestConfig { bodies_bytes_max: 100 << 10, ..RestConfig::default() };
    let (node, addr) = serve(config).await;
    let mut slow = connect_from(2, addr).await;
    let head = "POST /v1/znodes/slow HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99000\r\n\r\n";
    slow.write_all(format!("{head}{}", "x".repeat(90_000)).as_bytes()).await.unwrap();
    let body = "y".repeat(60_000);
    let request = format!(
        "POST /v1/znodes/a?mode=persistent-sequential HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n{body}"
    );
    // The other writes are repeated until the slow body is so long that there is no room for both.
    let mut given_up = Box::pin(async {
        let mut answer = String::new();
        let _ = slow.read_to_string(&mut answer).await;
        answer
    });
    let honest = async {
        loop {
            let answer = ask(&mut TcpStream::connect(addr).await.unwrap(), &request).await;
            assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
            tokio::task::yield_now().await;
        }
    };
    let given_up = async {
        tokio::select! {
            given_up = &mut given_up => given_up,
            () = honest => unreachable!("it goes on"),
        }
    };
    let given_up = timeout(PATIENCE, given_up).await.expect("the slow one gives way in time");
    assert!(given_up.starts_with("HTTP/1.1 503 ") && given_up.contains("not whole yet"), "{given_up}");
    node.get("/v1/znodes/slow").await.expect_problem(404, "no-node");
}

const RAW: &str = "GET /v1/znodes/a HTTP/1.1\r\nhost: localhost\r\naccept: application/octet-stream\r\n\r\n";

/// Raw data stays in memory for slow readers even after the znode has got other data. Without a
/// bound, 1,200 answers of 1 MB would take 1.2 GB.
#[tokio::test]
async fn raw_data_that_is_not_read_has_a_bound_and_an_address_its_share() {
    // Half of the memory is for answers. An address may take half of that while no other address
    // has bytes counted.
    let config = RestConfig { bodies_bytes_max: 16 << 20, ..RestConfig::default() };
    let (node, addr) = serve(config).await;
    let mut unread = Vec::new();
    let refused = loop {
        assert!(unread.len() < 10, "an address has more than its share");
        let data = unread.len().to_string().repeat(1_000_000);
        let method = if unread.is_empty() { Method::POST } else { Method::PUT };
        node.call(method, "/v1/znodes/a", &[], data.as_bytes()).await;
        let mut stream = connect_from(2, addr).await;
        let answer = ask(&mut stream, RAW).await;
        if !answer.starts_with("HTTP/1.1 200 ") {
            break answer;
        }
        unread.push(stream);
    };
    assert_eq!(unread.len(), 4);
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("retry-after: 1\r\n"), "{refused}");
    for _ in 0..3 {
        let answer = ask(&mut connect_from(3, addr).await, RAW).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "others are served: {answer}");
    }
    drop(unread);
    let again = async {
        while !ask(&mut connect_from(2, addr).await, RAW).await.starts_with("HTTP/1.1 200 ") {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, again).await.expect("what is not kept any more does not count");
}

#[tokio::test]
async fn bodies_that_have_come_have_a_bound() {
    let config = RestConfig { bodies_bytes_max: 1024, ..RestConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    node.post("/v1/znodes/a", "x").await.expect(201);
    let pieces = |sizes: [usize; 2]| {
        let pieces = sizes.map(|size| Ok::<_, std::io::Error>("x".repeat(size)));
        Body::from_stream(futures_util::stream::iter(pieces))
    };
    // A body without an announced length is counted as it comes, too.
    node.send(Request::post("/v1/znodes/b").body(pieces([500, 524])).unwrap()).await.expect(201);
    for body in [pieces([500, 525]), Body::from("x".repeat(1025))] {
        let refused = node.send(Request::post("/v1/znodes/c").body(body).unwrap()).await;
        let refused = refused.expect_problem(503, "unavailable");
        assert_eq!((refused.header("retry-after"), &refused.body["outcome"]), ("1", &"unavailable".into()));
    }
    node.post("/v1/znodes/c", &"x".repeat(1024)).await.expect(201);
}

#[tokio::test]
async fn connections_of_one_address_leave_room_for_others() {
    let config = RestConfig { connections_max: 8, connections_per_address_max: 2, ..RestConfig::default() };
    let (node, addr) = serve(config).await;
    let mut kept = [connect_from(1, addr).await, connect_from(1, addr).await];
    for stream in &mut kept {
        assert!(ask(stream, LOOK).await.starts_with("HTTP/1.1 200 "));
        // A waiting connection is not closed for one of its own address; an idle one would be.
        stream.write_all(WATCH.as_bytes()).await.unwrap();
    }
    let refused = ask(&mut connect_from(1, addr).await, "").await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(ask(&mut connect_from(2, addr).await, LOOK).await.starts_with("HTTP/1.1 200 "));
    node.post("/v1/znodes/watched", "x").await.expect(201);
    assert!(ask(&mut kept[0], "").await.starts_with("HTTP/1.1 200 "), "a connection that waits stays");

    // A proxy stands for many clients.
    let exempt = "127.0.0.1".parse().unwrap();
    let config = RestConfig { connections_max: 4, connections_per_address_max: 1, exempt, ..RestConfig::default() };
    let (_node, addr) = serve(config).await;
    let mut many = Vec::new();
    for _ in 0..4 {
        let mut stream = connect_from(1, addr).await;
        assert!(ask(&mut stream, LOOK).await.starts_with("HTTP/1.1 200 "));
        many.push(stream);
    }
}

#[tokio::test]
async fn silent_connections_do_not_shut_the_door() {
    let config = RestConfig { connections_max: 4, connections_per_address_max: 4, ..RestConfig::default() };
    let (_node, addr) = serve(config).await;
    let mut known = connect_from(2, addr).await;
    assert!(ask(&mut known, LOOK).await.starts_with("HTTP/1.1 200 "));
    let mut silent = Vec::new();
    for number in 10..13 {
        let mut stream = connect_from(number, addr).await;
        // A head without its body is an incomplete request.
        let head = b"PUT /v1/znodes/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let mut begin = [0; 12];
        timeout(PATIENCE, stream.read_exact(&mut begin)).await.expect("it is asked for the body").unwrap();
        assert_eq!(&begin, b"HTTP/1.1 100");
        silent.push(stream);
    }
    // Room is made for another client of an address that has a connection already.
    assert!(ask(&mut connect_from(2, addr).await, LOOK).await.starts_with("HTTP/1.1 200 "), "they give way");
    for number in 20..70 {
        let mut stream = connect_from(number, addr).await;
        // An incomplete head counts as no request.
        let _ = stream.write_all(if number % 2 == 0 { b"" } else { b"GET /livez HT" }).await;
        silent.push(stream);
    }
    assert!(ask(&mut connect_from(2, addr).await, LOOK).await.starts_with("HTTP/1.1 200 "));
    assert!(ask(&mut known, LOOK).await.starts_with("HTTP/1.1 200 "), "who was heard stays");
}

#[tokio::test]
async fn new_sessions_of_one_address_have_a_rate() {
    let (_node, addr) = serve(RestConfig { session_rate_max: 1, ..RestConfig::default() }).await;
    let mut statuses = Vec::new();
    for _ in 0..30 {
        let answer = ask(&mut connect_from(1, addr).await, WRITE).await;
        statuses.push(answer[9..12].to_owned());
        if answer.starts_with("HTTP/1.1 429 ") {
            assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
        }
    }
    let refused = statuses.iter().filter(|status| *status == "429").count();
    assert!(refused > 0 && statuses[..10].iter().all(|status| status == "201"), "{statuses:?}");
    assert!(ask(&mut connect_from(2, addr).await, WRITE).await.starts_with("HTTP/1.1 201 "));
}

#[tokio::test]
async fn sessions_of_one_address_leave_room_for_others() {
    let exempt = "127.0.0.3".parse().unwrap();
    let node = Node::start_with(RestConfig::default(), |config| config.limits.sessions_per_address_max = 2).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let config = RestConfig { exempt, ..RestConfig::default() };
    tokio::spawn(rest::serve(listener, node.replica.clone(), config, std::future::pending()));
    let open = async |last| {
        let close = WRITE.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        let mut stream = connect_from(last, addr).await;
        stream.write_all(close.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer in time").unwrap();
        answer
    };
    let opened = open(1).await;
    assert!(opened.starts_with("HTTP/1.1 201 ") && open(1).await.starts_with("HTTP/1.1 201 "));
    let refused = open(1).await;
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("TooManySessions"), "{refused}");
    let counts = node.replica.status().counts;
    let refused = [Bound::SessionsOfAddress, Bound::Sessions].map(|bound| counts.refused(bound));
    assert_eq!(refused, [1, 0]);
    assert!(open(2).await.starts_with("HTTP/1.1 201 "));
    for _ in 0..3 {
        assert!(open(3).await.starts_with("HTTP/1.1 201 "), "the address of a proxy");
    }
    // Only the session itself may see its client's address.
    let body: serde_json::Value = serde_json::from_str(opened.split_once("\r\n\r\n").unwrap().1).unwrap();
    let uri = format!("/v1/sessions/{}", body["session"]);
    let own = node.in_session(body["session_key"].as_str().unwrap(), axum::http::Method::GET, &uri).await.expect(200);
    assert_eq!(
        (own.body["client"]["address"].as_str().unwrap(), number(&own, "session")),
        ("127.0.0.1", body["session"].as_u64().unwrap())
    );
    assert_eq!(node.get(&uri).await.expect(200).body.get("client"), None);
}

/// A digest walks over the whole state, which keeps a core busy. So a node computes one only for
/// the super user, and for programs on its machine.
#[tokio::test]
async fn a_digest_of_the_state_is_for_operators() {
    let super_digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned();
    let node = Node::start_with(RestConfig { super_digest, ..RestConfig::default() }, |_| {}).await;
    node.get("/v1/cluster?digest=true").await.expect_problem(403, "no-auth");
    let get = async || {
        let headers = [("authorization", "Basic c3VwZXI6dGVzdA==")];
        node.call(axum::http::Method::GET, "/v1/cluster?digest=true", &headers, b"").await.expect(200)
    };
    let (first, second) = (get().await, get().await);
    assert_eq!(first.body["state"], second.body["state"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(rest::serve(listener, node.replica.clone(), RestConfig::default(), std::future::pending()));
    let local = "GET /v1/cluster?digest=true HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert!(ask(&mut TcpStream::connect(addr).await.unwrap(), local).await.starts_with("HTTP/1.1 200 "));
}
