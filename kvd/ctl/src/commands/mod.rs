//! One file per command: what it takes, what it does, what it prints.

pub(crate) mod bench;
pub(crate) mod classify;
pub(crate) mod clear;
pub(crate) mod drain;
pub(crate) mod dump_journal;
pub(crate) mod events;
pub(crate) mod get;
pub(crate) mod ls;
pub(crate) mod put;
pub(crate) mod size;
pub(crate) mod stat;
pub(crate) mod top;
pub(crate) mod verify;
pub(crate) mod why;
