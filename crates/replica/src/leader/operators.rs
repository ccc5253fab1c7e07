//! Orders of operators, which come in at any node and are carried out by the leader.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use storage::codec;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::leader::members::Members;
use crate::leader::orders::{NewMember, Order, OrderError, OrderOutcome, RefusedOrder};
use crate::leader::transfer::Transfer;
use crate::raft::consensus::Consensus;
use crate::raft::transport::{Answer, Ask, ChannelError, Introduction, PeerRejection, Refusal};
use crate::view::life::Life;
use crate::write::retry::Retry;

/// Longest time that an operator's order may take.
const ORDER_MAX: Duration = Duration::from_secs(15);

/// Carries out operators' orders if this node leads, and otherwise forwards them to the leader.
#[derive(Clone)]
pub(crate) struct Operators {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) life: Arc<Life>,
    pub(crate) members: Arc<Members>,
    pub(crate) transfer: Arc<Transfer>,
}

impl Operators {
    /// See [`crate::Replica::order`].
    pub(crate) async fn order(&self, order: Order, deadline: Instant) -> Result<OrderOutcome, OrderError> {
        let deadline = deadline.min(Instant::now() + ORDER_MAX);
        let mut tries = Retry::new(&self.consensus, deadline);
        loop {
            let why = match self.consensus.heard_leader() {
                Some(leader) if leader == self.consensus.node_id => match self.consensus.leading_term() {
                    Some((term, true)) => return self.carry_out(order, term, deadline).await,
                    _ => "the leader has no quorum".to_owned(),
                },
                Some(leader) => match self.pass_on(leader, &order, deadline).await {
                    Ok(done) => return done,
                    Err(why) => why,
                },
                None => "no leader is heard".to_owned(),
            };
            // Without a leader, the report is what this node knows of the members.
            if order == Order::Members && self.consensus.heard_leader().is_none() {
                return Ok(OrderOutcome::Members(self.members.report()));
            }
            if let Err(error) = tries.again(&self.life, &self.consensus, why).await {
                return Err(OrderError::Unavailable(error.to_string()));
            }
        }
    }

    /// Forwards an order to the leader. The outer `Err` means that the leader did nothing and
    /// another try may succeed.
    async fn pass_on(
        &self,
        leader: u64,
        order: &Order,
        deadline: Instant,
    ) -> Result<Result<OrderOutcome, OrderError>, String> {
        let Some(peer) = self.consensus.peers.get(leader) else {
            return Err(format!("the leader, node {leader}, is not known here yet"));
        };
        match peer.forward.ask(Ask::Order(codec::encode(order)), deadline).await {
            Ok(Answer::Order(done)) => Ok(codec::decode(&done).unwrap_or_else(|error| {
                Err(OrderError::Unknown(format!("the leader's answer cannot be read: {error}")))
            })),
            Ok(Answer::NotLeader(_)) => Err(format!("node {leader} does not lead any more")),
            Ok(Answer::Refused(why)) | Err(ChannelError::NotSent(why)) => Err(why),
            Ok(other) => Ok(Err(OrderError::Unknown(format!("the leader answered something else: {other:?}")))),
            Err(ChannelError::Lost(why)) => Ok(Err(OrderError::Unknown(why))),
        }
    }

    /// Carries out an order that another node forwarded.
    pub(crate) async fn order_for_peer(&self, order: &[u8]) -> Answer {
        let Some((term, true)) = self.consensus.leading_term() else {
            return Answer::NotLeader(self.consensus.leader());
        };
        let done = match codec::decode::<Order>(order) {
            Ok(order) => self.carry_out(order, term, Instant::now() + ORDER_MAX).await,
            Err(error) => {
                let why = format!("the leader, an older zlock perhaps, does not know this order: {error}");
                Err(OrderError::refused(RefusedOrder::BadOrder, why))
            }
        };
        Answer::Order(codec::encode(&done))
    }

    /// Carries an order out, and waits for its end until the deadline. A client that hangs up does
    /// not stop the order.
    async fn carry_out(&self, order: Order, term: u64, deadline: Instant) -> Result<OrderOutcome, OrderError> {
        let (operators, stopped) = (self.clone(), self.life.stopped());
        let carried_out = tokio::spawn(async move {
            tokio::select! {
                biased;
                done = operators.steps(order, term) => done,
                () = stopped.wait() => Err(OrderError::Unknown("the node is shutting down".into())),
            }
        });
        match timeout_at(deadline, carried_out).await {
            Ok(Ok(done)) => done,
            Ok(Err(ended)) => Err(OrderError::Unknown(ended.to_string())),
            Err(_) => Err(OrderError::Unknown("the order is under way, and was not done before its deadline".into())),
        }
    }

    async fn steps(&self, order: Order, term: u64) -> Result<OrderOutcome, OrderError> {
        match order {
            Order::Members => {}
            Order::Add(new) => self.add(new).await?,
            Order::Promote { id } => {
                let standing = self.consensus.standing(id).await;
                self.members.promote(id, standing, term).await?;
            }
            Order::Remove { id, force } => self.members.remove(id, force, term).await?,
            Order::Update { id, peer_addr, http_addr, zone } => self.update(id, peer_addr, http_addr, zone).await?,
            Order::Transfer { to } => return self.transfer.transfer(to, term).await,
        }
        Ok(OrderOutcome::Members(self.members.report()))
    }

    async fn add(&self, new: NewMember) -> Result<(), OrderError> {
        self.members.may_add(&new, &self.consensus.membership())?;
        let Introduction { standing, .. } = self.meet(new.id, &new.peer_addr).await?;
        self.members.add(new, standing).await
    }

    async fn update(
        &self,
        id: u64,
        peer_addr: Option<String>,
        http_addr: Option<String>,
        zone: Option<String>,
    ) -> Result<(), OrderError> {
        // Checked, because a wrong address could cost the quorum.
        if let Some(addr) = peer_addr.as_ref().filter(|_| id != self.consensus.node_id) {
            let known = self.consensus.cluster.incarnation_of(id);
            let met = self.meet(id, addr).await?;
            if known.is_some_and(|known| known != met.incarnation) {
                let why = format!("what answers at {addr} has another data directory than node {id}");
                return Err(OrderError::refused(RefusedOrder::AnotherNodeAnswers, why));
            }
        }
        let changed = self.members.update(id, |member| {
            member.peer_addr = peer_addr.unwrap_or_else(|| member.peer_addr.clone());
            member.http_addr = http_addr.unwrap_or_else(|| member.http_addr.clone());
            if let Some(zone) = zone {
                member.extra.insert(crate::leader::member_steps::mark::ZONE.to_owned(), zone.into_bytes());
            }
        });
        changed.await
    }

    /// Connects to the node at the address that a member is to have, before a change is proposed.
    async fn meet(&self, id: u64, addr: &str) -> Result<Introduction, OrderError> {
        let (target, round_trip) = (self.consensus.peers.stranger(id, addr), self.consensus.peer_timeout);
        let until = Instant::now() + round_trip * 5;
        let error = loop {
            let met = timeout(round_trip * 2, target.introduce()).await;
            match met.unwrap_or_else(|late| Err(late.into())) {
                Ok(met) => return Ok(met),
                // A name server may not know a new host yet.
                Err(error) if is_transient(&error) && Instant::now() < until => sleep(round_trip / 10).await,
                Err(error) => break error,
            }
        };
        let refusal = error.get_ref().and_then(|error| error.downcast_ref::<PeerRejection>());
        let (kind, why) = match refusal.map(|away| away.refusal) {
            None | Some(Refusal::NoMember) => {
                let why = format!(
                    "node {id} does not answer at {addr} as a member to be ({error}): start it first, with `node.joining = true`, \
                     the cluster's name and node.id = {id}"
                );
                (RefusedOrder::MemberUnreachable, why)
            }
            Some(Refusal::OtherCluster) => (RefusedOrder::MemberHasOtherData, format!("node {id} at {addr}: {error}")),
            Some(_) => (RefusedOrder::MemberUnreachable, format!("node {id} at {addr} cannot join: {error}")),
        };
        Err(OrderError::refused(kind, why))
    }
}

/// Tells whether another try to reach a node may succeed: there was no answer in time, or the host
/// name has no address.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::write::propose::tests::leader;

    #[tokio::test]
    async fn an_order_is_not_waited_for_longer_than_until_its_deadline() {
        let data_dir = tempfile::TempDir::new().unwrap();
        let node = leader(&data_dir).await;
        // The system accepts connections there, and no program answers.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = silent.local_addr().unwrap().to_string();
        let new = NewMember { id: 2, peer_addr: addr.clone(), http_addr: addr, ..NewMember::default() };
        let order = |within_ms| {
            node.operators.order(Order::Add(new.clone()), Instant::now() + Duration::from_millis(within_ms))
        };
        let done = order(200).await;
        assert!(matches!(&done, Err(OrderError::Unknown(why)) if why.contains("deadline")), "{done:?}");
        let done = order(30_000).await;
        assert!(matches!(&done, Err(OrderError::Refused { kind: RefusedOrder::MemberUnreachable, .. })), "{done:?}");
        node.shutdown().await;
    }
}
