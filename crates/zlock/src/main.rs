//! Program `zlock`. Its code is in the library of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    zlock::run(std::env::args_os())
}
