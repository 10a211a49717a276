//! The suite `fleet`: a simulated fleet, the real router's decisions, and what they do to the time to the first token.
//!
//! The machines are simulated, event by event: [`worker`] (one prompt at a time, loads meanwhile, answers side by side),
//! [`host`] (memory and disk that workers share, links with queues). The router is the real one: [`listener`] folds
//! encoded events into the real index, [`router`] asks it and picks with the real score, account and fit. What the machines
//! really are ([`truth`]) is drawn apart from what the router believes; events come late ([`feed`]).
//!
//! [`workload`] says what is asked, [`world`] lets it happen by an [`agenda`], [`outcome`] adds it up, [`oracle`] is the
//! one who knows, [`scene`] is a fleet with a workload.

pub mod agenda;
pub mod draw;
pub mod feed;
pub mod host;
pub mod listener;
pub mod lru;
pub mod oracle;
pub mod outcome;
pub mod request;
pub mod router;
pub mod scene;
pub mod truth;
pub mod worker;
pub mod workload;
pub mod world;
