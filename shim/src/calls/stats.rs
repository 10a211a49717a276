//! The daemon's figures.

use crate::failure::Failure;
use crate::foreign::Caller;
use crate::registry;
use crate::shapes::{self, Stat};

pub(crate) fn stats(
    caller: Caller<'_>,
    client: shapes::Client,
    stats: *mut Stat,
    capacity: usize,
    count: *mut usize,
) -> Result<(), Failure> {
    let mut count_place = caller.output("the place for the count", count)?;
    count_place.fill(0);
    let mut places = caller.outputs("the array for the figures", stats, capacity)?;
    let figures = registry::client(client)?.stats()?;
    count_place.fill(figures.len());
    for (index, (name, value)) in figures.iter().enumerate().take(places.len()) {
        places.set(index, Stat { value: *value, name: shapes::field(name) });
    }
    Ok(())
}
