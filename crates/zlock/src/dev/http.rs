//! Minimal HTTP client: one request on one connection, an answer in JSON.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A request to a node.
pub(super) struct Call<'a> {
    pub(super) method: &'static str,
    pub(super) node: &'a str,
    pub(super) path: &'a str,
    pub(super) session: Option<&'a str>,
    pub(super) body: &'static str,
}

/// Sends the request once. `Err` is a message about the failure.
pub(super) async fn call<T: DeserializeOwned>(call: &Call<'_>) -> Result<T, String> {
    try_call(call).await?.map_err(|refused| refused.text)
}

/// An answer whose status is not successful.
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) text: String,
}

/// Sends the request once. Unlike [`call`], returns an unsuccessful status as the inner `Err`.
pub(super) async fn try_call<T: DeserializeOwned>(call: &Call<'_>) -> Result<Result<T, Refused>, String> {
    let name = format!("{} http://{}{}", call.method, call.node, call.path);
    match tokio::time::timeout(TIMEOUT, exchange(call)).await {
        Ok(Ok((status, body))) if (200..300).contains(&status) => {
            serde_json::from_slice(&body).map(Ok).map_err(|error| format!("{name}: {error}"))
        }
        Ok(Ok((status, body))) => {
            Ok(Err(Refused { status, text: format!("{name}: {status}: {}", String::from_utf8_lossy(&body)) }))
        }
        Ok(Err(error)) => Err(format!("{name}: {error}")),
        Err(_) => Err(format!("{name}: no answer in time")),
    }
}

async fn exchange(call: &Call<'_>) -> Result<(u16, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(call.node).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut request = Request::builder().method(call.method).uri(call.path).header("host", call.node);
    if let Some(session) = call.session {
        request = request.header(zlock_client::api::headers::SESSION_KEY, session);
    }
    if !call.body.is_empty() {
        request = request.header("content-type", "application/json");
    }
    let response = sender.send_request(request.body(Full::new(Bytes::from(call.body)))?).await?;
    let status = response.status().as_u16();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}
