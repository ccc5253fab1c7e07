//! `power-disk DIR`: mounts an empty disk there, and obeys the words on stdin until it ends.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("power-disk DIR: then cut SEED, hang, slow MS, fail, mend or drop on stdin, a word a line");
        return ExitCode::from(2);
    };
    match power_disk::serve(dir.as_ref(), std::io::stdin().lock(), std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("power-disk: {error}");
            ExitCode::FAILURE
        }
    }
}
