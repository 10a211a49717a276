//! Why a request gets no token ids, and so is routed by load alone.

/// The reason, which is also a label of a metric: [`WhyNot::label`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WhyNot {
    /// The body is not JSON, or not a request of its route.
    #[error("the body cannot be read: {0}")]
    Malformed(Box<str>),
    /// The body, the rendered text or the list of ids is above its limit.
    #[error("the request is larger than what is tokenised")]
    TooLarge,
    /// Rendering did not end within its budget.
    #[error("the template needs more work than it may do")]
    TooCostly,
    /// The template raised: the engine will say the same to the client.
    #[error("the template refused the request: {0}")]
    Refused(Box<str>),
    /// The engine will refuse the request for another reason.
    #[error("an engine refuses this request: {0}")]
    Invalid(&'static str),
    /// The request brings its own chat template. Engines refuse that unless told to trust clients; it is never run here.
    #[error("the request brings its own template")]
    OwnTemplate,
    /// The model has no chat template.
    #[error("the model has no chat template")]
    NoTemplate,
    /// The engines encode this model's chats in code of their own, without a template.
    #[error("chats of this model are encoded by the engine, not by a template")]
    NativeEncoder,
    /// The request asks for something whose token ids only the engine knows.
    #[error("only the engine knows the tokens of a request with {0}")]
    Unknowable(&'static str),
    /// The tokenizer failed.
    #[error("the tokenizer failed: {0}")]
    Tokenizer(Box<str>),
}

impl WhyNot {
    /// One word for a metric.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::TooLarge => "too_large",
            Self::TooCostly => "too_costly",
            Self::Refused(_) => "refused",
            Self::Invalid(_) => "invalid",
            Self::OwnTemplate => "own_template",
            Self::NoTemplate => "no_template",
            Self::NativeEncoder => "native_encoder",
            Self::Unknowable(_) => "unknowable",
            Self::Tokenizer(_) => "tokenizer",
        }
    }
}
