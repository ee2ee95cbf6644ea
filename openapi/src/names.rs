//! Names that upstream derives from groups, versions and kinds.

/// `rbac.authorization.k8s.io` → `RbacAuthorization`, the core group → `Core`.
pub(crate) fn group_words(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_string();
    }
    group.trim_end_matches(".k8s.io").split('.').map(capitalized).collect()
}

/// `rbacAuthorization_v1`
pub(crate) fn tag(group: &str, version: &str) -> String {
    format!("{}_{version}", group_tag(group))
}

/// `rbacAuthorization`
pub(crate) fn group_tag(group: &str) -> String {
    let words = group_words(group);
    let mut chars = words.chars();
    chars.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(chars).collect()
}

/// `api/v1` or `apis/apps/v1`: the document's name in the v3 index and the prefix of its paths.
pub(crate) fn prefix(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

pub(crate) fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

/// `a Pod`, `an Event`, and without an article for a plural such as `Endpoints`.
pub(crate) fn with_article(noun: &str) -> String {
    let plural = noun.ends_with('s') && !noun.ends_with("ss");
    let vowel = noun.starts_with(['A', 'E', 'I', 'O', 'U', 'a', 'e', 'i', 'o', 'u']);
    match (plural, vowel) {
        (true, _) => noun.to_string(),
        (_, true) => format!("an {noun}"),
        (_, false) => format!("a {noun}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_groups_to_words() {
        let check = |group: &str, words: &str, tag: &str| {
            assert_eq!(group_words(group), words);
            assert_eq!(super::tag(group, "v1"), tag);
        };
        check("", "Core", "core_v1");
        check("apps", "Apps", "apps_v1");
        check("rbac.authorization.k8s.io", "RbacAuthorization", "rbacAuthorization_v1");
        check("flowcontrol.apiserver.k8s.io", "FlowcontrolApiserver", "flowcontrolApiserver_v1");
        check("stable.example.com", "StableExampleCom", "stableExampleCom_v1");
    }

    #[test]
    fn adds_articles() {
        assert_eq!(with_article("Pod"), "a Pod");
        assert_eq!(with_article("Event"), "an Event");
        assert_eq!(with_article("Endpoints"), "Endpoints");
        assert_eq!(with_article("StorageClass"), "a StorageClass");
    }
}
