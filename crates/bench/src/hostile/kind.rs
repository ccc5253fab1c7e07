//! Kinds of hostile traffic. None needs large resources or any permission.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::setpriority_process;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::attack::{Tally, Target};
use super::{http, peer, wire};
use crate::client::ZooKeeper;
use crate::error::Error;

/// Nice value of the thread that hostile clients run on.
const NICE: i32 = 10;

/// Kind of hostile traffic. The variants are in the order in which `bench hostile` prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Transactions that set and take away the quota of a large subtree, 64 times in each.
    QuotaRecounts,
    /// 1,000 pipelined requests for the size of a large subtree, sent repeatedly.
    SubtreeSizes,
    /// Bodies with a Content-Length of 4 MiB, of which only one byte is sent.
    AnnouncedBodies,
    /// Chunked bodies with a first chunk of 4 MiB, of which only one byte is sent.
    ChunkedBodies,
    /// 24 sessions with many ephemeral znodes each, which expire at the same time.
    MassExpiry,
    /// Znodes with ACLs of the largest permitted length.
    LongAcls,
    /// Writes whose answers must be kept for retries.
    KeptReplies,
    /// As many sessions as can be opened.
    ManySessions,
    /// Connections to the ZooKeeper port that send nothing.
    SilentConnections,
    /// 100 connections that request a long list of children and do not read the answer.
    UnreadLists,
    /// Repeated requests for the digest of the whole state.
    Digests,
    /// 300 connections that list 1,200 locks repeatedly.
    Listings,
    /// 2,000 connections that list 1,200 locks repeatedly.
    ManyListings,
    /// 1,000 connections to the ZooKeeper port that pipeline 900 `exists` each.
    Pipelines,
    /// 300 connections that write 1 MB each to a follower.
    LargeBodies,
    /// 1,000 connections that request the OpenAPI document.
    Documents,
    /// 10 connections to the ZooKeeper port that set 100,000 watches on paths of 1 KB each.
    LongWatches,
    /// 500 connections to the ZooKeeper port that watch a subtree, and transactions that change it.
    WatchStorms,
    /// 1,200 connections that request data of 1 MB and do not read the answer, while others write
    /// the data.
    UnreadData,
    /// 600 connections that request listings of 1,000 locks and do not read the answers.
    UnreadPages,
    /// 4,096 long polls and 1,024 sessions of ZooKeeper clients at each node.
    LongPolls,
    /// 4,096 long polls at each node, each with request headers of 15 KB.
    LongHeads,
    /// 1,000 connections to each HTTP port that send nothing, beside writes of 1 MB.
    IdleConnections,
    /// Creates of znodes of 1 MB until the state is full.
    FullState,
    /// 60 connections to each peer port that begin TLS handshakes and do not complete them.
    PeerHandshakes,
}

/// Hostile traffic under way on its thread.
pub(crate) struct Attacking(JoinHandle<Result<(), Error>>);

impl Attacking {
    /// Waits until the traffic ends by itself.
    pub(crate) fn end(self) -> Result<(), Error> {
        self.0.join().map_err(|_| Error::Answer("the hostile thread failed".into()))?
    }
}

impl Kind {
    /// Tells whether this kind of traffic needs nodes that require TLS of each other.
    pub(crate) fn needs_peer_tls(self) -> bool {
        self == Kind::PeerHandshakes
    }

    /// Creates the data that this kind of traffic uses.
    pub(crate) async fn load(self, target: &Target) -> Result<(), Error> {
        match self {
            Kind::QuotaRecounts | Kind::SubtreeSizes | Kind::Digests => wire::load_subtree(target).await,
            Kind::UnreadLists => wire::load_names(target).await,
            Kind::LargeBodies | Kind::UnreadData | Kind::IdleConnections => http::make_znodes(target).await,
            Kind::Listings | Kind::ManyListings | Kind::UnreadPages => http::hold_locks(target).await,
            _ => Ok(()),
        }
    }

    /// Prepares the traffic, and begins it on a new thread of low priority. Real hostile clients
    /// have other machines: here their work must not take the processors from the servers and the
    /// honest clients.
    pub(crate) async fn begin(self, target: Target, length: Duration, tally: Arc<Tally>) -> Attacking {
        let (ready, begun) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            setpriority_process(None, NICE).map_err(std::io::Error::from)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let prepared = self.prepare(&target).await;
                let _ = ready.send(());
                self.attack(&target, prepared?, Instant::now() + length, &tally).await;
                Ok(())
            })
        });
        // The error of a failed preparation is not lost: `Attacking::end` returns it.
        let _ = begun.await;
        Attacking(thread)
    }

    /// Opens the sessions that the traffic needs before it begins; an empty list for most kinds.
    /// This step is not measured.
    async fn prepare(self, target: &Target) -> Result<Vec<ZooKeeper>, Error> {
        match self {
            Kind::MassExpiry => wire::sessions_with_ephemerals(target).await,
            _ => Ok(Vec::new()),
        }
    }

    /// Runs the traffic until `until`.
    async fn attack(self, target: &Target, prepared: Vec<ZooKeeper>, until: Instant, tally: &Tally) {
        match self {
            Kind::QuotaRecounts => wire::recount(target, until, tally).await,
            Kind::SubtreeSizes => wire::ask_sizes(target, until, tally).await,
            Kind::AnnouncedBodies => http::hold(target, 64, http::HELD, http::ANNOUNCED, until, tally).await,
            Kind::ChunkedBodies => http::hold(target, 210, http::HELD, http::CHUNKED, until, tally).await,
            Kind::MassExpiry => {
                // The connections close, and the sessions send nothing any more.
                tally.sent(prepared.len() as u64);
                drop(prepared);
                tokio::time::sleep_until(until).await;
            }
            Kind::LongAcls => wire::fill_with_acls(target, until, tally).await,
            Kind::KeptReplies => http::fill_with_replies(target, until, tally).await,
            Kind::ManySessions => http::repeat(target, 12, http::SESSION, until, tally).await,
            Kind::SilentConnections => wire::stay_silent(target, until, tally).await,
            Kind::UnreadLists => wire::leave_unread(target, until, tally).await,
            Kind::Digests => http::repeat(target, 12, http::DIGEST, until, tally).await,
            Kind::Listings => http::repeat(target, 300, http::LISTING, until, tally).await,
            Kind::ManyListings => http::repeat(target, 2_000, http::LISTING, until, tally).await,
            Kind::Pipelines => wire::ask_existence(target, until, tally).await,
            Kind::LargeBodies => http::repeat(&target.follower(), 300, http::LARGE, until, tally).await,
            Kind::Documents => http::repeat(target, 1_000, http::DOCUMENT, until, tally).await,
            Kind::LongWatches => wire::set_long_watches(target, until, tally).await,
            Kind::WatchStorms => wire::change_what_many_watch(target, until, tally).await,
            Kind::UnreadData => http::leave_data_unread(target, until, tally).await,
            Kind::UnreadPages => http::leave_pages_unread(target, until, tally).await,
            Kind::LongPolls => {
                let polls = http::hold(target, 4_096 * target.rest.len(), http::POLL, "\r\n", until, tally);
                tokio::join!(polls, wire::hold_sessions(target, 1_024 * target.wire.len(), until, tally));
            }
            Kind::LongHeads => {
                let rest = format!("x-filler: {}\r\n\r\n", "x".repeat(15_000));
                http::hold(target, 4_096 * target.rest.len(), http::POLL, &rest, until, tally).await;
            }
            Kind::IdleConnections => http::idle_and_write(target, until, tally).await,
            Kind::FullState => http::fill_state(target, until, tally).await,
            Kind::PeerHandshakes => peer::begin_handshakes(target, until, tally).await,
        }
    }
}
