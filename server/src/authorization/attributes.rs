//! The attributes of a request that authorizers decide on.

use std::borrow::Cow;

use api::selector::{FieldSelector, Operator, Requirement, Selector};
use api::{Str, Tree};
use kinds::User;

use crate::request::info::{Query, RequestInfo};

#[derive(Debug, Clone)]
pub(crate) struct Attributes<'a> {
    pub user: &'a User,
    pub verb: &'a str,
    pub namespace: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub name: Cow<'a, str>,
    /// Set for non-resource requests; everything above except the verb is empty then.
    pub path: Option<&'a str>,
    /// The selector terms that every object of the response fulfils, as far as they could be parsed.
    pub fields: FieldSelector,
    pub labels: Vec<Requirement>,
}

impl<'a> Attributes<'a> {
    /// A verb on a resource; the rest is empty.
    pub(crate) fn resource(user: &'a User, verb: &'a str, group: &'a str, resource: &'a str) -> Attributes<'a> {
        Attributes {
            user,
            verb,
            namespace: "",
            group,
            version: "*",
            resource,
            subresource: "",
            name: Cow::Borrowed(""),
            path: None,
            fields: FieldSelector::everything(),
            labels: Vec::new(),
        }
    }

    pub(crate) fn for_path(user: &'a User, verb: &'a str, path: &'a str) -> Attributes<'a> {
        Attributes { version: "", path: Some(path), ..Attributes::resource(user, verb, "", "") }
    }

    /// The attributes of a request.
    pub(crate) fn of(user: &'a User, info: &'a RequestInfo, query: &Query) -> Attributes<'a> {
        if !info.is_resource {
            return Attributes::for_path(user, info.verb, &info.path);
        }
        let mut attributes = Attributes {
            namespace: &info.namespace,
            version: &info.version,
            subresource: &info.subresource,
            name: Cow::Borrowed(&info.name),
            ..Attributes::resource(user, info.verb, &info.group, &info.resource)
        };
        if matches!(info.verb, "list" | "watch" | "deletecollection") {
            attributes.read_selectors(query);
        }
        attributes
    }

    /// Adds selectors in their textual form; an empty selector selects everything.
    pub(crate) fn with_selectors(mut self, fields: &str, labels: &str) -> Attributes<'a> {
        self.set_selectors(fields, labels);
        self
    }

    fn set_selectors(&mut self, fields: &str, labels: &str) {
        if !fields.is_empty() {
            self.fields = FieldSelector::parse(fields).unwrap_or_default();
        }
        if !labels.is_empty() {
            self.labels = Selector::parse(labels).map_or_else(|_| Vec::new(), |all| all.requirements().to_vec());
        }
    }

    /// A list that selects a single object counts as a read of that object.
    fn read_selectors(&mut self, query: &Query) {
        self.set_selectors(query.get("fieldSelector"), query.get("labelSelector"));
        if self.verb == "deletecollection" || !self.name.is_empty() {
            return;
        }
        let name = self.fields.exact("metadata.name");
        if let Some(name) = name.filter(|name| api::validation::path_segment_name(name).is_empty()) {
            self.name = Cow::Owned(name.to_string());
        }
    }

    /// The attributes in the spec of an access review.
    pub(crate) fn from_review(user: &'a User, spec: &'a Tree) -> Attributes<'a> {
        let path = spec.at("nonResourceAttributes");
        if !path.is_null() {
            return Attributes::for_path(user, path.str("verb"), path.str("path"));
        }
        let requested = spec.at("resourceAttributes");
        Attributes {
            namespace: requested.str("namespace"),
            version: requested.str("version"),
            subresource: requested.str("subresource"),
            name: Cow::Borrowed(requested.str("name")),
            fields: fields_of(requested.at("fieldSelector")),
            labels: labels_of(requested.at("labelSelector")),
            ..Attributes::resource(user, requested.str("verb"), requested.str("group"), requested.str("resource"))
        }
    }

    /// The resource with its part: `pods/log`.
    pub(crate) fn whole_resource(&self) -> Cow<'a, str> {
        if self.subresource.is_empty() {
            return Cow::Borrowed(self.resource);
        }
        Cow::Owned(format!("{}/{}", self.resource, self.subresource))
    }

    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch")
    }
}

/// Terms with one value; like upstream, invalid terms are skipped.
fn fields_of(selector: &Tree) -> FieldSelector {
    let raw = selector.str("rawSelector");
    if !raw.is_empty() {
        return FieldSelector::parse(raw).unwrap_or_default();
    }
    let term = |requirement: &Tree| {
        let [value] = requirement.list("values") else { return None };
        let operator = match requirement.str("operator") {
            "In" => "=",
            "NotIn" => "!=",
            _ => return None,
        };
        let value = api::selector::escape(value.as_str()?);
        Some(format!("{}{operator}{value}", requirement.str("key")))
    };
    let terms: Vec<String> = selector.list("requirements").iter().filter_map(term).collect();
    FieldSelector::parse(&terms.join(",")).unwrap_or_default()
}

fn labels_of(selector: &Tree) -> Vec<Requirement> {
    let raw = selector.str("rawSelector");
    if !raw.is_empty() {
        return Selector::parse(raw).map_or_else(|_| Vec::new(), |all| all.requirements().to_vec());
    }
    let requirement = |tree: &Tree| {
        let operator = match tree.str("operator") {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => return None,
        };
        let values = tree.list("values").iter().filter_map(Tree::as_str).map(Str::new).collect();
        Requirement::new(tree.str("key"), operator, values).ok()
    };
    selector.list("requirements").iter().filter_map(requirement).collect()
}

#[cfg(test)]
impl<'a> Attributes<'a> {
    /// For tables: `VERB [GROUP:]RESOURCE[/PART][@NAMESPACE] [NAME]`, or `VERB /PATH`.
    pub(crate) fn parse(user: &'a User, text: &'a str) -> Attributes<'a> {
        let (verb, rest) = text.split_once(' ').expect("a verb");
        if rest.starts_with('/') {
            return Attributes::for_path(user, verb, rest);
        }
        let (rest, name) = rest.split_once(' ').unwrap_or((rest, ""));
        let (rest, namespace) = rest.split_once('@').unwrap_or((rest, ""));
        let (group, rest) = rest.split_once(':').unwrap_or(("", rest));
        let (resource, subresource) = rest.split_once('/').unwrap_or((rest, ""));
        Attributes {
            namespace,
            subresource,
            name: Cow::Borrowed(name),
            ..Attributes::resource(user, verb, group, resource)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_selectors_of_reviews() {
        let spec = crate::registry::admission::tests::json(
            r#"{"resourceAttributes":{"verb":"list","resource":"pods","namespace":"a",
                "fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["n"]},
                                                 {"key":"x","operator":"Exists"}]},
                "labelSelector":{"rawSelector":"a=b,c"}}}"#,
        );
        let user = User::default();
        let attributes = Attributes::from_review(&user, &spec);
        assert_eq!(attributes.fields.exact("spec.nodeName"), Some("n"));
        assert_eq!(attributes.fields.terms().len(), 1, "what cannot be said is left out");
        assert_eq!(attributes.labels.len(), 2);
        assert_eq!((attributes.namespace, attributes.path), ("a", None));
        let spec = crate::registry::admission::tests::json(r#"{"nonResourceAttributes":{"verb":"get","path":"/x"}}"#);
        assert_eq!(Attributes::from_review(&user, &spec).path, Some("/x"));
    }
}
