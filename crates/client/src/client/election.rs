//! Elections: one of several candidates leads, and proclaims a value that all can read.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::api::{Election as View, Leader, Millis, NodeSet, ProblemType, Ticket};
use bytes::Bytes;
use hyper::Method;

use crate::client::Client;
use crate::client::call::{Call, Target};
use crate::client::claim::{Claim, Grant};
use crate::client::clock::Moment;
use crate::{Error, Guard, Loss};

const ROUTE: &str = "/v1/elections";

impl Client {
    /// Returns the election at `path`. Curator's `LeaderLatch` at the same path takes part in the
    /// same election.
    pub fn election(&self, path: impl Into<String>) -> Election {
        Election { client: self.clone(), path: path.into(), lock_delay: None }
    }
}

/// An election, made by [`Client::election`].
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    path: String,
    lock_delay: Option<Duration>,
}

impl Election {
    /// Sets the time for which no candidate leads after the session of a leader *expired*.
    pub fn lock_delay(mut self, delay: Duration) -> Election {
        self.lock_delay = Some(delay);
        self
    }

    /// Stands for election, and waits in order to lead. `label` is the value that others see until
    /// this leader proclaims one. Dropping the future ends the candidacy in the background.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    pub async fn campaign(&self, label: &str) -> Result<Leadership, Error> {
        let leadership = self.stand(label, None).await?;
        leadership.ok_or_else(|| Error::unknown("a wait without an end has ended"))
    }

    /// Stands for election for at most `wait`. Returns `None` when the time was over first; the
    /// candidacy has then ended. A `wait` of zero is a single try: it leads when there is no other
    /// candidate, and never joins the queue.
    ///
    /// # Errors
    /// As [`Election::campaign`].
    pub async fn campaign_within(&self, label: &str, wait: Duration) -> Result<Option<Leadership>, Error> {
        if wait.is_zero() {
            self.try_campaign(label).await
        } else {
            self.stand(label, Some(Moment::now().after(wait))).await
        }
    }

    async fn try_campaign(&self, label: &str) -> Result<Option<Leadership>, Error> {
        match Claim::enter::<Ticket>(&self.client, Call::acquire(self.target(label)?), self.lock_delay).await {
            Ok((claim, Some(grant))) => self.leads(claim, grant).map(Some),
            Ok((_, None)) => Err(Error::unknown("a try was queued")),
            Err(error) if error.code() == Some(ProblemType::NotAcquired) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn stand(&self, label: &str, deadline: Option<Moment>) -> Result<Option<Leadership>, Error> {
        let enqueue = Call::acquire(self.target(label)?.with("keep", true));
        let (mut claim, grant) = Claim::enter::<Ticket>(&self.client, enqueue, self.lock_delay).await?;
        let grant = match grant {
            Some(grant) => Some(grant),
            None => claim.granted::<Ticket>(deadline).await?,
        };
        match grant {
            Some(grant) => self.leads(claim, grant).map(Some),
            None => {
                // If this fails, the drop of the claim goes on with it in the background.
                let _ = claim.give_back().await;
                Ok(None)
            }
        }
    }

    fn target(&self, label: &str) -> Result<Target, Error> {
        let delay = self.lock_delay.map(|delay| Millis(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)));
        Ok(Target::path(ROUTE, &self.path)?.with("label", label).with_some("lock_delay", delay))
    }

    fn leads(&self, claim: Claim, grant: Grant) -> Result<Leadership, Error> {
        let guard = Guard::new(claim, self.path.clone(), grant)?;
        Ok(Leadership { client: self.client.clone(), path: self.path.clone(), guard })
    }

    /// Returns the leader; `None` when no candidate leads.
    ///
    /// # Errors
    /// As any read.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(self.client.read::<View>(Target::path(ROUTE, &self.path)?).await?.0.leader)
    }

    /// Returns the observer of the leaders from now on and of the values that they proclaim.
    pub fn observe(&self) -> Observer {
        Observer { election: self.clone(), cursor: None }
    }
}

/// Leadership: a [`Guard`] that can proclaim values. Dropping it, or releasing its guard, resigns.
pub struct Leadership {
    client: Client,
    path: String,
    guard: Guard,
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.guard).finish()
    }
}

impl Leadership {
    /// Proclaims a value to all observers.
    ///
    /// # Errors
    /// `Refused` with `LockNotHeld` when this client is no longer the leader.
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<NodeSet, Error> {
        let target = Target::path(ROUTE, &self.path)?.with("ticket", self.guard.ticket());
        let target = target.with("fencing_token", self.guard.fencing_token());
        let said = self.client.write(Call::write(Method::PUT, target.finish()).body(value.into())).await;
        said.inspect_err(|error: &Error| {
            if error.code() == Some(ProblemType::LockNotHeld) {
                self.guard.claim().fate().tell_gone();
            }
        })
    }

    /// Runs the work as the leader, then resigns. When the leadership is lost first, the work is
    /// dropped at its next wait, as by [`Guard::run`].
    ///
    /// ```no_run
    /// # async fn example(client: zlock_client::Client) -> Result<(), zlock_client::Error> {
    /// loop {
    ///     let leadership = client.election("/leader").campaign("node 7").await?;
    ///     let led = leadership.run(async |leadership| leadership.proclaim("10.0.0.7:80").await).await;
    ///     match led {
    ///         Ok(said) => return said.map(drop),
    ///         Err(loss) => println!("leads no more: {loss}"), // stands again
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Guard::run`].
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Leadership) -> T) -> Result<T, Loss> {
        let done = tokio::select! {
            biased;
            () = self.gone() => None,
            done = work(&self) => Some(done),
        };
        self.guard.end(done).await
    }

    /// Gives up the leadership: the next candidate leads.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.release().await.map(drop)
    }
}

impl From<Leadership> for Guard {
    /// Returns the guard alone, which still leads but cannot proclaim.
    fn from(leadership: Leadership) -> Guard {
        leadership.guard
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

/// Stream of the leaders of an election, made by [`Election::observe`].
#[derive(Clone, Debug)]
pub struct Observer {
    election: Election,
    cursor: Option<String>,
}

impl Observer {
    /// Returns the present leader at the first call; then the next leader, or the next value of the
    /// same one. `None` when no candidate leads. Leaders who lead only briefly may be passed over.
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// As any read. The call may be repeated.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            let transport = &self.election.client.inner.transport;
            let wait = if self.cursor.is_some() { transport.timeouts.poll } else { Duration::ZERO };
            let wait_ms = Millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            let target = Target::path(ROUTE, &self.election.path)?.with_some("after", self.cursor.as_deref());
            let call = Call::get(target.with("wait", wait_ms).finish()).waiting(wait);
            let deadline = self.election.client.deadline().after(wait);
            let view: View = transport.send(&call, deadline).await?.json()?;
            if self.cursor.as_ref() != Some(&view.cursor) {
                self.cursor = Some(view.cursor);
                return Ok(view.leader);
            }
        }
    }
}
