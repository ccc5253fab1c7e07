//! Long work of a node, on threads that leave the processor to the others.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::sync::oneshot;

use crate::simulation::world;

/// Of such a thread: where all want the processor, it gets a ninth of what another one gets.
const NICE: i32 = 10;

/// Makes the calling thread one in the background. What answers clients and replicates goes first
/// from here on.
pub fn leave_the_processor() {
    // Linux keeps this for each thread. Without it, it is only a worse neighbour.
    let own = getpriority_process(None).unwrap_or_default();
    let _ = setpriority_process(None, own.max(NICE));
}

/// Runs a long step on a thread of its own in the background. Where no core is free, a request
/// would wait for its turn behind it otherwise.
///
/// # Errors
/// When there can be no thread, and when the step panics.
pub async fn in_background<T: Send + 'static>(
    name: &str,
    step: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if world().is_some() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_in_the_background_leaves_the_processor_to_others() {
        let nice = || Ok(getpriority_process(None).unwrap());
        let own = nice().unwrap();
        assert_eq!(in_background("test", nice).await.unwrap(), own.max(NICE));
        assert_eq!(nice().unwrap(), own);
        let died = in_background("test", || -> io::Result<()> { panic!("on purpose") }).await;
        assert_eq!(died.unwrap_err().kind(), io::ErrorKind::Other);
    }
}
