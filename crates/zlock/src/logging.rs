//! Logs go to stderr.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Starts logging with a filter such as `info,replica=debug`, and makes every panic end the process: a node that met a
/// bug must not serve on.
pub(crate) fn start(filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("log: `{filter}` is not a filter: {error}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // Or a closed stderr would end the process with a panic about printing.
        .log_internal_errors(false)
        .init();
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
    Ok(())
}
