//! Elections: one of several candidates leads, and proclaims a value that all can read.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::api::{ChangedZnode, Election as View, Leader, ProblemType};
use bytes::Bytes;
use hyper::Method;

use crate::client::Client;
use crate::client::call::{Call, Target};
use crate::client::holding::while_held;
use crate::client::lock::Lock;
use crate::{Error, Guard, Loss};

const ROUTE: &str = "/v1/elections";

impl Client {
    /// Returns the election at `path`. Clients of Curator take part in it with a `LeaderLatch` at
    /// the path.
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
    /// Sets the time for which no candidate becomes the leader after the session of a leader
    /// *expired*.
    pub fn lock_delay(mut self, delay: Duration) -> Election {
        self.lock_delay = Some(delay);
        self
    }

    /// Enters the election, and waits until this client leads. `label` is the value that observers
    /// see until this leader proclaims a value. Dropping the future ends the candidacy in the
    /// background.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    pub async fn campaign(&self, label: &str) -> Result<Leadership, Error> {
        Ok(self.leads(self.candidacy(label).acquire().await?))
    }

    /// Enters the election, and waits to lead for at most `wait`. Returns `None` when the time was
    /// over first; the candidacy has then ended. A `wait` of zero is a single try: it leads when
    /// there is no other candidate, and never joins the queue.
    ///
    /// # Errors
    /// As [`Election::campaign`].
    pub async fn campaign_within(&self, label: &str, wait: Duration) -> Result<Option<Leadership>, Error> {
        let guard = self.candidacy(label).acquire_within(wait).await?;
        Ok(guard.map(|guard| self.leads(guard)))
    }

    /// Returns the lock of the election, whose holder leads.
    fn candidacy(&self, label: &str) -> Lock {
        let mut lock = Lock::new(self.client.clone(), self.path.clone(), None).label(label);
        (lock.route, lock.lock_delay) = (ROUTE, self.lock_delay);
        lock
    }

    fn leads(&self, guard: Guard) -> Leadership {
        Leadership { client: self.client.clone(), path: self.path.clone(), guard }
    }

    /// Returns the leader; `None` when no candidate leads.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(self.client.read::<View>(Target::path(ROUTE, &self.path)?).await?.0.leader)
    }

    /// Returns a stream of the leaders from now on, and of the values that they proclaim.
    pub fn observe(&self) -> Observer {
        Observer { election: self.clone(), position: None }
    }
}

/// Leadership of this client: a [`Guard`] that can proclaim values. Dropping the leadership, or
/// releasing its guard, ends it.
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
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<ChangedZnode, Error> {
        let target = Target::path(ROUTE, &self.path)?.with("ticket", self.guard.ticket());
        let target = target.with("fencing_token", self.guard.fencing_token());
        let said = self.client.write(Call::write(Method::PUT, target.finish()).body(value.into())).await;
        said.inspect_err(|error: &Error| {
            if error.code() == Some(ProblemType::LockNotHeld) {
                self.guard.claim.fate.tell_gone();
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
    ///     let led = leadership.run(async |lead| lead.proclaim("10.0.0.7:80").await).await;
    ///     match led {
    ///         Ok(said) => return said.map(drop),
    ///         Err(loss) => println!("leads no more: {loss}"), // campaigns again
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

    /// Gives up the leadership, so that the next candidate leads.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.release().await.map(drop)
    }
}

impl From<Leadership> for Guard {
    /// Returns the guard alone. It keeps the leadership, but cannot proclaim values.
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
    position: Option<String>,
}

impl Observer {
    /// Returns the present leader at the first call; then the next leader, or the next value of the
    /// present leader. `None` when no candidate leads. A leader that leads only briefly may be left
    /// out. Dropping the future loses no change.
    ///
    /// # Errors
    /// As any read. The call may be repeated.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            let Election { client, path, .. } = &self.election;
            let wait = if self.position.is_some() { client.inner.transport.timeouts.poll } else { Duration::ZERO };
            let target = Target::path(ROUTE, path)?.with_some("since", self.position.as_deref());
            let view: View = client.poll(target, wait).await?;
            if self.position.as_ref() != Some(&view.upto) {
                self.position = Some(view.upto);
                return Ok(view.leader);
            }
        }
    }
}
