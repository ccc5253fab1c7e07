//! Verdict on one try of a call: whether the call is done, has failed, or is repeated. Only this
//! module decides this.

use std::time::Duration;

use crate::api::{Outcome, Problem, ProblemType};
use hyper::header::RETRY_AFTER;

use crate::client::call::{Answer, Call, Repeat};
use crate::client::connection::{Ending, Reply};
use crate::client::error::Error;

/// Next step of a call after one of its tries.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The call was carried out.
    Done(Answer),
    /// The node refused the call, and a repetition would not help. The error is `Unknown` if an
    /// earlier try may have had an effect.
    Refused(Error),
    /// No node answered the call, and it cannot be repeated.
    Failed(Error),
    /// The call should be tried again.
    Again {
        /// Reason that the error names if no time for another try is left.
        reason: String,
        /// Whether this try may have had an effect.
        maybe_done: bool,
        /// Whether the result of the try was `Ending::Unreachable`.
        unreachable: bool,
        /// The answer's `Retry-After`: time after which the node expects to be able to serve the
        /// call.
        retry_after: Option<Duration>,
    },
}

/// Decides the next step after a try of `call` with the result `ending`. `addr` is the endpoint of
/// the try. `maybe_done` is true if an earlier try may have had an effect.
pub(crate) fn judge(addr: &str, ending: Ending, call: &Call, maybe_done: bool) -> Verdict {
    let undone = |reason: String, unreachable: bool| {
        let reason = format!("{addr}: {reason}");
        Verdict::Again { reason, maybe_done: false, unreachable, retry_after: None }
    };
    match ending {
        Ending::Unreachable(reason) => undone(reason, true),
        Ending::NotSent(reason) => undone(reason, false),
        Ending::Unsendable(reason) => Verdict::Failed(Error::refused_here(ProblemType::BadRequest, reason)),
        Ending::Lost(reason) => lost(format!("{addr}: {reason}"), call.repeat),
        Ending::Answered(reply) if (200..300).contains(&reply.status) => {
            let zxid = reply.zxid();
            Verdict::Done(Answer { body: reply.body, zxid, sent: reply.sent })
        }
        Ending::Answered(reply) => problem(addr, &reply, call, maybe_done),
    }
}

fn lost(reason: String, repeat: Repeat) -> Verdict {
    match repeat {
        Repeat::Safe => Verdict::Again { reason, maybe_done: true, unreachable: false, retry_after: None },
        Repeat::OnlyIfUnsent => Verdict::Failed(Error::Unknown { reason }),
    }
}

fn problem(addr: &str, reply: &Reply, call: &Call, maybe_done: bool) -> Verdict {
    let Ok(problem) = serde_json::from_slice::<Problem>(&reply.body) else {
        // The answer comes from another program, such as a proxy, which may have passed the request
        // on to a node.
        return lost(format!("{addr}: status {} without a problem document", reply.status), call.repeat);
    };
    let reason = || format!("{addr}: {}: {}", problem.title, problem.detail);
    match (problem.outcome, problem.kind()) {
        (Outcome::Unavailable, _) => {
            let retry_after = reply.number(RETRY_AFTER.as_str()).map(Duration::from_secs);
            Verdict::Again { reason: reason(), maybe_done: false, unreachable: false, retry_after }
        }
        (Outcome::Unknown, _) => lost(reason(), call.repeat),
        // The cluster knows the idempotency key: an earlier try was applied, but its answer is no
        // longer remembered.
        (Outcome::Refused, Some(ProblemType::RequestKeyEvicted)) if !call.tells_eviction => {
            Verdict::Refused(Error::Unknown { reason: reason() })
        }
        // The cluster forgot the results of the session's idempotency keys with the session, so the
        // effect of an earlier try is unknown.
        (Outcome::Refused, Some(ProblemType::SessionExpired)) if maybe_done && call.is_keyed() => {
            Verdict::Refused(Error::Unknown { reason: reason() })
        }
        // A copy of the earlier try may arrive later, and be executed.
        (Outcome::Refused, Some(ProblemType::NotAcquired | ProblemType::Superseded | ProblemType::TicketGone))
            if maybe_done && call.is_forgotten =>
        {
            Verdict::Refused(Error::Unknown { reason: reason() })
        }
        (Outcome::Refused, _) => Verdict::Refused(Error::refused(problem)),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::{HeaderMap, Method};

    use super::*;
    use crate::client::clock::Moment;

    fn answer(status: u16, body: String) -> Ending {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "2".parse().unwrap());
        Ending::Answered(Reply { status, headers, body: Bytes::from(body), sent: Moment::ZERO })
    }

    fn says(kind: ProblemType, outcome: &str) -> Ending {
        let uri = kind.uri();
        answer(
            418,
            format!(r#"{{"type":"{uri}","title":"T","status":418,"detail":"d","outcome":"{outcome}","zxid":1}}"#),
        )
    }

    /// Judges a try, and compares the verdict in words, such as `done` or `again, maybe done`.
    #[track_caller]
    fn check(ending: Ending, repeat: Repeat, maybe_done: bool, expected: &str) {
        check_call(ending, &call(repeat), maybe_done, expected);
    }

    /// Returns a write, with an idempotency key if its repetition is safe.
    fn call(repeat: Repeat) -> Call {
        let call = Call::write(Method::POST, "/v1/locks/l".into());
        if repeat == Repeat::Safe { call.key(uuid::Uuid::nil()) } else { call }
    }

    #[track_caller]
    fn check_call(ending: Ending, call: &Call, maybe_done: bool, expected: &str) {
        let verdict = judge("a:1", ending, call, maybe_done);
        let is = match &verdict {
            Verdict::Done(_) => "done",
            Verdict::Refused(Error::Refused { .. }) => "refused",
            Verdict::Refused(_) => "refused, unknown",
            Verdict::Failed(Error::Refused { .. }) => "unsendable",
            Verdict::Failed(_) => "unknown",
            Verdict::Again { unreachable: true, .. } => "again, was not there",
            Verdict::Again { maybe_done: false, .. } => "again",
            Verdict::Again { maybe_done: true, .. } => "again, maybe done",
        };
        assert_eq!(is, expected, "{verdict:?}");
    }

    #[test]
    fn only_what_is_safe_is_repeated() {
        use Repeat::{OnlyIfUnsent, Safe};
        let lost = || Ending::Lost("broken".into());
        check(Ending::Unreachable("no route".into()), OnlyIfUnsent, false, "again, was not there");
        check(Ending::NotSent("closed".into()), OnlyIfUnsent, false, "again");
        check(Ending::Unsendable("too long".into()), Safe, false, "unsendable");
        check(lost(), Safe, false, "again, maybe done");
        check(lost(), OnlyIfUnsent, false, "unknown");
        check(says(ProblemType::Unavailable, "unavailable"), OnlyIfUnsent, false, "again");
        check(says(ProblemType::Unknown, "unknown"), OnlyIfUnsent, false, "unknown");
        check(says(ProblemType::Unknown, "unknown"), Safe, false, "again, maybe done");
        check(says(ProblemType::BadVersion, "refused"), Safe, false, "refused");
        check(answer(200, "{}".into()), Safe, true, "done");
        check(answer(502, "<html>".into()), Safe, false, "again, maybe done");
        check(answer(502, "<html>".into()), OnlyIfUnsent, false, "unknown");
    }

    #[test]
    fn a_refusal_after_a_lost_answer_is_not_taken_for_nothing_done() {
        check(says(ProblemType::SessionExpired, "refused"), Repeat::Safe, false, "refused");
        check(says(ProblemType::SessionExpired, "refused"), Repeat::Safe, true, "refused, unknown");
        let evicted = || says(ProblemType::RequestKeyEvicted, "refused");
        check(evicted(), Repeat::Safe, true, "refused, unknown");
        check_call(evicted(), &call(Repeat::Safe).telling_eviction(), true, "refused");
        let not_acquired = || says(ProblemType::NotAcquired, "refused");
        check_call(not_acquired(), &call(Repeat::Safe).forgotten(), true, "refused, unknown");
        check_call(not_acquired(), &call(Repeat::Safe).forgotten(), false, "refused");
        let gone = says(ProblemType::TicketGone, "refused");
        check_call(gone, &call(Repeat::Safe).forgotten(), true, "refused, unknown");
        check(not_acquired(), Repeat::Safe, true, "refused");
        // The answer is the remembered one for the idempotency key: the lost try was refused as
        // well.
        check(says(ProblemType::BadVersion, "refused"), Repeat::Safe, true, "refused");
    }

    #[test]
    fn the_node_says_when_to_come_back() {
        let verdict = judge("a:1", says(ProblemType::TooMany, "unavailable"), &call(Repeat::Safe), false);
        let Verdict::Again { retry_after, reason, .. } = verdict else { panic!("nothing was done") };
        assert_eq!((retry_after, reason.as_str()), (Some(Duration::from_secs(2)), "a:1: T: d"));
    }
}
