//! What every backend must do alike. A test binary names its backend once:
//!
//! ```ignore
//! mod conformance;
//! conformance::suite!(|| make_my_backend());
//! ```
//!
//! The closure gives `Option<impl Backend>`; `None` (no such runtime on this machine) passes with a note. Programs used
//! inside are `sh`, `bash` and the usual small tools, so that an image of any distribution serves.
#![allow(clippy::unwrap_used, reason = "tests say what must hold")]

pub(crate) mod ends;
pub(crate) mod limits;
pub(crate) mod network;
pub(crate) mod programs;
pub(crate) mod volumes;

/// One test for each case, against one backend.
macro_rules! suite {
    ($backend:expr) => {
        $crate::conformance::suite!(@each $backend;
            programs: exit_codes, signals_end_programs, streams_are_kept_apart_byte_for_byte, environment_is_exact,
                arguments_reach_no_shell, working_directory, standard_input, open_input,
                unread_input, missing_program, what_cannot_be_executed,
                scripts_with_carriage_returns, identity_is_nobodys, much_output, closed_pipes, unreadable_requests;
            volumes: written_files_are_the_nodes, read_only_stays, single_files, nested_volumes, root_is_closed,
                scratch_is_private_and_bounded, links_lead_nowhere, executables_on_volumes;
            limits: memory, processes, file_size, open_files, wall_clock, wall_clock_with_daemons;
            ends: signals_are_passed_on, kill_ends_everything, dropping_ends_everything, processes_are_listed,
                one_process_is_signalled, zombies_are_reaped, daemons_do_not_survive, waiting_twice, many_at_once;
            network: none_has_loopback_only, proxy_is_the_only_way, loopback_is_private;
        );
    };
    (@each $backend:expr; $($group:ident: $($case:ident),+;)+) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let make = $backend;
                match make() {
                    Some(backend) => $crate::conformance::$group::$case(&backend).await,
                    None => println!("no such backend on this machine"),
                }
            }
        )+)+
    };
}
pub(crate) use suite;
