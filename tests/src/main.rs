//! The program `zlock`, built for the integration tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    zlock::run(std::env::args_os())
}
