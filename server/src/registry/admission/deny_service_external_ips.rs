//! Services get no new external addresses.

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation};

pub(super) fn validate(
    attributes: &Attributes<'_>,
    service: Option<&Tree>,
    old: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let write = attributes.is("", "Service", Operation::Create) || attributes.is("", "Service", Operation::Update);
    match service.filter(|service| write && has_new(service, old)) {
        Some(_) => Err(attributes.forbidden("Use of external IPs is denied by admission control")),
        None => Ok(()),
    }
}

fn has_new(service: &Tree, old: Option<&Tree>) -> bool {
    let before = old.map_or(&[][..], |old| old.list("spec.externalIPs"));
    service.list("spec.externalIPs").iter().any(|address| !before.contains(address))
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn addresses_can_only_become_fewer() {
        let service = |addresses: &str| json(&format!(r#"{{"spec":{{"externalIPs":{addresses}}}}}"#));
        let two = service(r#"["1.1.1.1","2.2.2.2"]"#);
        assert!(has_new(&two, None));
        assert!(!has_new(&service("[]"), None));
        assert!(!has_new(&service(r#"["2.2.2.2"]"#), Some(&two)));
        assert!(has_new(&service(r#"["3.3.3.3"]"#), Some(&two)));
    }
}
