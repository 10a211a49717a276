//! Numbers that name things across the socket. Newtypes, so that they cannot be swapped.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl core::fmt::Display for $name {
            fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(out)
            }
        }
    };
}

id! {
    /// One attached connection. Never reused while the daemon lives.
    SessionId
}
id! {
    /// The right to read an extent; pins it. 0 is never granted.
    LeaseId
}
id! {
    /// The right to write an extent (protocol 1 calls it a lease token). 0 is never granted.
    TicketId
}
id! {
    /// One incarnation of the daemon. Leases, tickets and offsets of another epoch mean nothing.
    Epoch
}
