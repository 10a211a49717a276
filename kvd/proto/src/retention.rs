//! Retention classes: how much a block is worth keeping, and how far down it may travel.

/// A retention class, ordered from the first to go to the last to go.
///
/// The discriminants are the reference's priorities. `None` and `Ephemeral` blocks never leave
/// host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Retention {
    /// Evicted before anything else.
    None = 0,
    /// Of use for the current burst of work only.
    Ephemeral = 10,
    /// The default.
    Short = 50,
    /// Worth a lower tier.
    Long = 100,
}

impl Retention {
    /// Every class, lowest first; `ALL[class.index()] == class`.
    pub const ALL: [Self; 4] = [Self::None, Self::Ephemeral, Self::Short, Self::Long];

    /// Position of the class in [`Retention::ALL`], 0..4.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::None => 0,
            Self::Ephemeral => 1,
            Self::Short => 2,
            Self::Long => 3,
        }
    }

    /// The word that stands for the class in both protocols.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Ephemeral => "ephemeral",
            Self::Short => "short",
            Self::Long => "long",
        }
    }

    /// The class that `word` names; exact, lower case only.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::Retention;

    #[test]
    fn classes_are_ordered_and_indexed() {
        assert!(Retention::ALL.is_sorted());
        for (index, class) in Retention::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), index);
            assert_eq!(Retention::parse(class.as_str()), Some(class));
        }
        assert_eq!(Retention::parse("Long"), None);
        assert_eq!(Retention::parse(""), None);
    }
}
