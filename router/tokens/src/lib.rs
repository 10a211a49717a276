//! Token ids of requests: chat templates and tokenizers, as the engines apply them.
//!
//! A router that wants to know which blocks a request will need has to know its tokens, before any engine has seen it. This
//! room makes the same ids as the engines do: it prepares messages as vLLM or SGLang does, renders the model's template as
//! Transformers does, and encodes the text with the model's tokenizer. Where it cannot, it says why ([`WhyNot`]), and the
//! request is routed by load alone.
//!
//! Everything is synchronous and meant for threads of its own: one [`Tokens`] a model is shared by all of them.
//!
//! Read in this order:
//! 1. [`request`] – the body;
//! 2. [`normalise`] – what an engine makes of it before the template;
//! 3. [`template`], with [`environment`] and [`content_form`] – rendering;
//! 4. [`tokenizer`], with [`cache`] – from text to ids;
//! 5. [`tokens`] – the way of one request through all of them;
//! 6. [`files`] – what is read of a model.
//!
//! **Invariant:** no request and no template takes more than its budget of work, text and memory.
//! **Invariant:** a template that a request brings is never run.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod cache;
mod content_form;
mod continued;
mod environment;
mod files;
mod json;
mod normalise;
mod python_json;
mod python_repr;
mod request;
mod template;
mod tokenizer;
mod tokens;
mod why_not;

pub use files::LoadError;
pub use json::{Json, Map};
pub use normalise::{Engine, Manner};
pub use request::{Request, Route};
pub use tokenizer::CANARY;
pub use tokens::{Limits, PARITY_CHATS, Prompt, Tokens};
pub use why_not::WhyNot;
