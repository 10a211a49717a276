//! The contract of a disk: the same cases over all three engines, and then what each engine has of its own.

#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "test code")]

mod faults;
#[path = "../../../shm/tests/forbidden/mod.rs"]
mod forbidden;
mod lifetimes;
mod refused;
mod rig;
mod ring;
mod sequences;
mod simulation;
mod transfers;
mod waits;

/// Every case for every engine.
macro_rules! conformance {
    ($($room:ident::$case:ident)*) => {
        mod uring { $(#[test] fn $case() { crate::$room::$case(crate::rig::Kind::Uring); })* }
        mod blocking { $(#[test] fn $case() { crate::$room::$case(crate::rig::Kind::Blocking); })* }
        mod sim { $(#[test] fn $case() { crate::$room::$case(crate::rig::Kind::Sim); })* }
    };
}

conformance! {
    transfers::what_is_written_is_read
    transfers::direct_files_take_aligned_memory
    transfers::direct_files_refuse_odd_memory_or_carry_on
    transfers::the_arena_is_read_and_written_in_place
    transfers::syncs_end
    transfers::nothing_to_move_ends_at_once
    transfers::many_operations_each_end_once
    faults::the_end_of_a_file_is_a_fault
    faults::a_file_cut_underneath_is_a_fault
    faults::places_beyond_every_file_are_faults
    faults::a_file_open_for_reading_takes_no_write
    faults::a_file_that_is_not_attached_is_a_fault
    faults::attaching_twice_is_a_bug
    faults::a_full_queue_gives_the_operation_back
    waits::a_wait_without_anything_ends
    waits::a_wake_ends_a_wait
    waits::a_wake_before_the_wait_counts
    waits::no_wake_of_a_storm_is_lost
    waits::a_waker_outlives_the_disk
    lifetimes::detached_files_finish_and_are_closed
    lifetimes::the_thread_that_waits_first_owns_the_disk
    lifetimes::dropping_waits_for_what_is_in_flight
    lifetimes::shutting_down_waits_for_what_is_in_flight
    lifetimes::memory_comes_back_with_its_completion_only
    sequences::any_sequence_agrees_with_a_plain_vector
}
