//! Clusters of real processes whose nodes are killed, paused, wiped and cut off. Each file tests
//! one property. `harness` starts the processes, and ends all of them however a test ends.

#![allow(clippy::unwrap_used)]

mod harness;

mod all_killed_and_restarted;
mod answer_lost_then_retried;
mod clean_stop;
mod cli;
mod cli_contract;
mod cli_exit_codes;
mod cli_jobs;
mod cli_losses;
mod cli_managed_locks;
mod cli_promise;
mod cli_release;
mod cli_terminal;
mod cli_watchdog;
mod client;
mod client_barriers;
mod client_recipes;
mod closed_cluster;
mod copied_machine;
mod copies_put_back;
mod crowds;
mod dev_starts_and_stops;
mod differing;
mod documented_lines;
mod documented_rust;
mod examples;
mod failing_disk;
mod gaps;
mod hand_over_on_three_nodes;
mod hangup;
mod herd;
mod kept_directories;
mod leader_killed_under_load;
mod leader_paused;
mod levels;
mod local_cluster;
mod log_story;
mod members;
mod memory_bound;
mod memory_rows;
mod metrics;
mod open_files;
mod operators;
mod own_ghost;
mod partitioned_follower_catches_up;
mod peer_tls;
mod recipes;
mod refusals;
mod refused_connections;
mod removed_members;
mod restored_from_backup;
mod secure;
mod session_expiry;
mod sick_node;
mod start_refused;
mod started_one_by_one;
mod stopping;
mod systemd;
mod tls_failures;
mod wiped_node_returns_by_snapshot;
mod zookeeper;
