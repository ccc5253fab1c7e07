//! Long answers: they stay in memory until a slow client has read them, so they are counted
//! together with request bodies.

use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use axum::body::{Body, HttpBody};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use replica::Bound;

use crate::http::bodies::{Full, Room};
use crate::problem::Problem;
use crate::request::door::Door;

/// Size in bytes up to which an answer is not counted against the memory for bodies and answers.
const UNCOUNTED_BYTES_MAX: u64 = 16 << 10;

/// Mark of an answer that is a static text of the program. All clients share one copy, so the
/// answer is not counted against the memory for answers.
#[derive(Clone, Copy)]
pub(crate) struct OfTheProgram;

/// Bytes of an answer, with the guard that counts them until they are dropped.
struct PlacedBytes {
    bytes: Bytes,
    _place: Room,
}

impl AsRef<[u8]> for PlacedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Counts a long answer against the memory for answers until it was sent to the client, whose
/// address is `source`. When a bound is reached, the client gets a 429 or 503 instead.
///
/// Answers to writes are not counted, because the client must learn the result of a write however
/// long it is.
pub(crate) fn with_place(door: &Door, method: &Method, source: Option<IpAddr>, response: Response) -> Response {
    let length = response.body().size_hint().exact().unwrap_or_default();
    if length <= UNCOUNTED_BYTES_MAX || !method.is_safe() || response.extensions().get::<OfTheProgram>().is_some() {
        return response;
    }
    let _place = match door.bodies.answer(usize::try_from(length).unwrap_or(usize::MAX), source) {
        Ok(place) => place,
        Err(Full::Address) => {
            return Problem::too_many(Bound::BodiesOfAddress, "long answers to your address, which are not taken yet,")
                .into_response();
        }
        Err(Full::Node) => {
            let detail = "too many long answers of this node are not taken yet";
            return Problem::full(Bound::Bodies, detail).into_response();
        }
    };
    let (parts, mut body) = response.into_parts();
    match whole(&mut body) {
        Some(bytes) => Response::from_parts(parts, Body::from(Bytes::from_owner(PlacedBytes { bytes, _place }))),
        None => Response::from_parts(parts, body),
    }
}

/// Takes the bytes of a body that is completely in memory; `None` for any other body.
fn whole(body: &mut Body) -> Option<Bytes> {
    match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
        _ => None,
    }
}
