//! Elections: one of many leads, and says something that all can see.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::api::{Election as View, Leader, NodeSet, ProblemType};
use bytes::Bytes;
use hyper::Method;

use crate::client::Client;
use crate::client::call::{Call, Target};
use crate::client::holding::while_held;
use crate::client::lock::Lock;
use crate::{Error, Guard, Loss};

const ROUTE: &str = "/v1/elections";

impl Client {
    /// An election. Curator's `LeaderLatch` on the same path stands in the same one.
    pub fn election(&self, path: impl Into<String>) -> Election {
        Election { client: self.clone(), path: path.into(), lock_delay: None }
    }
}

/// An election. Made by [`Client::election`].
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    path: String,
    lock_delay: Option<Duration>,
}

impl Election {
    /// If the leader's session *expires*, no candidate leads for so much longer.
    pub fn lock_delay(mut self, delay: Duration) -> Election {
        self.lock_delay = Some(delay);
        self
    }

    /// Stands for election and waits to lead, in order. `label` is what others see until this
    /// leader proclaims something. Dropping the future ends the candidacy, in the background.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    pub async fn campaign(&self, label: &str) -> Result<Leadership, Error> {
        Ok(self.leads(self.candidacy(label).acquire().await?))
    }

    /// Stands for election for so long. `None` when the time was over first; this client stands no
    /// more then. Zero is a try: it leads when no other candidate does, and never stands.
    ///
    /// # Errors
    /// As [`Election::campaign`].
    pub async fn campaign_within(&self, label: &str, wait: Duration) -> Result<Option<Leadership>, Error> {
        let guard = self.candidacy(label).acquire_within(wait).await?;
        Ok(guard.map(|guard| self.leads(guard)))
    }

    /// An election is a lock whose holder leads.
    fn candidacy(&self, label: &str) -> Lock {
        let mut lock = Lock::new(self.client.clone(), self.path.clone(), None).label(label);
        (lock.route, lock.lock_delay) = (ROUTE, self.lock_delay);
        lock
    }

    fn leads(&self, guard: Guard) -> Leadership {
        Leadership { client: self.client.clone(), path: self.path.clone(), guard }
    }

    /// Who leads; `None` when no candidate does.
    ///
    /// # Errors
    /// As any read.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(self.client.read::<View>(Target::path(ROUTE, &self.path)?).await?.0.leader)
    }

    /// The leaders from now on, and what they say.
    pub fn observe(&self) -> Observer {
        Observer { election: self.clone(), cursor: None }
    }
}

/// Leadership: a [`Guard`] that can speak. Dropping it, or releasing its guard, resigns.
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
    /// Says something to all who observe.
    ///
    /// # Errors
    /// `Refused` with `LockNotHeld` when this is no longer the leader.
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

    /// Works as the leader, then resigns. When the leadership is lost first, the work is dropped
    /// where it waits, as by [`Guard::run`].
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
        let done = while_held(self.gone(), work(&self)).await;
        self.guard.end(done).await
    }

    /// Gives the leadership up: the next candidate leads.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.release().await.map(drop)
    }
}

impl From<Leadership> for Guard {
    /// The guard alone: it still leads, and says nothing more.
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

/// The leaders of an election, one after the other. Made by [`Election::observe`].
#[derive(Clone, Debug)]
pub struct Observer {
    election: Election,
    cursor: Option<String>,
}

impl Observer {
    /// The present leader the first time; then the next leader, or the next thing that the leader
    /// says. `None` when no candidate leads. Leaders who lead for a moment only may be passed over.
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// As any read; ask again.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            let Election { client, path, .. } = &self.election;
            let wait = if self.cursor.is_some() { client.inner.transport.timeouts.poll } else { Duration::ZERO };
            let target = Target::path(ROUTE, path)?.with_some("after", self.cursor.as_deref());
            let view: View = client.poll(target, wait).await?;
            if self.cursor.as_ref() != Some(&view.cursor) {
                self.cursor = Some(view.cursor);
                return Ok(view.leader);
            }
        }
    }
}
