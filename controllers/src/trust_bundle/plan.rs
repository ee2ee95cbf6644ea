//! One ClusterTrustBundle, named after its content.

use std::sync::Arc;

use api::{Tree, tree};
use aws_lc_rs::digest;

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub create: Option<Tree>,
    pub update: Option<Tree>,
    pub delete: Vec<Arc<Tree>>,
}

fn name(root_ca: &str) -> String {
    let hash = digest::digest(&digest::SHA256, root_ca.as_bytes());
    let text = stdx::hex::encode(&hash.as_ref()[..12]);
    format!("{}:{text}", SIGNER.replace('/', ":"))
}

pub(super) fn plan(bundles: &[Arc<Tree>], root_ca: &str) -> Plan {
    let name = name(root_ca);
    let (mine, others): (Vec<_>, Vec<_>) =
        bundles.iter().cloned().partition(|bundle| bundle.str("metadata.name") == name);
    let mut plan = Plan { delete: others, ..Plan::default() };
    match mine.first() {
        Some(bundle) if bundle.str("spec.trustBundle") == root_ca => {}
        Some(bundle) => {
            let mut changed = (**bundle).clone();
            changed.child("spec").set("trustBundle", root_ca);
            plan.update = Some(changed);
        }
        None => {
            plan.create = Some(tree! {
                "apiVersion" => "certificates.k8s.io/v1",
                "kind" => "ClusterTrustBundle",
                "metadata" => tree! { "name" => name },
                "spec" => tree! { "signerName" => SIGNER, "trustBundle" => root_ca },
            });
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maintains_one_bundle() {
        assert_eq!(name("abc"), "kubernetes.io:kube-apiserver-serving:ba7816bf8f01cfea414140de");
        let made = Arc::new(plan(&[], "abc").create.expect("it is made"));
        assert_eq!(plan(std::slice::from_ref(&made), "abc"), Plan::default());
        let other = plan(std::slice::from_ref(&made), "abd");
        assert!(other.create.is_some() && other.delete == [made.clone()]);
        let mut changed = (*made).clone();
        changed.child("spec").set("trustBundle", "x");
        assert_eq!(plan(&[Arc::new(changed)], "abc").update, Some((*made).clone()));
    }
}
