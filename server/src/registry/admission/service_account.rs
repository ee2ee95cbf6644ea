//! ServiceAccount: every pod runs as a service account, by default as `default`. The account's token is mounted into
//! its containers. A pod without image pull secrets gets those of the account.

use std::sync::Arc;

use api::status::Status;
use api::{Map, Tree, list, tree};

use super::{Attributes, Operation};

const DEFAULT: &str = "default";
const MIRROR: &str = "kubernetes.io/config.mirror";
const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
/// Slightly more than an hour, by which tokens of pods can be recognized.
const TOKEN_SECONDS: i64 = 3607;

/// A controller creates the default account of a namespace shortly after the namespace.
pub(super) fn is_ready(attributes: &Attributes<'_>, pod: &Tree) -> bool {
    if !attributes.is("", "Pod", Operation::Create) || is_mirror(pod) || account_name(pod) != DEFAULT {
        return true;
    }
    find(attributes, DEFAULT).is_some()
}

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    pod: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if !attributes.is("", "Pod", Operation::Create) {
        return Ok(());
    }
    if is_mirror(pod) {
        return refuse(attributes, check_mirror(pod));
    }
    let name = account_name(pod).to_string();
    let account = require(attributes, &name)?;
    pod.child("spec").set("serviceAccountName", &name);
    pod.child("spec").set("serviceAccount", &name);
    apply_account(pod, &account, &crate::common::ids::suffix());
    refuse(attributes, check_secrets(pod, &account))
}

pub(super) fn validate(
    attributes: &Attributes<'_>,
    pod: Option<&Tree>,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let Some(pod) = pod.filter(|_| attributes.is_kind("", "Pod")) else { return Ok(()) };
    let create = attributes.is("", "Pod", Operation::Create);
    if create && is_mirror(pod) {
        return refuse(attributes, check_mirror(pod));
    }
    let ephemeral = attributes.operation == Operation::Update && attributes.subresource == "ephemeralcontainers";
    if !create && !ephemeral {
        return Ok(());
    }
    let account = require(attributes, pod.str("spec.serviceAccountName"))?;
    let checked = if create { check_secrets(pod, &account) } else { check_ephemeral_secrets(pod, &account) };
    refuse(attributes, checked)
}

/// Why a pod may not be created: what a mirror pod may not have, and secrets that the account does not allow.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum PodRejection {
    #[error("a mirror pod may not reference service accounts")]
    MirrorAccount,
    #[error("a mirror pod may not reference secrets")]
    MirrorSecrets,
    #[error("a mirror pod may not use ServiceAccountToken volume projections")]
    MirrorToken,
    #[error(
        "volume with secret.secretName=\"{secret}\" is not allowed because service account {account} does not reference that secret"
    )]
    Volume { secret: String, account: String },
    #[error(
        "imagePullSecrets[{index}].name=\"{secret}\" is not allowed because service account {account} does not reference that imagePullSecret"
    )]
    PullSecret { index: usize, secret: String, account: String },
    /// `container` has its type too: `init container a`; `variable` is `envFrom` or `envVar NAME`.
    #[error(
        "{container} with {variable} referencing secret.secretName=\"{secret}\" is not allowed because service account {account} does not reference that secret"
    )]
    Environment { container: String, variable: String, secret: String, account: String },
}

fn refuse(attributes: &Attributes<'_>, checked: Result<(), PodRejection>) -> Result<(), Status> {
    checked.map_err(|why| attributes.forbidden(why))
}

fn find(attributes: &Attributes<'_>, name: &str) -> Option<Arc<Tree>> {
    attributes.registry.storage.object("serviceaccounts", &format!("{}/{name}", attributes.namespace))
}

fn require(attributes: &Attributes<'_>, name: &str) -> Result<Arc<Tree>, Status> {
    find(attributes, name).ok_or_else(|| {
        let namespace = attributes.namespace;
        attributes.forbidden(format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        ))
    })
}

/// Whether the pod mirrors a static pod: the node owns its content, which may not be changed.
fn is_mirror(pod: &Tree) -> bool {
    pod.map("metadata.annotations").contains(MIRROR)
}

fn account_name(pod: &Tree) -> &str {
    match pod.str("spec.serviceAccountName") {
        "" => DEFAULT,
        name => name,
    }
}

/// Mounts the account's token if required, and copies the account's pull secrets to the pod.
fn apply_account(pod: &mut Tree, account: &Tree, suffix: &str) {
    if should_mount(pod, account) {
        mount_token(pod.child("spec"), suffix);
    }
    let secrets = account.list("imagePullSecrets");
    if pod.list("spec.imagePullSecrets").is_empty() && !secrets.is_empty() {
        pod.child("spec").set("imagePullSecrets", secrets.to_vec());
    }
}

/// The pod's setting takes precedence over the account's.
fn should_mount(pod: &Tree, account: &Tree) -> bool {
    let flag = |tree: &Tree| tree.as_bool();
    flag(pod.at("spec.automountServiceAccountToken"))
        .or(flag(account.at("automountServiceAccountToken")))
        .unwrap_or(true)
}

fn mount_token(spec: &mut Tree, suffix: &str) {
    let there =
        spec.list("volumes").iter().map(|volume| volume.str("name")).find(|name| name.starts_with(VOLUME_PREFIX));
    let has_volume = there.is_some();
    let name = there.map_or_else(|| format!("{VOLUME_PREFIX}{suffix}"), str::to_string);
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in spec.list_mut(list) {
            mounted |= mount(container, &name);
        }
    }
    if mounted && !has_volume {
        spec.list_entry("volumes").push(token_volume(&name));
    }
}

/// Mounts the token; false if the container has its own mount at the path.
fn mount(container: &mut Tree, volume: &str) -> bool {
    if container.list("volumeMounts").iter().any(|mount| mount.str("mountPath") == TOKEN_PATH) {
        return false;
    }
    container
        .list_entry("volumeMounts")
        .push(tree! { "name" => volume, "readOnly" => true, "mountPath" => TOKEN_PATH });
    true
}

fn token_volume(name: &str) -> Tree {
    let token = tree! { "expirationSeconds" => TOKEN_SECONDS, "path" => "token" };
    let authority = tree! {
        "name" => "kube-root-ca.crt", "items" => list![tree! { "key" => "ca.crt", "path" => "ca.crt" }],
    };
    let field = tree! { "apiVersion" => "v1", "fieldPath" => "metadata.namespace" };
    let namespace = tree! { "items" => list![tree! { "path" => "namespace", "fieldRef" => field }] };
    let sources = list![
        tree! { "serviceAccountToken" => token },
        tree! { "configMap" => authority },
        tree! { "downwardAPI" => namespace },
    ];
    tree! { "name" => name, "projected" => tree! { "sources" => sources, "defaultMode" => 0o644 } }
}

fn check_mirror(pod: &Tree) -> Result<(), PodRejection> {
    if !pod.str("spec.serviceAccountName").is_empty() {
        return Err(PodRejection::MirrorAccount);
    }
    let spec = pod.at("spec");
    if references_secrets(spec) {
        return Err(PodRejection::MirrorSecrets);
    }
    let mut sources = spec.list("volumes").iter().flat_map(|volume| volume.list("projected.sources"));
    if sources.any(|source| source.has("serviceAccountToken")) {
        return Err(PodRejection::MirrorToken);
    }
    Ok(())
}

fn references_secrets(spec: &Tree) -> bool {
    const VOLUME_SECRETS: &[&str] = &[
        "azureFile.secretName",
        "cephfs.secretRef.name",
        "cinder.secretRef.name",
        "flexVolume.secretRef.name",
        "rbd.secretRef.name",
        "secret.secretName",
        "scaleIO.secretRef.name",
        "iscsi.secretRef.name",
        "storageos.secretRef.name",
        "csi.nodePublishSecretRef.name",
    ];
    let volume_has = |volume: &Tree| {
        VOLUME_SECRETS.iter().any(|path| !volume.str(path).is_empty())
            || volume.list("projected.sources").iter().any(|source| source.has("secret"))
    };
    let containers = ["initContainers", "containers", "ephemeralContainers"];
    !spec.list("imagePullSecrets").is_empty()
        || spec.list("volumes").iter().any(volume_has)
        || containers.iter().flat_map(|list| spec.list(list)).any(|container| {
            container.list("envFrom").iter().any(|source| source.has("secretRef"))
                || container.list("env").iter().any(|env| env.at("valueFrom").has("secretKeyRef"))
        })
}

/// An account may restrict its pods to its own secrets.
fn check_secrets(pod: &Tree, account: &Tree) -> Result<(), PodRejection> {
    if !enforces(account) {
        return Ok(());
    }
    let name = account.str("metadata.name");
    let allowed = names(account.list("secrets"));
    for volume in pod.list("spec.volumes") {
        let secret = volume.str("secret.secretName");
        if volume.has("secret") && !allowed.contains(secret) {
            return Err(PodRejection::Volume { secret: secret.to_string(), account: name.to_string() });
        }
    }
    check_environment(pod, "initContainers", "init container", &allowed, name)?;
    check_environment(pod, "containers", "container", &allowed, name)?;
    let allowed = names(account.list("imagePullSecrets"));
    for (at, secret) in pod.list("spec.imagePullSecrets").iter().enumerate() {
        let secret = secret.str("name");
        if !allowed.contains(secret) {
            let (secret, account) = (secret.to_string(), name.to_string());
            return Err(PodRejection::PullSecret { index: at, secret, account });
        }
    }
    Ok(())
}

fn check_ephemeral_secrets(pod: &Tree, account: &Tree) -> Result<(), PodRejection> {
    if !enforces(account) {
        return Ok(());
    }
    let allowed = names(account.list("secrets"));
    check_environment(pod, "ephemeralContainers", "ephemeral container", &allowed, account.str("metadata.name"))
}

fn enforces(account: &Tree) -> bool {
    let value = account.map("metadata.annotations").str(ENFORCE_MOUNTABLE);
    ["1", "t", "T", "true", "TRUE", "True"].contains(&value)
}

fn names(references: &[Tree]) -> Map {
    let mut names = Map::new();
    for reference in references {
        names.insert(reference.str("name"), true);
    }
    names
}

fn check_environment(pod: &Tree, list: &str, what: &str, allowed: &Map, account: &str) -> Result<(), PodRejection> {
    let refused = |container: &Tree, variable: String, secret: &str| {
        let container = format!("{what} {}", container.str("name"));
        Err(PodRejection::Environment { container, variable, secret: secret.to_string(), account: account.to_string() })
    };
    for container in pod.at("spec").list(list) {
        for env in container.list("env").iter().filter(|env| env.at("valueFrom").has("secretKeyRef")) {
            let secret = env.str("valueFrom.secretKeyRef.name");
            if !allowed.contains(secret) {
                return refused(container, format!("envVar {}", env.str("name")), secret);
            }
        }
        for source in container.list("envFrom").iter().filter(|source| source.has("secretRef")) {
            let secret = source.str("secretRef.name");
            if !allowed.contains(secret) {
                return refused(container, "envFrom".to_string(), secret);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn the_token_is_mounted_where_it_is_wanted() {
        let check = |pod: &str, account: &str, mounts: &str, volumes: usize| {
            let mut pod = json(pod);
            apply_account(&mut pod, &json(account), "abcde");
            let containers = pod.list("spec.containers");
            let named: Vec<&str> = containers
                .iter()
                .map(|c| c.list("volumeMounts").first().map_or("-", |mount| mount.str("name")))
                .collect();
            assert_eq!(named.join(","), mounts, "{pod:?}");
            assert_eq!(pod.list("spec.volumes").len(), volumes, "{pod:?}");
        };
        let plain = r#"{"spec":{"containers":[{"name":"c"},{"name":"d"}]}}"#;
        check(plain, "{}", "kube-api-access-abcde,kube-api-access-abcde", 1);
        check(plain, r#"{"automountServiceAccountToken":false}"#, "-,-", 0);
        let wants = r#"{"spec":{"automountServiceAccountToken":true,"containers":[{"name":"c"}]}}"#;
        check(wants, r#"{"automountServiceAccountToken":false}"#, "kube-api-access-abcde", 1);
        let own = format!(
            r#"{{"spec":{{"volumes":[{{"name":"t"}}],"containers":[{{"volumeMounts":[{{"name":"t","mountPath":"{TOKEN_PATH}"}}]}}]}}}}"#
        );
        check(&own, "{}", "t", 1);
        let given = r#"{"spec":{"volumes":[{"name":"kube-api-access-x"}],"containers":[{"name":"c"}]}}"#;
        check(given, "{}", "kube-api-access-x", 1);
    }

    #[test]
    fn pull_secrets_of_the_account_are_a_default() {
        let account = json(r#"{"automountServiceAccountToken":false,"imagePullSecrets":[{"name":"reg"}]}"#);
        let mut pod = json(r#"{"spec":{}}"#);
        apply_account(&mut pod, &account, "");
        assert_eq!(pod.list("spec.imagePullSecrets")[0].str("name"), "reg");
        let mut pod = json(r#"{"spec":{"imagePullSecrets":[{"name":"own"}]}}"#);
        apply_account(&mut pod, &account, "");
        assert_eq!(pod.list("spec.imagePullSecrets")[0].str("name"), "own");
    }

    #[test]
    fn an_account_can_limit_the_secrets_of_its_pods() {
        let account = json(
            r#"{"metadata":{"name":"a","annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}},"secrets":[{"name":"ok"}]}"#,
        );
        let check = |spec: &str, want: &str| {
            let got = check_secrets(&json(&format!(r#"{{"spec":{spec}}}"#)), &account);
            let want = if want.is_empty() { Ok(()) } else { Err(want.to_string()) };
            assert_eq!(got.map_err(|refusal| refusal.to_string()), want);
        };
        let tail = "is not allowed because service account a does not reference that";
        check(r#"{"volumes":[{"secret":{"secretName":"ok"}}]}"#, "");
        check(
            r#"{"volumes":[{"secret":{"secretName":"no"}}]}"#,
            &format!("volume with secret.secretName=\"no\" {tail} secret"),
        );
        check(
            r#"{"containers":[{"name":"c","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"no"}}}]}]}"#,
            &format!("container c with envVar E referencing secret.secretName=\"no\" {tail} secret"),
        );
        check(
            r#"{"initContainers":[{"name":"i","envFrom":[{"secretRef":{"name":"no"}}]}]}"#,
            &format!("init container i with envFrom referencing secret.secretName=\"no\" {tail} secret"),
        );
        check(
            r#"{"imagePullSecrets":[{"name":"no"}]}"#,
            &format!("imagePullSecrets[0].name=\"no\" {tail} imagePullSecret"),
        );
    }

    #[test]
    fn a_mirror_pod_refers_to_nothing() {
        let check = |spec: &str, want: Result<(), &str>| {
            let got = check_mirror(&json(&format!(r#"{{"spec":{spec}}}"#)));
            assert_eq!(got.map_err(|refusal| refusal.to_string()), want.map_err(str::to_string));
        };
        check("{}", Ok(()));
        check(r#"{"serviceAccountName":"x"}"#, Err("a mirror pod may not reference service accounts"));
        check(r#"{"volumes":[{"secret":{"secretName":"x"}}]}"#, Err("a mirror pod may not reference secrets"));
        check(
            r#"{"volumes":[{"projected":{"sources":[{"serviceAccountToken":{}}]}}]}"#,
            Err("a mirror pod may not use ServiceAccountToken volume projections"),
        );
    }
}
