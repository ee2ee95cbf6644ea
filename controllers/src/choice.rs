//! Selects the controllers that run, from the values of `--controllers`.

use crate::framework::Descriptor;
use crate::list::CONTROLLERS;
use thiserror::Error;

/// Upstream's rule: the first entry that names a controller decides; `*` means all controllers that are enabled by
/// default.
pub(crate) fn is_enabled(controller: &Descriptor, chosen: &[String]) -> bool {
    let means = |text: &str| text == controller.name || (text == controller.alias && !text.is_empty());
    for text in chosen {
        match text.strip_prefix('-') {
            _ if means(text) => return true,
            Some(text) if means(text) => return false,
            _ => {}
        }
    }
    controller.on_by_default && chosen.iter().any(|text| text == "*")
}

/// A name that is not the name of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown controller {0:?}; the controllers are {known}", known = names().collect::<Vec<_>>().join(", "))]
pub struct UnknownController(String);

/// Checks the values of `--controllers`.
pub fn check(chosen: &[String]) -> Result<(), UnknownController> {
    // An empty list is valid: it selects no controller.
    let known = |text: &&String| {
        let name = text.strip_prefix('-').unwrap_or(text);
        let means = |controller: &Descriptor| controller.name == name || controller.alias == name;
        matches!(name, "" | "*") || CONTROLLERS.iter().any(means)
    };
    match chosen.iter().find(|text| !known(text)) {
        None => Ok(()),
        Some(text) => Err(UnknownController(text.clone())),
    }
}

/// Whether the named controller runs with this selection.
pub fn runs(name: &str, chosen: &[String]) -> bool {
    CONTROLLERS.iter().any(|controller| controller.name == name && is_enabled(controller, chosen))
}

/// The names of all controllers.
pub fn names() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.iter().map(|controller| controller.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chosen: &str) -> Vec<String> {
        chosen.split(',').map(str::to_string).collect()
    }

    #[test]
    fn selects_controllers_like_upstream() {
        let row = |name, alias, on_by_default| Descriptor {
            name,
            alias,
            account: "",
            resource: None,
            on_by_default,
            workers: |_| 1,
            start: |_, _| None,
        };
        let rows = [row("a-controller", "a", true), row("b-controller", "b", true), row("c-controller", "c", false)];
        let check = |chosen: &str, want: &str| {
            let chosen = split(chosen);
            let on: Vec<&str> = rows.iter().filter(|row| is_enabled(row, &chosen)).map(|row| row.alias).collect();
            assert_eq!(on.concat(), want, "{chosen:?}");
        };
        check("*", "ab");
        check("*,-a-controller", "b");
        check("*,-a", "b");
        check("-a,a,*", "b");
        check("a-controller", "a");
        check("*,c", "abc");
        check("-*", "");
        check("", "");
    }

    #[test]
    fn reports_unknown_controllers() {
        assert!(check(&split("nonsense")).expect_err("refused").to_string().contains("\"nonsense\""));
        assert_eq!(check(&split("*,-serviceaccount-controller,-serviceaccount")), Ok(()));
    }

    #[test]
    fn controller_names_are_unique() {
        let mut all: Vec<&str> = CONTROLLERS.iter().flat_map(|row| [row.name, row.alias]).collect();
        all.retain(|name| !name.is_empty());
        all.sort_unstable();
        let twice: Vec<&[&str]> = all.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}
