//! Real binaries under test: harness, safety cases, fuzz corpora.
