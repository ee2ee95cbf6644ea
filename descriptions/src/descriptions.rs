//! The texts of `kubectl explain`, as upstream writes them beside its types.

use crate::row::Row;

/// Texts by type and field. It is some 1.5 MB: make it, use it, drop it.
pub struct Descriptions {
    /// Sorted by type, then field; the type's own text stands under the field "".
    rows: Vec<Row>,
}

impl Descriptions {
    /// The text of a field: `of_field("io.k8s.api.core.v1.PodSpec", "containers")`.
    pub fn of_field(&self, ty: &str, field: &str) -> Option<&str> {
        let found = self.rows.binary_search_by(|(t, f, _)| (&**t, &**f).cmp(&(ty, field)));
        found.ok().map(|at| &*self.rows[at].2)
    }

    /// The text of a type: `of_type("io.k8s.api.core.v1.Pod")`.
    pub fn of_type(&self, ty: &str) -> Option<&str> {
        self.of_field(ty, "")
    }
}

/// Every text of every type that a served kind can reach; none without the feature `descriptions`.
pub fn descriptions() -> Descriptions {
    #[cfg(feature = "descriptions")]
    let mut rows = crate::upstream::rows();
    #[cfg(not(feature = "descriptions"))]
    let mut rows: Vec<Row> = Vec::new();
    rows.sort_unstable();
    Descriptions { rows }
}

#[cfg(all(test, feature = "descriptions"))]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_by_type_and_field() {
        let texts = descriptions();
        let containers = texts.of_field("io.k8s.api.core.v1.PodSpec", "containers").expect("a text");
        assert!(containers.starts_with("List of containers belonging to the pod."), "{containers}");
        let pod = texts.of_type("io.k8s.api.core.v1.Pod").expect("a text");
        assert!(pod.starts_with("Pod is a collection of containers"), "{pod}");
        assert_eq!(texts.of_field("io.k8s.api.core.v1.PodSpec", "nothing"), None);
        assert!(texts.rows.len() > 2500, "{}", texts.rows.len());
    }
}
