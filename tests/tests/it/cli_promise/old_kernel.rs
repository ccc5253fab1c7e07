//! A kernel without process descriptors: one before 5.3, or one with a seccomp profile that does
//! not know them.

#![allow(unsafe_code, reason = "a seccomp filter is installed by prctl")]

use std::ffi::c_ulong;

use rustix::io::Errno;

unsafe extern "C" {
    fn prctl(option: i32, ...) -> i32;
}

/// BPF instruction of a seccomp filter.
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

/// Makes `pidfd_open` fail in this thread and in all processes that it starts.
pub(super) fn forbid_descriptors_of_processes(errno: Errno) {
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
