//! Clients come and go.

use std::path::PathBuf;
use std::time::Duration;

use kvd_client::{Client, DEFAULT_SOCKET};

use crate::codes::{KVD_ABI_VERSION, Status};
use crate::failure::Failure;
use crate::foreign::Caller;
use crate::shapes::{self, Connection, Options};
use crate::{fork, registry};

pub(crate) fn attach(
    caller: Caller<'_>,
    abi_version: u32,
    options: *const Options,
    client: *mut shapes::Client,
) -> Result<(), Failure> {
    if abi_version != KVD_ABI_VERSION {
        let text =
            format!("the program wants ABI {abi_version}, the library has {KVD_ABI_VERSION}");
        return Err(Failure::new(Status::AbiVersion, text));
    }
    let mut place = caller.output("the place for the client", client)?;
    place.fill(0);
    let options = options_of(caller, options)?;
    fork::watch();
    place.fill(registry::add_client(Client::new(options))?);
    Ok(())
}

pub(crate) fn connect(
    caller: Caller<'_>,
    client: shapes::Client,
    connection: *mut Connection,
) -> Result<(), Failure> {
    let mut place = caller.optional_output("the place for the connection", connection)?;
    let attached = registry::client(client)?.attach()?;
    place.fill(Connection {
        epoch: attached.epoch.0,
        session: attached.session.0,
        arena_bytes: attached.arena_bytes,
        keys_max: attached.limits.keys_max,
        leases_max: attached.limits.leases_max,
        tickets_max: attached.limits.tickets_max,
        in_flight_bytes_max: attached.limits.in_flight_bytes_max,
        value_bytes_max: attached.limits.value_bytes_max,
        server_id: shapes::field(&attached.server_id),
    });
    Ok(())
}

fn options_of(caller: Caller<'_>, options: *const Options) -> Result<kvd_client::Options, Failure> {
    let given = match options.is_null() {
        true => None,
        false => Some(caller.item("the options", options)?),
    };
    let text_of = |what, text: Option<_>| match text {
        Some(text) => caller.optional_text(what, text),
        None => Ok(None),
    };
    let socket = text_of("the socket's path", given.map(|given| given.socket))?;
    let client_id = text_of("the client's name", given.map(|given| given.client_id))?;
    let socket = socket.map_or_else(default_socket, PathBuf::from);
    let client_id =
        client_id.map_or_else(|| format!("pid-{}", std::process::id()), ToOwned::to_owned);
    let mut options = kvd_client::Options::new(socket, client_id);
    if let Some(given) = given {
        set(&mut options.deadline, given.deadline_ms);
        set(&mut options.connect_deadline, given.connect_deadline_ms);
    }
    Ok(options)
}

/// Where the environment says the daemon is, or where it usually is.
fn default_socket() -> PathBuf {
    let socket = std::env::var_os("INFERA_KVD_SOCKET").filter(|socket| !socket.is_empty());
    socket.map_or_else(|| PathBuf::from(DEFAULT_SOCKET), PathBuf::from)
}

/// 0 leaves the default.
fn set(deadline: &mut Duration, milliseconds: u32) {
    if milliseconds > 0 {
        *deadline = Duration::from_millis(milliseconds.into());
    }
}
