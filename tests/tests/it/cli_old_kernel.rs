//! `zlock lock` where the kernel has no descriptors of processes: it is older than 5.3, or a
//! seccomp profile does not know them.

#![allow(unsafe_code, reason = "a seccomp filter is installed by prctl")]

use std::ffi::c_ulong;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::cli::{LONG, Locked, done};
use crate::harness::{Cluster, Options, kill, until};

unsafe extern "C" {
    fn prctl(option: i32, ...) -> i32;
}

/// An instruction of the kernel's filter machine.
#[repr(C)]
struct Instruction {
    code: u16,
    jump_true: u8,
    jump_false: u8,
    operand: u32,
}

#[repr(C)]
struct Program {
    length: u16,
    instructions: *const Instruction,
}

/// From now on `pidfd_open` fails in this thread and in all processes that it starts.
fn forbid_descriptors_of_processes(errno: Errno) {
    const SET_NO_NEW_PRIVILEGES: i32 = 38;
    const SET_SECCOMP: i32 = 22;
    const FILTER: c_ulong = 2;
    const PIDFD_OPEN: u32 = 434;
    let next = |code, operand| Instruction { code, jump_true: 0, jump_false: 0, operand };
    let filter = [
        next(0x20, 0), // loads the call's number
        Instruction { code: 0x15, jump_true: 0, jump_false: 1, operand: PIDFD_OPEN },
        next(0x06, 0x0005_0000 | u32::try_from(errno.raw_os_error()).unwrap()), // fails
        next(0x06, 0x7fff_0000),                                                // is permitted
    ];
    let program = Program { length: 4, instructions: filter.as_ptr() };
    let (yes, no): (c_ulong, c_ulong) = (1, 0);
    // SAFETY: the kernel copies the filter before the call returns.
    let installed = unsafe {
        prctl(SET_NO_NEW_PRIVILEGES, yes, no, no, no) == 0 && prctl(SET_SECCOMP, FILTER, &raw const program) == 0
    };
    assert!(installed, "{}", std::io::Error::last_os_error());
    let own = rustix::process::getpid();
    let opened = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty());
    assert_eq!(opened.err(), Some(errno), "the filter works");
}

/// What ends a command: the lock is lost, `zlock lock` is killed, its watchdog is killed.
async fn each_loss_ends_the_command() {
    let cluster = Cluster::start_with(Options { nodes: 1, ..Options::default() }).await;
    let mut locked = Locked::start(&cluster, LONG, &[]).await;
    done(&cluster, &["release", "l"]).await;
    assert_eq!(locked.exit().await, 121);
    assert!(!locked.runs());

    let mut locked = Locked::start(&cluster, LONG, &[]).await;
    kill(locked.watchdog, Signal::KILL);
    assert_eq!(locked.exit().await, 121);
    assert!(!locked.runs());

    let mut locked = Locked::start(&cluster, LONG, &["--on-loss", "kill"]).await;
    locked.cli.kill().unwrap();
    until("the command is ended", async || (!locked.runs()).then_some(())).await;

    // Its session is still there.
    done(&cluster, &["release", "l"]).await;
    let mut locked = Locked::start(&cluster, LONG, &[]).await;
    kill(locked.cli.id(), Signal::TERM);
    assert_eq!(locked.exit().await, 143, "signals are passed on");
}

#[test]
fn a_command_is_ended_without_descriptors_of_processes() {
    // A thread for each: a filter stays.
    let tests = [Errno::NOSYS, Errno::PERM].map(|errno| {
        std::thread::spawn(move || {
            forbid_descriptors_of_processes(errno);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(each_loss_ends_the_command());
        })
    });
    tests.into_iter().for_each(|test| test.join().unwrap());
}
