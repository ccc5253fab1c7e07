//! Imitation of a node, with answers that a test chooses.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Starts an imitated node. `answer` gets the method and the target of a request, and returns the
/// JSON body of the answer. If its future never ends, the node does not answer. A problem document
/// is sent with its own status. Returns the node's address, and a channel with the method and
/// target of each request.
pub(crate) async fn fake_node<A, F>(answer: A) -> (String, mpsc::UnboundedReceiver<String>)
where
    A: Fn(String) -> F + Clone + Send + 'static,
    F: Future<Output = String> + Send + 'static,
{
    fake_node_with_keys(move |request, _| answer(request)).await
}

/// Starts an imitated node like [`fake_node`]. `answer` is also told whether the request has a
/// session key.
pub(crate) async fn fake_node_with_keys<A, F>(answer: A) -> (String, mpsc::UnboundedReceiver<String>)
where
    A: Fn(String, bool) -> F + Clone + Send + 'static,
    F: Future<Output = String> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let (tell, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connection(stream, tell.clone(), answer.clone()));
        }
    });
    (addr, requests)
}

async fn connection<A, F>(mut stream: TcpStream, tell: mpsc::UnboundedSender<String>, answer: A)
where
    A: Fn(String, bool) -> F,
    F: Future<Output = String>,
{
    let mut seen = Vec::new();
    loop {
        let read = stream.read_buf(&mut seen).await.unwrap_or(0);
        if read == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&seen).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if body.len() < length.unwrap_or(0) {
            continue;
        }
        let request = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
        // The channel is closed when the test has ended.
        let _ = tell.send(request.clone());
        let has_key = head.lines().any(|line| line.starts_with("zlock-session-key"));
        let answer = answer(request, has_key).await;
        let status = answer.split_once(r#""status":"#).and_then(|(_, rest)| rest.get(..3)).unwrap_or("200");
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
        let _ = stream.write_all(answer.as_bytes()).await;
        seen.clear();
    }
}
