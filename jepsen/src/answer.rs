//! The one table that says which answer is `ok`, `fail` or `info`.
//!
//! | what came back | a write is | a read is |
//! |---|---|---|
//! | 2xx with a body that can be read | ok | ok |
//! | a problem with `outcome: refused` or `unavailable` | fail | fail |
//! | a problem with `outcome: unknown` | info | fail |
//! | no connection: nothing was sent | fail | fail |
//! | the connection broke after sending, or no answer in time | info | fail |
//! | anything else: no problem+json, an unreadable body, an undocumented status | info | fail |
//!
//! A read that has no answer changed nothing, so it counts as failed. A write in doubt is always
//! `info`.

use bytes::Bytes;
use jute::error;
use serde::de::DeserializeOwned;
use testkit::http::NoAnswer;
use testkit::zookeeper::Failure;
use zlock_client::api::{Outcome, Problem};

use crate::history::Kind;

/// Effect that a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The request only reads.
    Read,
    /// The request changes something.
    Write,
}

impl Effect {
    /// Returns `outcome`, but `Fail` in place of `Info` for a read: a read without an answer counts
    /// as failed, because it changed nothing.
    fn of(self, outcome: Kind) -> Kind {
        if self == Effect::Read && outcome == Kind::Info { Kind::Fail } else { outcome }
    }
}

/// An answer to a request, with the outcome that the history records.
#[derive(Clone, Debug)]
pub struct Answer {
    /// `Ok`, `Fail` or `Info`.
    pub outcome: Kind,
    /// Name of the problem (RFC 9457) in the answer, or else the reason in words; `None` for `Ok`.
    pub error: Option<String>,
    /// The HTTP status; 0 when there was no answer.
    pub status: u16,
    /// Body of the answer; empty when there was no answer.
    pub body: Bytes,
    /// The answer's header `Zlock-Zxid`; `None` without it.
    pub zxid: Option<u64>,
    /// The node that was asked, from 1.
    pub node: u64,
}

/// Makes an [`Answer`] from the response to a request, or from its absence. The table in the
/// module's documentation gives the outcome: `Ok`, `Fail` or `Info`.
pub fn judge(effect: Effect, ended: Result<testkit::http::Answer, NoAnswer>, node: u64) -> Answer {
    let (zxid, status, body) = match &ended {
        Ok(answer) => (answer.zxid(), answer.status, answer.body.clone()),
        Err(_) => (None, 0, Bytes::new()),
    };
    let (outcome, error) = match ended {
        Err(NoAnswer::NotSent(why)) => (Kind::Fail, Some(format!("not-sent: {why}"))),
        Err(NoAnswer::Broken(why)) => (Kind::Info, Some(format!("broken: {why}"))),
        Err(NoAnswer::TimedOut) => (Kind::Info, Some("timed-out".to_owned())),
        Ok(_) if (200..300).contains(&status) => (Kind::Ok, None),
        Ok(_) => problem(status, &body),
    };
    Answer { outcome: effect.of(outcome), error, status, body, zxid, node }
}

fn problem(status: u16, body: &Bytes) -> (Kind, Option<String>) {
    let Ok(problem) = serde_json::from_slice::<Problem>(body) else {
        return (Kind::Info, Some(format!("status-{status}")));
    };
    let name =
        problem.type_uri.strip_prefix(zlock_client::api::PROBLEM_TYPE_BASE).unwrap_or(&problem.type_uri).to_owned();
    let outcome = match problem.outcome {
        Outcome::Refused | Outcome::Unavailable => Kind::Fail,
        Outcome::Unknown => Kind::Info,
    };
    (outcome, Some(name))
}

/// Prefix of an error that reports a breach of ZooKeeper's protocol by a node: see
/// [`Failure::Wrong`].
pub const WRONG: &str = "protocol: ";

/// Makes an [`Answer`] from a failed request over ZooKeeper's protocol, by the same table as
/// [`judge`].
pub fn judge_failure(failure: &Failure, effect: Effect, node: u64) -> Answer {
    let refused = |error: String| Answer { node, ..Answer::refused(error) };
    match failure {
        Failure::Refused(code) => refused(name(*code)),
        Failure::Expired => refused("session-expired".into()),
        Failure::NotSent(why) => judge(effect, Err(NoAnswer::NotSent(why.clone())), node),
        Failure::Broken(why) => judge(effect, Err(NoAnswer::Broken(why.clone())), node),
        Failure::TimedOut => judge(effect, Err(NoAnswer::TimedOut), node),
        Failure::Wrong(why) => Answer { outcome: effect.of(Kind::Info), ..refused(format!("{WRONG}{why}")) },
    }
}

/// Translates an error code of ZooKeeper's protocol to the name of the problem in an HTTP answer,
/// such as `no-node`.
fn name(code: i32) -> String {
    match code {
        error::NO_NODE => "no-node".into(),
        error::NODE_EXISTS => "node-exists".into(),
        error::BAD_VERSION => "bad-version".into(),
        error::SESSION_EXPIRED => "session-expired".into(),
        other => format!("code{other}"),
    }
}

impl Answer {
    /// Makes an answer with the outcome `Fail` and this error, for a request that the client did
    /// not send.
    pub fn refused(error: String) -> Answer {
        Answer { outcome: Kind::Fail, error: Some(error), status: 0, body: Bytes::new(), zxid: None, node: 0 }
    }

    /// Tells whether the answer is `Ok`.
    pub fn is_ok(&self) -> bool {
        self.outcome == Kind::Ok
    }

    /// Tells whether the answer is the problem (RFC 9457) with this name, such as `node-exists`.
    pub fn is_problem(&self, name: &str) -> bool {
        self.error.as_deref() == Some(name)
    }

    /// Parses the body of an answer whose outcome is `Ok`. If the body cannot be parsed, the
    /// outcome becomes `Info` for a write and `Fail` for a read. Returns `None` in that case, and
    /// for any other outcome.
    pub fn read<T: DeserializeOwned>(&mut self, effect: Effect) -> Option<T> {
        if !self.is_ok() {
            return None;
        }
        match serde_json::from_slice(&self.body) {
            Ok(value) => Some(value),
            Err(error) => {
                self.outcome = effect.of(Kind::Info);
                self.error = Some(format!("unreadable: {error}"));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use zlock_client::api::ProblemType;

    use super::*;

    type Ended = Result<testkit::http::Answer, NoAnswer>;

    fn answered(status: u16, body: Vec<u8>) -> Ended {
        Ok(testkit::http::Answer { status, headers: Default::default(), body: body.into() })
    }

    fn problem(outcome: Outcome) -> Ended {
        let problem = Problem {
            type_uri: ProblemType::BadVersion.uri(),
            title: String::new(),
            status: 412,
            detail: String::new(),
            outcome,
            name: None,
            code: None,
            path: None,
            op_index: None,
            ended: None,
            ended_session: None,
            holder: None,
            cycle: Vec::new(),
            zxid: 1,
        };
        answered(412, serde_json::to_vec(&problem).unwrap())
    }

    fn plain(status: u16) -> Ended {
        answered(status, b"{}".to_vec())
    }

    #[test]
    fn the_table_holds() {
        let table = [
            (plain(200), Kind::Ok, Kind::Ok),
            (plain(202), Kind::Ok, Kind::Ok),
            (problem(Outcome::Refused), Kind::Fail, Kind::Fail),
            (problem(Outcome::Unavailable), Kind::Fail, Kind::Fail),
            (problem(Outcome::Unknown), Kind::Info, Kind::Fail),
            (Err(NoAnswer::NotSent("refused".into())), Kind::Fail, Kind::Fail),
            (Err(NoAnswer::Broken("reset".into())), Kind::Info, Kind::Fail),
            (Err(NoAnswer::TimedOut), Kind::Info, Kind::Fail),
            (plain(404), Kind::Info, Kind::Fail),
            (plain(500), Kind::Info, Kind::Fail),
            (plain(302), Kind::Info, Kind::Fail),
        ];
        for (ended, write, read) in table {
            assert_eq!(judge(Effect::Write, ended.clone(), 1).outcome, write, "{ended:?}");
            assert_eq!(judge(Effect::Read, ended.clone(), 1).outcome, read, "{ended:?}");
        }
        assert!(judge(Effect::Write, problem(Outcome::Refused), 1).is_problem("bad-version"));
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_doubtful() {
        let mut answer = judge(Effect::Write, plain(200), 1);
        assert_eq!(answer.read::<zlock_client::api::CreatedZnode>(Effect::Write), None);
        assert_eq!(answer.outcome, Kind::Info);
    }
}
