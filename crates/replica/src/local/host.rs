//! Machine on which a node runs: a real one, or a simulated one.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use crate::local::background::leave_the_processor;
use crate::simulation::World;

/// Source of the time of day, and runner of blocking steps, for one node.
#[derive(Clone, Default)]
pub(crate) enum Host {
    /// The machine of this process.
    #[default]
    Machine,
    /// A machine of a simulation, which runs blocking steps on the calling thread.
    Simulated(Arc<dyn World>),
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_simulated() { "a simulated machine" } else { "this machine" })
    }
}

impl Host {
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, Host::Simulated(_))
    }

    /// Milliseconds since 1970, by the machine's clock.
    pub(crate) fn wall_clock_ms(&self) -> u64 {
        if let Host::Simulated(world) = self {
            return world.wall_clock_ms();
        }
        let elapsed: Duration = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs a blocking step on a thread where it disturbs no other task.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        step: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.is_simulated() {
            return step();
        }
        match tokio::task::spawn_blocking(step).await {
            Ok(result) => result,
            Err(error) => Err(io::Error::other(format!("a blocking step did not end: {error}"))),
        }
    }

    /// Runs a long step on a background thread of low priority, so that no request waits for a core
    /// behind it.
    ///
    /// # Errors
    /// When no thread can be started, and when the step panics.
    pub(crate) async fn in_background<T: Send + 'static>(
        &self,
        name: &str,
        step: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.is_simulated() {
            return step();
        }
        let (done, ended) = oneshot::channel();
        let work = move || {
            leave_the_processor();
            let _ = done.send(step());
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        ended.await.map_err(|_| io::Error::other("a thread in the background has ended without a result"))?
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;
    use crate::local::background::NICE;

    #[tokio::test]
    async fn what_is_in_the_background_leaves_the_processor_to_others() {
        let nice = || Ok(getpriority_process(None).unwrap());
        let own = nice().unwrap();
        assert_eq!(Host::Machine.in_background("test", nice).await.unwrap(), own.max(NICE));
        assert_eq!(nice().unwrap(), own);
        let died = Host::Machine.in_background("test", || -> io::Result<()> { panic!("on purpose") }).await;
        assert_eq!(died.unwrap_err().kind(), io::ErrorKind::Other);
    }
}
