//! Long answers: a slow reader keeps them in memory, so they take room within the bound of bodies.

use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use axum::body::{Body, HttpBody};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::http::bodies::{Full, Room};
use crate::problem::Problem;
use crate::request::door::Door;

/// Largest answer in bytes that a connection may keep without being counted.
const UNCOUNTED_BYTES_MAX: u64 = 16 << 10;

/// Mark of an answer whose bytes belong to the program, and exist once for all clients. Bytes of
/// the state are not marked, because the state may replace them while a client still reads.
#[derive(Clone, Copy)]
pub(crate) struct OfTheProgram;

/// Bytes of an answer with their room.
struct PlacedBytes {
    bytes: Bytes,
    _place: Room,
}

impl AsRef<[u8]> for PlacedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Takes room for an answer to a client of `source`, for as long as any of it is kept. Without room
/// the answer is a problem instead.
///
/// Answers to requests that may change the state need no room, because the client must be told the
/// result, however long it is.
pub(crate) fn with_place(door: &Door, method: &Method, source: Option<IpAddr>, response: Response) -> Response {
    let length = response.body().size_hint().exact().unwrap_or_default();
    if length <= UNCOUNTED_BYTES_MAX || !method.is_safe() || response.extensions().get::<OfTheProgram>().is_some() {
        return response;
    }
    let _place = match door.bodies.answer(usize::try_from(length).unwrap_or(usize::MAX), source) {
        Ok(place) => place,
        Err(Full::Address) => {
            return Problem::too_many("long answers to your address, which are not taken yet,").into_response();
        }
        Err(Full::Node) => {
            let detail = "too many long answers of this node are not taken yet";
            return Problem::unavailable(detail, 1_000).into_response();
        }
    };
    let (parts, mut body) = response.into_parts();
    match whole(&mut body) {
        Some(bytes) => Response::from_parts(parts, Body::from(Bytes::from_owner(PlacedBytes { bytes, _place }))),
        None => Response::from_parts(parts, body),
    }
}

/// Takes the bytes of a body that is in memory already.
fn whole(body: &mut Body) -> Option<Bytes> {
    match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
        _ => None,
    }
}
