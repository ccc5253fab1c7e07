//! Tests of the checkers: each finds the violations that it is for, and no others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod check_command;
mod ended_nodes;
mod held_alone;
mod in_time;
mod last_reads;
mod linearizability;
mod literature;
mod losses;
mod planted;
mod recipes;
mod registers;
mod replayed;
mod unknown_outcomes;
mod written;
