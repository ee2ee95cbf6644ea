//! Pure decisions about certificate signing requests: which are approved, signed and for how long, and when they are
//! deleted.

use std::sync::Arc;
use std::time::Duration;

use api::time::{format_seconds, parse};
use api::{Tree, tree};
use thiserror::Error;

pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(super) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub(crate) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub(crate) const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

/// The shortest validity of a certificate.
const SHORTEST: Duration = Duration::from_secs(600);

/// The subject of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Subject {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: usize,
    pub addresses: usize,
    pub emails: usize,
    pub uris: usize,
}

fn has_condition(request: &Tree, kind: &str) -> bool {
    let is = |condition: &Tree| condition.str("type") == kind && matches!(condition.str("status"), "" | "True");
    request.list("status.conditions").iter().any(is)
}

/// Whether the request is approved and waits for a certificate.
pub(crate) fn is_to_sign(request: &Tree) -> bool {
    request.str("status.certificate").is_empty()
        && has_condition(request, "Approved")
        && !has_condition(request, "Denied")
        && !has_condition(request, "Failed")
}

/// Whether the request waits for a decision.
pub(crate) fn is_undecided(request: &Tree) -> bool {
    request.str("status.certificate").is_empty()
        && !has_condition(request, "Approved")
        && !has_condition(request, "Denied")
}

pub(super) fn usages(request: &Tree) -> Vec<&str> {
    request.list("spec.usages").iter().filter_map(Tree::as_str).collect()
}

/// Why a signer does not issue a certificate.
#[derive(Debug, PartialEq, Error)]
pub(super) enum SigningError {
    #[error("subject organization is not system:nodes")]
    Organization,
    #[error("subject common name does not begin with system:node:")]
    CommonName,
    #[error("DNS or IP subjectAltName is required")]
    MissingAltName,
    #[error("{0} subjectAltNames are not allowed")]
    AltNames(&'static str),
    #[error("usages did not match [{0}]")]
    Usages(String),
    #[error("invalid usage for client certificate: {0}")]
    ClientUsage(String),
    #[error("missing required usage for client certificate: client auth")]
    MissingClientAuth,
}

/// Whether the signer issues such a certificate; the reason if it does not.
pub(super) fn check(signer: &str, subject: &Subject, usages: &[&str]) -> Result<(), SigningError> {
    match signer {
        KUBELET_CLIENT => check_kubelet_client(subject, usages),
        KUBELET_SERVING => check_kubelet_serving(subject, usages),
        CLIENT => check_client(usages),
        _ => Ok(()),
    }
}

fn check_kubelet_client(subject: &Subject, usages: &[&str]) -> Result<(), SigningError> {
    check_nodes_group(subject)?;
    let names =
        [(subject.dns_names, "DNS"), (subject.emails, "Email"), (subject.addresses, "IP"), (subject.uris, "URI")];
    refuse_names(&names)?;
    check_node_name(subject)?;
    check_usages(usages, "client auth")
}

fn check_kubelet_serving(subject: &Subject, usages: &[&str]) -> Result<(), SigningError> {
    check_nodes_group(subject)?;
    if subject.dns_names + subject.addresses == 0 {
        return Err(SigningError::MissingAltName);
    }
    refuse_names(&[(subject.emails, "Email"), (subject.uris, "URI")])?;
    check_usages(usages, "server auth")?;
    check_node_name(subject)
}

fn check_nodes_group(subject: &Subject) -> Result<(), SigningError> {
    if subject.organizations == ["system:nodes"] {
        return Ok(());
    }
    Err(SigningError::Organization)
}

fn check_node_name(subject: &Subject) -> Result<(), SigningError> {
    if subject.common_name.starts_with("system:node:") {
        return Ok(());
    }
    Err(SigningError::CommonName)
}

fn refuse_names(names: &[(usize, &'static str)]) -> Result<(), SigningError> {
    match names.iter().find(|(count, _)| *count > 0) {
        Some((_, kind)) => Err(SigningError::AltNames(kind)),
        None => Ok(()),
    }
}

/// The usages must be exactly those of a TLS certificate; `key encipherment` is optional.
fn check_usages(usages: &[&str], purpose: &str) -> Result<(), SigningError> {
    let mut wanted = ["digital signature", "key encipherment", purpose];
    wanted.sort_unstable();
    let fits = |optional: &str| {
        wanted.iter().all(|usage| usages.contains(usage) || *usage == optional)
            && usages.iter().all(|usage| wanted.contains(usage))
    };
    if fits("key encipherment") { Ok(()) } else { Err(SigningError::Usages(wanted.join(" "))) }
}

fn check_client(usages: &[&str]) -> Result<(), SigningError> {
    let strange = |usage: &&&str| !matches!(**usage, "digital signature" | "key encipherment" | "client auth");
    if let Some(usage) = usages.iter().find(strange) {
        return Err(SigningError::ClientUsage((*usage).to_string()));
    }
    if usages.contains(&"client auth") {
        return Ok(());
    }
    Err(SigningError::MissingClientAuth)
}

/// The validity of the certificate.
pub(super) fn duration(request: &Tree, longest: Duration) -> Duration {
    let wanted = request.int("spec.expirationSeconds").and_then(|seconds| u64::try_from(seconds).ok());
    wanted.map_or(longest, |seconds| Duration::from_secs(seconds).max(SHORTEST).min(longest))
}

/// The request with its certificate in the status.
pub(super) fn signed(request: &Tree, pem: &str) -> Tree {
    let mut signed = request.clone();
    signed.child("status").set("certificate", api::base64::encode(pem.as_bytes()));
    signed
}

/// The request with a Failed condition.
pub(super) fn failed(request: &Tree, why: &str, now: i64) -> Tree {
    with_condition(request, "Failed", "SignerValidationFailure", why, now)
}

fn with_condition(request: &Tree, kind: &str, reason: &str, message: &str, now: i64) -> Tree {
    let mut changed = request.clone();
    let condition = tree! {
        "type" => kind,
        "status" => "True",
        "reason" => reason,
        "message" => message,
        "lastUpdateTime" => format_seconds(now),
    };
    changed.child("status").list_entry("conditions").push(condition);
    changed
}

/// A type of request that may be approved automatically.
#[derive(Debug, PartialEq)]
pub(crate) struct AutoApproval {
    /// The subresource that the requestor must be allowed to create.
    pub permission: &'static str,
    message: &'static str,
}

static SELF_NODE: AutoApproval = AutoApproval {
    permission: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
static NODE: AutoApproval = AutoApproval {
    permission: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};

/// The types that a request matches, the most specific one first.
pub(super) fn auto_approvals(request: &Tree, subject: &Subject) -> Vec<&'static AutoApproval> {
    if request.str("spec.signerName") != KUBELET_CLIENT || check_kubelet_client(subject, &usages(request)).is_err() {
        return Vec::new();
    }
    let is_own = request.str("spec.username") == subject.common_name;
    is_own.then_some(&SELF_NODE).into_iter().chain([&NODE]).collect()
}

pub(crate) static SELF_SERVING: AutoApproval = AutoApproval {
    permission: "",
    message: "Auto approving kubelet serving certificate: it names the node's own addresses alone.",
};

/// Whether a node requests its serving certificate, only with addresses of its own Node and of no other Node.
pub(crate) fn is_own_serving(request: &Tree, subject: &Subject, hosts: &[String], nodes: &[Arc<Tree>]) -> bool {
    let is_serving = request.str("spec.signerName") == KUBELET_SERVING
        && check_kubelet_serving(subject, &usages(request)).is_ok()
        && request.str("spec.username") == subject.common_name;
    let name = subject.common_name.strip_prefix("system:node:").unwrap_or_default();
    let has = |node: &Tree, host: &String| {
        node.list("status.addresses").iter().any(|address| address.str("address") == host.as_str())
    };
    let (own, others): (Vec<&Arc<Tree>>, Vec<&Arc<Tree>>) =
        nodes.iter().partition(|node| node.str("metadata.name") == name);
    let is_own = |host: &String| own.iter().any(|node| has(node, host)) && !others.iter().any(|node| has(node, host));
    is_serving && !hosts.is_empty() && hosts.iter().all(is_own)
}

/// The SubjectAccessReview that checks whether the requestor may have the certificate.
pub(super) fn access_review(request: &Tree, recognized: &AutoApproval) -> Tree {
    let mut spec = tree! {
        "user" => request.str("spec.username"),
        "resourceAttributes" => tree! {
            "group" => "certificates.k8s.io",
            "resource" => "certificatesigningrequests",
            "verb" => "create",
            "subresource" => recognized.permission,
        },
    };
    for field in ["uid", "groups", "extra"] {
        let value = request.at("spec").at(field);
        if !value.is_null() {
            spec.set(field, value.clone());
        }
    }
    tree! { "apiVersion" => "authorization.k8s.io/v1", "kind" => "SubjectAccessReview", "spec" => spec }
}

pub(super) fn approved(request: &Tree, recognized: &AutoApproval, now: i64) -> Tree {
    with_condition(request, "Approved", "AutoApproved", recognized.message, now)
}

const HOUR: i64 = 3600;

/// The Unix time at which a request is deleted; `ends` is the expiration of its certificate.
pub(super) fn due(request: &Tree, ends: Option<i64>) -> Option<i64> {
    let seconds = |tree: &Tree| tree.as_str().and_then(|text| parse(text).ok()).map(|time| time.seconds);
    let conditions = request.list("status.conditions");
    if conditions.is_empty() {
        return seconds(request.at("metadata.creationTimestamp")).map(|made| made + 24 * HOUR);
    }
    let is_issued = !request.str("status.certificate").is_empty();
    let of = |condition: &Tree| {
        let old = seconds(condition.at("lastUpdateTime")).map(|at| at + HOUR);
        match condition.str("type") {
            "Denied" | "Failed" => old,
            "Approved" if is_issued => old.into_iter().chain(ends).min(),
            _ => None,
        }
    };
    conditions.iter().filter_map(of).min()
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    fn kubelet() -> Subject {
        Subject {
            common_name: "system:node:a".to_string(),
            organizations: vec!["system:nodes".to_string()],
            ..Subject::default()
        }
    }

    #[test]
    fn each_signer_checks_subject_and_usages() {
        let check = |signer: &str, subject: Subject, usages: &[&str], want: &str| {
            assert_eq!(
                super::check(signer, &subject, usages).err().map(|why| why.to_string()).unwrap_or_default(),
                want
            );
        };
        let client = ["digital signature", "client auth"];
        let serving = ["digital signature", "key encipherment", "server auth"];
        check(KUBELET_CLIENT, kubelet(), &client, "");
        check(KUBELET_CLIENT, kubelet(), &["key encipherment", "digital signature", "client auth"], "");
        check(
            KUBELET_CLIENT,
            kubelet(),
            &serving,
            "usages did not match [client auth digital signature key encipherment]",
        );
        check(KUBELET_CLIENT, Subject { dns_names: 1, ..kubelet() }, &client, "DNS subjectAltNames are not allowed");
        check(KUBELET_CLIENT, Subject::default(), &client, "subject organization is not system:nodes");
        let named = Subject { common_name: "x".to_string(), ..kubelet() };
        check(KUBELET_CLIENT, named, &client, "subject common name does not begin with system:node:");
        check(KUBELET_SERVING, kubelet(), &serving, "DNS or IP subjectAltName is required");
        check(KUBELET_SERVING, Subject { addresses: 1, ..kubelet() }, &serving, "");
        check(
            KUBELET_SERVING,
            Subject { addresses: 1, uris: 1, ..kubelet() },
            &serving,
            "URI subjectAltNames are not allowed",
        );
        check(CLIENT, Subject::default(), &["client auth"], "");
        check(CLIENT, Subject::default(), &["server auth"], "invalid usage for client certificate: server auth");
        check(CLIENT, Subject::default(), &[], "missing required usage for client certificate: client auth");
        check(LEGACY_UNKNOWN, Subject::default(), &["any"], "");
    }

    fn request(signer: &str, user: &str, conditions: &[(&str, i64)]) -> Tree {
        let condition = |(kind, at): &(&str, i64)| {
            tree! { "type" => *kind, "status" => "True", "lastUpdateTime" => format_seconds(*at) }
        };
        tree! {
            "metadata" => tree! { "creationTimestamp" => format_seconds(0) },
            "spec" => tree! {
                "signerName" => signer,
                "username" => user,
                "groups" => list!["system:nodes"],
                "usages" => list!["digital signature", "client auth"],
            },
            "status" => tree! { "conditions" => conditions.iter().map(condition).collect::<Vec<_>>() },
        }
    }

    #[test]
    fn requests_are_pending_approved_or_denied() {
        let check = |conditions: &[(&str, i64)], sign: bool, undecided: bool| {
            let request = request(CLIENT, "a", conditions);
            assert_eq!((is_to_sign(&request), is_undecided(&request)), (sign, undecided), "{conditions:?}");
            let signed = signed(&request, "pem");
            assert!(!is_to_sign(&signed) && !is_undecided(&signed));
        };
        check(&[], false, true);
        check(&[("Approved", 0)], true, false);
        check(&[("Approved", 0), ("Failed", 0)], false, false);
        check(&[("Denied", 0)], false, false);
        assert!(!is_to_sign(&failed(&request(CLIENT, "a", &[("Approved", 0)]), "no", 1)));
    }

    #[test]
    fn recognizes_requests_of_nodes() {
        let ways = |user: &str, signer: &str| {
            let found = auto_approvals(&request(signer, user, &[]), &kubelet());
            found.iter().map(|way| way.permission).collect::<Vec<_>>()
        };
        assert_eq!(ways("system:node:a", KUBELET_CLIENT), ["selfnodeclient", "nodeclient"]);
        assert_eq!(ways("system:bootstrap:x", KUBELET_CLIENT), ["nodeclient"]);
        assert_eq!(ways("system:node:a", CLIENT), [""; 0]);
        let request = request(KUBELET_CLIENT, "system:node:a", &[]);
        let asked = access_review(&request, &SELF_NODE);
        assert_eq!(asked.str("spec.resourceAttributes.subresource"), "selfnodeclient");
        assert_eq!((asked.str("spec.user"), asked.list("spec.groups").len()), ("system:node:a", 1));
        assert!(!is_undecided(&approved(&request, &NODE, 5)));
    }

    #[test]
    fn serving_certificates_contain_only_own_addresses() {
        let node = |name: &str, addresses: &[&str]| {
            let address = |address: &&str| tree! { "type" => "InternalIP", "address" => *address };
            let addresses: Vec<Tree> = addresses.iter().map(address).collect();
            Arc::new(tree! {
                "metadata" => tree! { "name" => name }, "status" => tree! { "addresses" => addresses },
            })
        };
        let nodes = [node("a", &["10.0.0.1", "a.example", "10.0.0.9"]), node("b", &["10.0.0.2", "10.0.0.9"])];
        let check = |user: &str, usage: &str, hosts: &[&str], want: bool| {
            let mut asked = request(KUBELET_SERVING, user, &[]);
            asked.child("spec").set("usages", list!["digital signature", usage]);
            let subject = Subject { addresses: hosts.len(), ..kubelet() };
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            assert_eq!(is_own_serving(&asked, &subject, &hosts, &nodes), want, "{user} {usage} {hosts:?}");
        };
        check("system:node:a", "server auth", &["10.0.0.1", "a.example"], true);
        check("system:node:a", "server auth", &[], false);
        check("system:node:a", "server auth", &["10.0.0.1", "10.0.0.2"], false);
        check("system:node:a", "server auth", &["10.0.0.9"], false);
        check("system:node:a", "server auth", &["kubernetes.default"], false);
        check("system:node:a", "client auth", &["10.0.0.1"], false);
        check("system:node:b", "server auth", &["10.0.0.1"], false);
        check("system:bootstrap:x", "server auth", &["10.0.0.1"], false);
    }

    #[test]
    fn certificate_duration_is_bounded() {
        let check = |asked: Option<i64>, want: u64| {
            let mut request = request(CLIENT, "a", &[]);
            if let Some(seconds) = asked {
                request.child("spec").set("expirationSeconds", seconds);
            }
            assert_eq!(duration(&request, Duration::from_secs(100_000)), Duration::from_secs(want));
        };
        check(None, 100_000);
        check(Some(5), 600);
        check(Some(7200), 7200);
        check(Some(200_000), 100_000);
    }

    #[test]
    fn old_requests_are_deleted() {
        let check = |conditions: &[(&str, i64)], issued: bool, ends: Option<i64>, want: Option<i64>| {
            let mut request = request(CLIENT, "a", conditions);
            if issued {
                request = signed(&request, "pem");
            }
            assert_eq!(due(&request, ends), want, "{conditions:?}");
        };
        check(&[], false, None, Some(24 * HOUR));
        check(&[("Approved", 10)], false, None, None);
        check(&[("Approved", 10)], true, Some(9 * HOUR), Some(10 + HOUR));
        check(&[("Approved", 10)], true, Some(50), Some(50));
        check(&[("Denied", 10)], false, None, Some(10 + HOUR));
        check(&[("Approved", 10), ("Failed", 20)], false, None, Some(20 + HOUR));
    }
}
