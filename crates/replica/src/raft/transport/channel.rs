//! Connection for questions to one peer, with many questions under way and answers in any order.
//!
//! One task owns the connection and opens it when there is a question. If a question gets no
//! answer, the task tells the caller whether the question may have been sent.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use accept::caught_up;
use storage::codec;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, interval, timeout_at};

use super::connect::Target;
use super::frame::{Exchange, FramedStream};
use super::messages::{Answer, Ask, FRAME_BYTES_MAX, Lane, NumberedMessage};
use super::tenure::Tenure;
use crate::stop::Stop;

/// Largest number of questions that wait for the connection's task. A caller with a further
/// question waits for room, up to its deadline.
const QUEUE_MAX: usize = 1024;
/// Largest number of questions without an answer on one connection. Further questions stay in the
/// queue. The peer allows more, so that it never stops reading and always gets this node's pings.
const PENDING_MAX: usize = 8_000;
/// Bytes that may wait for the socket before no more questions are taken from the queue.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Number of a ping. Its answer is passed to no caller.
const PING: u64 = 0;
/// Time after a failed try to connect in which questions fail at once.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// Error text for a question to a peer that has announced that it stops.
const LEFT: &str = "the peer is shutting down";

/// Reason why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChannelError {
    /// The question was not sent, or the peer has certainly not begun with it.
    NotSent(String),
    /// The peer may have done what the question asks.
    Lost(String),
}

struct Question {
    ask: Ask,
    reply: oneshot::Sender<Result<Answer, ChannelError>>,
    /// Resource that stays in use until the question has left the queue, even if the question's
    /// caller no longer waits.
    _held: Option<DropGuard>,
}

/// Resource in use, of any kind. Its drop frees the resource.
pub(crate) type DropGuard = Arc<dyn Any + Send + Sync>;

/// Handle with which callers ask over one connection. Clones share the connection, whose task ends
/// with the last clone or with the node.
#[derive(Clone)]
pub(crate) struct Channel {
    questions: mpsc::Sender<Question>,
}

impl Channel {
    /// Starts the connection's task on the current runtime. A peer that owes answers and sends
    /// nothing for the target's `peer_timeout` counts as lost.
    pub(crate) fn open(target: Target, stopped: Stop) -> Channel {
        let (questions, queue) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(async move {
            let peer_timeout = target.peer_timeout;
            let mut task = Task { target, peer_timeout, queue, retry_at: None };
            tokio::select! {
                biased;
                () = stopped.wait() => {}
                () = task.run() => {}
            }
            task.queue.close();
            task.fail_unsent(None, "the node is shutting down");
        });
        Channel { questions }
    }

    /// Sends a question, and waits for the answer until `deadline`.
    pub(crate) async fn ask(&self, ask: Ask, deadline: Instant) -> Result<Answer, ChannelError> {
        self.ask_with(ask, None, deadline).await
    }

    /// Sends a question as [`Channel::ask`] does, and keeps `held` until the question has left the
    /// queue.
    pub(crate) async fn ask_holding(
        &self,
        ask: Ask,
        held: DropGuard,
        deadline: Instant,
    ) -> Result<Answer, ChannelError> {
        self.ask_with(ask, Some(held), deadline).await
    }

    async fn ask_with(&self, ask: Ask, _held: Option<DropGuard>, deadline: Instant) -> Result<Answer, ChannelError> {
        let (reply, answer) = oneshot::channel();
        match timeout_at(deadline, self.questions.send(Question { ask, reply, _held })).await {
            Err(_) => return Err(ChannelError::NotSent("too many questions to the peer under way".into())),
            Ok(Err(_)) => return Err(ChannelError::NotSent("shutting down".into())),
            Ok(Ok(())) => {}
        }
        match timeout_at(deadline, answer).await {
            Err(_) => Err(ChannelError::Lost("no answer from the peer before the deadline".into())),
            Ok(Err(_)) => Err(ChannelError::Lost("the connection to the peer was closed".into())),
            Ok(Ok(result)) => result,
        }
    }
}

struct Task {
    target: Target,
    peer_timeout: Duration,
    queue: mpsc::Receiver<Question>,
    retry_at: Option<Instant>,
}

impl Task {
    async fn run(&mut self) {
        while let Some(first) = self.queue.recv().await {
            if first.reply.is_closed() {
                continue;
            }
            if self.retry_at.is_some_and(|at| Instant::now() < at) {
                self.fail_unsent(Some(first), "the peer is unreachable");
                continue;
            }
            match self.target.connect().await {
                Ok(framed) => {
                    self.retry_at = None;
                    let lost = self.serve(framed, first).await;
                    if lost.kind() == io::ErrorKind::TimedOut {
                        self.target.reach.lost(&lost);
                    }
                    tracing::debug!(peer = self.target.to, lane = ?self.target.lane, %lost, "peer connection closed");
                }
                Err(error) => {
                    self.retry_at = Some(Instant::now() + RECONNECT_PAUSE);
                    self.fail_unsent(Some(first), &format!("cannot reach node {}: {error}", self.target.to));
                }
            }
        }
    }

    /// Fails the question `first`, if there is one, and all questions in the queue, as not sent.
    fn fail_unsent(&mut self, first: Option<Question>, why: &str) {
        let mut next = first.or_else(|| self.queue.try_recv().ok());
        while let Some(question) = next {
            let _ = question.reply.send(Err(ChannelError::NotSent(why.into())));
            next = self.queue.try_recv().ok();
        }
    }

    /// Sends questions and passes answers to the callers until the connection breaks. Returns the
    /// error that broke it.
    async fn serve(&mut self, framed: FramedStream, first: Question) -> io::Error {
        let tenure = Tenure::of_caller(&framed, self.target.identity.tls.as_deref());
        let mut line = OpenConnection::new(framed, tenure);
        let mut tick = interval(self.peer_timeout / 4);
        let error = match line.put(first) {
            Ok(()) => self.exchange(&mut line, &mut tick).await,
            Err(error) => error,
        };
        line.hear_out(&error, self.peer_timeout).await;
        for (_, reply) in line.pending {
            let _ = reply.send(Err(ChannelError::Lost(format!("lost node {}: {error}", self.target.to))));
        }
        error
    }

    async fn exchange(&mut self, line: &mut OpenConnection, tick: &mut tokio::time::Interval) -> io::Error {
        loop {
            let room = line.has_room();
            let step = tokio::select! {
                biased;
                now = tick.tick() => line.check(now, self.peer_timeout),
                // Answers come before questions. They cannot keep questions waiting for long,
                // because there are never more answers than questions that were sent.
                exchange = line.framed.exchange() => exchange.and_then(|exchange| line.take(exchange)),
                () = &mut line.tenure, if !line.is_ending => {
                    line.is_ending = true;
                    Ok(())
                }
                question = self.queue.recv(), if room => match question {
                    Some(question) => line.put(question),
                    None => Err(io::Error::other("shutting down")),
                },
            };
            // Requests of clients from the next slices join the same packet.
            if step.is_ok() && self.target.lane == Lane::Forward && line.framed.queued_bytes() > 0 {
                caught_up().await;
            }
            if let Err(error) = step.and_then(|()| self.put_waiting(line)).and_then(|()| line.look_whether_over()) {
                return error;
            }
        }
    }

    /// Puts questions that wait in the queue into the connection's output, so that one write sends
    /// them together.
    fn put_waiting(&mut self, line: &mut OpenConnection) -> io::Result<()> {
        while line.has_room() {
            match self.queue.try_recv() {
                Ok(question) => line.put(question)?,
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// An open connection, and the questions on it that have no answer yet.
struct OpenConnection {
    framed: FramedStream,
    pending: BTreeMap<u64, oneshot::Sender<Result<Answer, ChannelError>>>,
    last_number: u64,
    heard_at: Instant,
    /// True once the peer has announced that it stops and takes no more questions.
    left: bool,
    tenure: Tenure,
    /// True once the tenure is over. Further questions stay in the queue, for a new connection.
    is_ending: bool,
}

impl OpenConnection {
    fn new(framed: FramedStream, tenure: Tenure) -> OpenConnection {
        OpenConnection {
            framed,
            pending: BTreeMap::new(),
            last_number: PING,
            heard_at: Instant::now(),
            left: false,
            tenure,
            is_ending: false,
        }
    }

    /// Tells whether the connection takes another question.
    fn has_room(&self) -> bool {
        !self.is_ending && self.pending.len() < PENDING_MAX && self.framed.queued_bytes() < OUTPUT_BYTES_MAX
    }

    fn put(&mut self, question: Question) -> io::Result<()> {
        if self.left {
            let _ = question.reply.send(Err(ChannelError::NotSent(LEFT.into())));
            return Ok(());
        }
        // The caller has given up, so the question is not sent: the peer would work for nothing,
        // and a proposal would be done that no client expects.
        if question.reply.is_closed() {
            return Ok(());
        }
        if self.pending.is_empty() {
            self.heard_at = Instant::now();
        }
        let (spoken, needed) = (self.framed.version(), question.ask.version());
        if needed > spoken {
            let why =
                format!("the peer runs an older zlock: it speaks version {spoken} of the peer protocol, not {needed}");
            let _ = question.reply.send(Err(ChannelError::NotSent(why)));
            return Ok(());
        }
        self.last_number += 1;
        let record = codec::encode(&NumberedMessage { number: self.last_number, body: question.ask });
        if record.len() > FRAME_BYTES_MAX {
            let _ = question.reply.send(Err(ChannelError::NotSent("too large for one frame".into())));
            return Ok(());
        }
        self.pending.insert(self.last_number, question.reply);
        self.framed.queue_record(&record)
    }

    fn take(&mut self, exchange: Exchange<NumberedMessage<Answer>>) -> io::Result<()> {
        let answer = match exchange {
            Exchange::Message(answer) => answer,
            Exchange::Flushed => return Ok(()),
            Exchange::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        self.heard_at = Instant::now();
        if let Answer::Leaving { taken } = answer.body {
            self.left = true;
            for (_, reply) in self.pending.split_off(&(taken.saturating_add(1))) {
                let _ = reply.send(Err(ChannelError::NotSent(LEFT.into())));
            }
        } else if let Some(reply) = self.pending.remove(&answer.number) {
            let _ = reply.send(Ok(answer.body));
        }
        Ok(())
    }

    /// After a failed write, reads the messages that the peer sent before it closed the connection.
    /// One of them may announce that the peer stops, and which questions it has taken.
    async fn hear_out(&mut self, error: &io::Error, peer_timeout: Duration) {
        if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
            return;
        }
        let rest = async {
            while let Ok(Some(answer)) = self.framed.next().await {
                if self.take(Exchange::Message(answer)).is_err() {
                    break;
                }
            }
        };
        // The connection is closed, so this comes to its end at once.
        let _ = timeout_at(Instant::now() + peer_timeout, rest).await;
    }

    /// Fails if the connection has no more use: the peer stops or the tenure is over, and the peer
    /// has answered all questions that it took.
    fn look_whether_over(&self) -> io::Result<()> {
        match (self.left, self.is_ending) {
            (true, _) if self.pending.is_empty() => Err(io::Error::other(LEFT)),
            (_, true) if self.pending.is_empty() => Err(io::Error::other("the connection is opened anew")),
            _ => Ok(()),
        }
    }

    /// Drops questions whose callers no longer wait. Pings a peer that owes answers, and fails when
    /// the peer has sent nothing for `peer_timeout`. `now` is the time at which this check was due.
    fn check(&mut self, now: Instant, peer_timeout: Duration) -> io::Result<()> {
        if now.elapsed() >= peer_timeout / 4 {
            // This process was paused. An answer may have come meanwhile, and is read after this.
            self.heard_at = Instant::now();
        }
        self.pending.retain(|_, reply| !reply.is_closed());
        if self.pending.is_empty() {
            return Ok(());
        }
        let silent = now.saturating_duration_since(self.heard_at);
        if silent >= peer_timeout {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer is silent"));
        }
        if silent >= peer_timeout / 4 {
            self.framed.queue(&NumberedMessage { number: PING, body: Ask::Ping })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::super::addresses::Addresses;
    use super::super::callers::Callers;
    use super::super::connect::{Identity, welcome};
    use super::super::frame::Terms;
    use super::super::messages::Lane;
    use super::super::refusal::VERSIONS;
    use super::*;

    const SILENCE: Duration = Duration::from_secs(1);

    fn identity(node_id: u64) -> Identity {
        Identity::new("c", node_id, &[1, 2])
    }

    /// A channel from node 1 to node 2, which listens on `listener`.
    fn open(listener: &TcpListener, stop: &Stop) -> Channel {
        let addrs = Arc::new(Addresses::new(&listener.local_addr().unwrap().to_string(), None));
        let (lane, reach) = (Lane::Control, Arc::default());
        let target = Target { identity: identity(1), to: 2, addrs, lane, peer_timeout: SILENCE, reach, is_peer: true };
        Channel::open(target, stop.clone())
    }

    async fn accept(listener: &TcpListener) -> FramedStream {
        let mut framed = FramedStream::new(listener.accept().await.unwrap().0, SILENCE * 50).unwrap();
        let (place, _) = Arc::<Callers>::default().enter(None);
        welcome(&identity(2), &mut framed, place, SILENCE * 50).await.unwrap().unwrap();
        framed
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[tokio::test]
    async fn answers_find_their_questions_in_any_order() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stop = Stop::default();
        let channel = open(&listener, &stop);
        let answering = async {
            let mut framed = accept(&listener).await;
            let first: NumberedMessage<Ask> = framed.next().await.unwrap().unwrap();
            let second: NumberedMessage<Ask> = framed.next().await.unwrap().unwrap();
            for ask in [second, first] {
                let body = if ask.body == Ask::ReadIndex {
                    Answer::ReadIndex { zxid: 5, history: None }
                } else {
                    Answer::Pong
                };
                framed.send(&NumberedMessage { number: ask.number, body }).await.unwrap();
            }
            framed
        };
        let asks = async { tokio::join!(channel.ask(Ask::ReadIndex, soon()), channel.ask(Ask::Ping, soon())) };
        let (answers, _framed) = tokio::join!(asks, answering);
        assert_eq!(answers, (Ok(Answer::ReadIndex { zxid: 5, history: None }), Ok(Answer::Pong)));
    }

    #[tokio::test]
    async fn a_question_that_nobody_waits_for_keeps_what_it_takes_up_as_long_as_it_is_queued() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stop = Stop::default();
        let channel = open(&listener, &stop);
        let held = Arc::new(());
        // The peer says nothing yet.
        assert!(channel.ask_holding(Ask::ReadIndex, held.clone(), soon()).now_or_never().is_none());
        assert_eq!(Arc::strong_count(&held), 2);
        let answering = async {
            let mut framed = accept(&listener).await;
            let question: NumberedMessage<Ask> = framed.next().await.unwrap().unwrap();
            framed.send(&NumberedMessage { number: question.number, body: Answer::Pong }).await.unwrap();
            framed
        };
        let (answer, _framed) = tokio::join!(channel.ask_holding(Ask::Ping, held.clone(), soon()), answering);
        assert_eq!((answer, Arc::strong_count(&held)), (Ok(Answer::Pong), 1));
    }

    #[tokio::test]
    async fn a_question_that_was_never_sent_is_told_from_one_that_was_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stop = Stop::default();
        let channel = open(&listener, &stop);
        let (lost, ()) = tokio::join!(channel.ask(Ask::ReadIndex, soon()), async {
            let mut framed = accept(&listener).await;
            let _: Option<NumberedMessage<Ask>> = framed.next().await.unwrap();
        });
        assert!(matches!(lost, Err(ChannelError::Lost(_))), "{lost:?}");
        drop(listener);
        let not_sent = channel.ask(Ask::ReadIndex, soon()).await;
        assert!(matches!(not_sent, Err(ChannelError::NotSent(_))), "{not_sent:?}");
        stop.stop();
        let stopped = channel.ask(Ask::ReadIndex, soon()).await;
        assert!(matches!(stopped, Err(ChannelError::NotSent(_))), "{stopped:?}");
    }

    #[tokio::test]
    async fn a_peer_that_leaves_answers_what_it_took() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stop = Stop::default();
        let channel = open(&listener, &stop);
        let leaving = async {
            let mut framed = accept(&listener).await;
            let first: NumberedMessage<Ask> = framed.next().await.unwrap().unwrap();
            let _second: NumberedMessage<Ask> = framed.next().await.unwrap().unwrap();
            framed
                .send(&NumberedMessage { number: PING, body: Answer::Leaving { taken: first.number } })
                .await
                .unwrap();
            framed
                .send(&NumberedMessage { number: first.number, body: Answer::ReadIndex { zxid: 5, history: None } })
                .await
                .unwrap();
            // The asker closes the connection after the last answer.
            assert!(framed.next::<NumberedMessage<Ask>>().await.unwrap().is_none());
        };
        let asks = async { tokio::join!(channel.ask(Ask::ReadIndex, soon()), channel.ask(Ask::ReadIndex, soon())) };
        let ((first, second), ()) = tokio::join!(asks, leaving);
        assert_eq!(first, Ok(Answer::ReadIndex { zxid: 5, history: None }));
        assert_eq!(second, Err(ChannelError::NotSent(LEFT.into())));
    }

    #[tokio::test]
    async fn a_silent_peer_is_given_up_and_a_slow_one_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stop = Stop::default();
        let channel = open(&listener, &stop);
        // Takes everything and says nothing.
        let (lost, _framed) = tokio::join!(channel.ask(Ask::ReadIndex, soon()), accept(&listener));
        assert!(matches!(lost, Err(ChannelError::Lost(_))), "{lost:?}");
        // Answers pings at once and the question after several silences.
        let slow = async {
            let mut framed = accept(&listener).await;
            let question: NumberedMessage<Ask> = framed.next().await.unwrap().unwrap();
            for _ in 0..8 {
                let ping: NumberedMessage<Ask> = framed.next().await.unwrap().unwrap();
                assert_eq!(ping.body, Ask::Ping);
                framed.send(&NumberedMessage { number: ping.number, body: Answer::Pong }).await.unwrap();
            }
            framed
                .send(&NumberedMessage { number: question.number, body: Answer::ReadIndex { zxid: 1, history: None } })
                .await
                .unwrap();
            framed
        };
        let (answer, _framed) = tokio::join!(channel.ask(Ask::ReadIndex, soon()), slow);
        assert_eq!(answer, Ok(Answer::ReadIndex { zxid: 1, history: None }));
    }

    #[tokio::test]
    async fn an_answer_that_came_during_a_pause_of_the_process_is_heard() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stop = Stop::default();
        let channel = open(&listener, &stop);
        let answering = async {
            let mut framed = accept(&listener).await;
            let question: NumberedMessage<Ask> = framed.next().await.unwrap().unwrap();
            framed.send(&NumberedMessage { number: question.number, body: Answer::Pong }).await.unwrap();
            // The thread does nothing else meanwhile.
            let began = Instant::now();
            while began.elapsed() < SILENCE * 2 {}
            framed
        };
        let (answer, _framed) = tokio::join!(channel.ask(Ask::Ping, soon()), answering);
        assert_eq!(answer, Ok(Answer::Pong));
    }

    #[tokio::test]
    async fn what_a_peer_said_before_it_left_is_heard_when_sending_to_it_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (ours, theirs) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let terms = |framed: &mut FramedStream| {
            let rules = identity(1).rules(2);
            framed.set_terms(Terms { version: VERSIONS.1, frame_bytes_max: FRAME_BYTES_MAX, rules, place: None });
        };
        let mut framed = FramedStream::new(ours.unwrap(), SILENCE).unwrap();
        terms(&mut framed);
        let tenure = Tenure::of_caller(&framed, None);
        let mut line = OpenConnection::new(framed, tenure);
        let (mut ask, mut answers) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (reply, answer) = oneshot::channel();
            ask.push(Question { ask: Ask::ReadIndex, reply, _held: None });
            answers.push(answer);
        }
        ask.into_iter().for_each(|question| line.put(question).unwrap());
        let mut peer = FramedStream::new(theirs.unwrap().0, SILENCE).unwrap();
        peer.send(&NumberedMessage { number: PING, body: Answer::Leaving { taken: 1 } }).await.unwrap();
        peer.send(&NumberedMessage { number: 1, body: Answer::ReadIndex { zxid: 5, history: None } }).await.unwrap();
        drop(peer);
        let error = loop {
            line.framed.queue(&NumberedMessage { number: PING, body: Ask::Ping }).unwrap();
            if let Err(error) = line.framed.flush().await {
                break error;
            }
        };
        line.hear_out(&error, SILENCE * 100).await;
        assert_eq!(answers.remove(0).await.unwrap(), Ok(Answer::ReadIndex { zxid: 5, history: None }));
        assert_eq!(answers.remove(0).await.unwrap(), Err(ChannelError::NotSent(LEFT.into())));
    }
}
