//! Where blocks are.

use crate::codes::Miss;
use crate::failure::Failure;
use crate::foreign::Caller;
use crate::registry;
use crate::shapes::{self, Bytes, Located, Namespace};

pub(crate) fn locate(
    caller: Caller<'_>,
    client: shapes::Client,
    space: *const Namespace,
    (keys, count): (*const Bytes, usize),
    flags: u32,
    located: *mut Located,
) -> Result<(), Failure> {
    let mut places = caller.outputs("the array for the answers", located, count)?;
    places.fill(Located::miss(Miss::NotAsked as u8));
    let space = super::namespace(caller, space)?;
    let keys = super::keys(caller, keys, count)?;
    let prefix = super::wants_prefix(flags)?;
    let answer = registry::client(client)?.locate(space, &keys, prefix);
    for (index, item) in answer.items.into_iter().enumerate() {
        places.set(
            index,
            match item {
                Ok(present) => Located {
                    len: present.len_bytes,
                    load_us: u32::try_from(present.load.as_micros()).unwrap_or(u32::MAX),
                    miss: Miss::None as u8,
                    tier: present.tier.code(),
                },
                Err(reason) => Located::miss(reason.code()),
            },
        );
    }
    super::end(answer.trouble)
}
