//! Plugins are compared with the reference, and whole decisions with invariants, in random clusters. A seed gives one
//! cluster; `TIPHYS_SEEDS` sets how many, as a count or `FROM..TO`.

mod compare;
mod generate;
mod hints;
mod object_store;
mod settings;
mod simulate;

/// The seeds of a test.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("TIPHYS_SEEDS") else { return 0..usual };
    let number = |text: &str| text.parse().expect("TIPHYS_SEEDS is a number, or FROM..TO");
    text.split_once("..").map_or_else(|| 0..number(&text), |(from, to)| number(from)..number(to))
}
