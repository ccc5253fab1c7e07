//! Log lines of the server about clients that it disconnects or refuses.

use jute::{ConnectRequest, MultiOp, PathVersion, Request, SetWatches2};
use testkit::Lines;
use tracing::Level;
use wire::WireConfig;

use crate::client::{Client, greet};
use crate::node::Node;

#[tokio::test]
async fn clients_that_will_come_back_with_the_same_have_a_line_now_and_then() {
    let lines = Lines::of("wire", Level::WARN).gather();
    let config = WireConfig { packet_bytes_max: 1_000, ..WireConfig::default() };
    let node = Node::start_with(config, |config| config.limits.ops_max = 2).await;

    // The watches do not fit into one packet, so the client is disconnected each time that it
    // reconnects.
    let mut client = node.client().await;
    let session = format!("session={}", client.session);
    let exist: Vec<String> = (0..200).map(|number| format!("/watched-{number}")).collect();
    for _ in 0..3 {
        client.send(&Request::SetWatches2(SetWatches2 { exist: exist.clone(), ..SetWatches2::default() })).await;
        assert_eq!(client.packet().await, None);
        client = Client::resume(node.addr, &client).await;
    }
    let told = lines.with(&session);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("zookeeper.packet_bytes_max") && told[0].contains("addr=127.0.0.1"), "{told:?}");

    // This multi has too many operations.
    let check = MultiOp::Check(PathVersion { path: "/".into(), version: -1 });
    for _ in 0..2 {
        assert_eq!(client.call(Request::Multi(vec![check.clone(); 3])).await, Err(-8));
    }
    let told = lines.with("ops_max");
    assert!(told.len() == 1 && told[0].contains("ops=3 ops_max=2") && told[0].contains(&session), "{told:?}");

    // This client has seen a zxid of another cluster.
    let ahead = ConnectRequest { last_zxid_seen: i64::MAX, timeout_ms: 9_000, ..ConnectRequest::default() };
    assert!(greet(node.addr, &ahead).await.2.is_none());
    let told = lines.with(&format!("seen={}", i64::MAX));
    assert!(told.len() == 1 && told[0].contains("addr=127.0.0.1"), "{told:?}");
}
