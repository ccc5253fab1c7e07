//! See the library.

use std::process::ExitCode;

/// A node allocates and frees small things on several threads all the time; glibc's allocator takes
/// a fifth of its CPU.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    zlock::run(std::env::args_os())
}
