//! Program `zlock`; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    zlock::run(std::env::args_os())
}
