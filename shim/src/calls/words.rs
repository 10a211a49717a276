//! Words for numbers, as static C texts.

use std::ffi::CStr;

use kvd_client::{MissReason, Refusal, Retention};

use crate::codes::{Miss, Status};

pub(crate) fn status(status: i32) -> &'static CStr {
    let Some(status) = Status::ALL.into_iter().find(|known| *known as i32 == status) else {
        return c"unknown";
    };
    match status {
        Status::Ok => c"ok",
        Status::Argument => c"argument",
        Status::StaleHandle => c"stale_handle",
        Status::OtherProcess => c"other_process",
        Status::InUse => c"in_use",
        Status::TooSmall => c"too_small",
        Status::TooManyHandles => c"too_many_handles",
        Status::AbiVersion => c"abi_version",
        Status::Panicked => c"panicked",
        Status::NotConnected => c"not_connected",
        Status::Disconnected => c"disconnected",
        Status::Deadline => c"deadline",
        Status::Protocol => c"protocol",
        Status::Mapping => c"mapping",
        Status::Refused => c"refused",
        Status::NoArena => c"no_arena",
        Status::StaleEpoch => c"stale_epoch",
        Status::StaleSession => c"stale_session",
        Status::Declined => c"declined",
        Status::Miss => c"miss",
    }
}

pub(crate) fn miss(code: u8) -> &'static CStr {
    if code == Miss::None as u8 {
        return c"none";
    }
    if code == Miss::NotAsked as u8 {
        return c"not_asked";
    }
    match MissReason::from_code(code) {
        None => c"unknown",
        Some(MissReason::NeverStored) => c"never_stored",
        Some(MissReason::Evicted(Retention::None)) => c"evicted_none",
        Some(MissReason::Evicted(Retention::Ephemeral)) => c"evicted_ephemeral",
        Some(MissReason::Evicted(Retention::Short)) => c"evicted_short",
        Some(MissReason::Evicted(Retention::Long)) => c"evicted_long",
        Some(MissReason::Expired) => c"expired",
        Some(MissReason::Cleared) => c"cleared",
        Some(MissReason::OtherNamespace) => c"other_namespace",
        Some(MissReason::Corrupt) => c"corrupt",
        Some(MissReason::Deadline) => c"deadline",
        Some(MissReason::Shed) => c"shed",
    }
}

pub(crate) fn refusal(code: u8) -> &'static CStr {
    if code == crate::codes::Refusal::None as u8 {
        return c"none";
    }
    if code == crate::codes::Refusal::NotAsked as u8 {
        return c"not_asked";
    }
    match Refusal::from_code(code) {
        None => c"unknown",
        Some(Refusal::NoArena) => c"no_arena",
        Some(Refusal::Oversize) => c"oversize",
        Some(Refusal::ArenaFull) => c"arena_full",
        Some(Refusal::SessionLimit) => c"session_limit",
        Some(Refusal::QuarantineFull) => c"quarantine_full",
        Some(Refusal::HigherPriority) => c"higher_priority",
        Some(Refusal::Downgrade) => c"downgrade",
        Some(Refusal::UnknownTicket) => c"unknown_ticket",
        Some(Refusal::WrongOwner) => c"wrong_owner",
        Some(Refusal::OversizeCommit) => c"oversize_commit",
        Some(Refusal::BadKey) => c"bad_key",
        Some(Refusal::ValueLargerThanStore) => c"value_larger_than_store",
        Some(Refusal::Shed) => c"shed",
        Some(Refusal::NotDurable) => c"not_durable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_client() {
        for reason in MissReason::ALL {
            assert_eq!(miss(reason.code()).to_str(), Ok(reason.as_str()));
        }
        for known in Refusal::ALL {
            assert_eq!(refusal(known.code()).to_str(), Ok(known.as_str()));
        }
        assert_eq!((miss(200), refusal(200), status(1000)), (c"unknown", c"unknown", c"unknown"));
    }
}
