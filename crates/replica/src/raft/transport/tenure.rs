//! Tenure of a connection between members: the time for which the connection may stay open.
//!
//! Certificates are checked when a connection is opened. So a connection with TLS is closed after
//! [`AGE_MAX`] at most and opened anew, and it is closed when a reload of the TLS files shows that
//! the other end's certificate is not accepted any more.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::sleep;

use super::frame::FramedStream;
use super::stream::EndOfTrust;
use crate::PeerTls;

/// Longest time for which the caller keeps a connection with TLS open.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Largest random part by which a connection's time is shorter than [`AGE_MAX`], so that a node
/// does not open all its connections anew at once.
const AGE_SPREAD: Duration = Duration::from_secs(6 * 60 * 60);

/// Future that ends when its connection is to be closed, after the exchange that is under way. The
/// future may be polled again after its end.
pub(crate) struct Tenure {
    end: EndOfTrust,
    is_over: bool,
}

impl Tenure {
    /// Makes the tenure of a connection at the end that has opened it.
    pub(crate) fn of_caller(framed: &FramedStream, tls: Option<&PeerTls>) -> Tenure {
        Tenure::new(framed, tls, |trust| async move {
            let [low, high, ..] = storage::random_uuid();
            let shorter = AGE_SPREAD * u32::from(u16::from_le_bytes([low, high])) / (1 << 16);
            tokio::select! {
                () = trust => {}
                () = sleep(AGE_MAX - shorter) => {}
            }
        })
    }

    /// Makes the tenure of a connection at the end that was called. It has no end by age, because
    /// the caller has to open a connection anew.
    pub(crate) fn of_called(framed: &FramedStream, tls: Option<&PeerTls>) -> Tenure {
        Tenure::new(framed, tls, |trust| trust)
    }

    fn new<F>(framed: &FramedStream, tls: Option<&PeerTls>, end: impl FnOnce(EndOfTrust) -> F) -> Tenure
    where
        F: Future<Output = ()> + Send + Sync + 'static,
    {
        let trust = tls.and_then(|tls| framed.end_of_trust(&tls.tls));
        let end = trust.map_or_else(|| Box::pin(std::future::pending()) as EndOfTrust, |trust| Box::pin(end(trust)));
        Tenure { end, is_over: false }
    }

    /// Tells whether the connection is to be closed.
    pub(crate) fn is_over(&mut self) -> bool {
        self.now_or_never().is_some()
    }
}

impl Future for Tenure {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_over {
            ready!(self.end.poll_unpin(cx));
            self.is_over = true;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use accept::{MutualAcceptor, MutualFiles, MutualTls};
    use testkit::{Authority, Files};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::super::addresses::Addresses;
    use super::super::callers::Callers;
    use super::super::channel::{Channel, ChannelError};
    use super::super::connect::{Identity, Target, welcome};
    use super::super::messages::{Answer, Ask, Lane, NumberedMessage};
    use super::super::stream::Stream;
    use super::*;
    use crate::node_uri;
    use crate::stop::Stop;

    const WITHIN: Duration = Duration::from_secs(30);

    /// Two nodes of cluster `c` with TLS: node 1 has a channel to node 2.
    struct Pair {
        authority: Authority,
        files: Files,
        called: Identity,
        listener: TcpListener,
        /// TLS of node 1, which has the list of revoked certificates.
        caller_tls: MutualTls,
        channel: Channel,
    }

    impl Pair {
        async fn start() -> Pair {
            let (authority, files) = (Authority::new("own"), Files::create());
            files.put_certificate("crl", &authority.crl(&[]));
            let node = |id: u64| {
                let (certificate, key) = files.put(&id.to_string(), &authority.node(&[&node_uri("c", id)], 30));
                let ca = files.put_certificate("ca", &authority.pem());
                let crl = (id == 1).then(|| files.path("crl.pem"));
                let tls = MutualTls::load(MutualFiles { certificate, key, ca, crl, own_uri: None }).unwrap();
                let peer_tls = PeerTls { tls: tls.clone(), dials: true, is_required: true, checks_names: true };
                let mut identity = Identity::new("c", id, &[1, 2]);
                identity.tls = Some(Arc::new(peer_tls));
                (tls, identity)
            };
            let ((caller_tls, identity), (_, called)) = (node(1), node(2));
            let listener = TcpListener::bind("[::1]:0").await.unwrap();
            let addrs = Arc::new(Addresses::new(&listener.local_addr().unwrap().to_string(), None));
            let (lane, reach) = (Lane::Control, Arc::default());
            let target = Target { identity, to: 2, addrs, lane, peer_timeout: WITHIN, reach, is_peer: true };
            let channel = Channel::open(target, Stop::default());
            Pair { authority, files, called, listener, caller_tls, channel }
        }

        /// Accepts a connection of node 1 at node 2.
        async fn accept(&self) -> FramedStream {
            let (stream, from) = self.listener.accept().await.unwrap();
            let acceptor = MutualAcceptor::start(self.called.tls.as_ref().unwrap().tls.clone()).unwrap();
            let stream = Stream::from(stream).accept_tls(Some(&acceptor), Some(from.ip())).await.unwrap();
            let mut framed = FramedStream::new(stream, WITHIN).unwrap();
            let (place, _) = Arc::<Callers>::default().enter(None);
            welcome(&self.called, &mut framed, place, WITHIN).await.unwrap().unwrap();
            framed
        }

        async fn ask(&self) -> Result<Answer, ChannelError> {
            self.channel.ask(Ask::ReadIndex, Instant::now() + WITHIN).await
        }
    }

    /// Answers one question. Returns false if the other end has closed the connection.
    async fn answer(framed: &mut FramedStream) -> bool {
        let Ok(Some(ask)) = framed.next::<NumberedMessage<Ask>>().await else { return false };
        framed
            .send(&NumberedMessage { number: ask.number, body: Answer::ReadIndex { zxid: 5, history: None } })
            .await
            .unwrap();
        true
    }

    #[tokio::test]
    async fn a_connection_is_opened_anew_after_a_day() {
        let pair = Pair::start().await;
        let answering = async {
            let mut framed = pair.accept().await;
            assert!(answer(&mut framed).await);
            framed
        };
        let (first, mut framed) = tokio::join!(pair.ask(), answering);
        assert_eq!(first, Ok(Answer::ReadIndex { zxid: 5, history: None }));
        tokio::time::pause();
        tokio::time::advance(AGE_MAX - AGE_SPREAD - Duration::from_secs(1)).await;
        tokio::time::resume();
        let (second, answered) = tokio::join!(pair.ask(), answer(&mut framed));
        assert!(second.is_ok() && answered, "the connection is younger");
        tokio::time::pause();
        tokio::time::advance(AGE_SPREAD + Duration::from_secs(1)).await;
        tokio::time::resume();
        assert!(!answer(&mut framed).await, "the connection is closed");
        let answering = async { answer(&mut pair.accept().await).await };
        let (third, answered) = tokio::join!(pair.ask(), answering);
        assert!(third.is_ok() && answered);
    }

    #[tokio::test]
    async fn a_revocation_closes_a_connection_after_its_answers() {
        let pair = Pair::start().await;
        let ends = async {
            let mut framed = pair.accept().await;
            let ask = framed.next::<NumberedMessage<Ask>>().await.unwrap().unwrap();
            // A reload that changes nothing leaves the connection open.
            assert!(!pair.caller_tls.reload().unwrap());
            tokio::task::yield_now().await;
            framed
                .send(&NumberedMessage { number: ask.number, body: Answer::ReadIndex { zxid: 5, history: None } })
                .await
                .unwrap();
            let ask = framed.next::<NumberedMessage<Ask>>().await.unwrap().unwrap();
            // Node 2 has the second certificate of the authority.
            pair.files.put_certificate("crl", &pair.authority.crl(&[2]));
            assert!(pair.caller_tls.reload().unwrap());
            tokio::task::yield_now().await;
            framed
                .send(&NumberedMessage { number: ask.number, body: Answer::ReadIndex { zxid: 6, history: None } })
                .await
                .unwrap();
            assert!(!answer(&mut framed).await, "the connection is closed");
        };
        let asks = async { (pair.ask().await, pair.ask().await) };
        let (answers, ()) = tokio::join!(asks, ends);
        assert_eq!(
            answers,
            (Ok(Answer::ReadIndex { zxid: 5, history: None }), Ok(Answer::ReadIndex { zxid: 6, history: None }))
        );
        let refused = async {
            let (stream, _) = pair.listener.accept().await.unwrap();
            let acceptor = MutualAcceptor::start(pair.called.tls.as_ref().unwrap().tls.clone()).unwrap();
            Stream::from(stream).accept_tls(Some(&acceptor), None).await.map(drop)
        };
        let (asked, _) = tokio::join!(pair.ask(), refused);
        assert!(matches!(&asked, Err(ChannelError::NotSent(why)) if why.contains("Revoked")), "{asked:?}");
    }
}
