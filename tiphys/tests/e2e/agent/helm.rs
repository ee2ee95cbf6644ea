//! Charts with Helm itself: definitions, hooks, tests, rollbacks, and an admission webhook.

use std::process::{Command, Output};

use super::Table;
use super::case::Case;
use super::cluster::IMAGE;
use super::in_cluster::interpreter;
use super::services::machine_volumes;
use crate::support::{root, tool};

pub const CASES: Table = &[("a chart", application), ("a chart with a webhook", webhook)];

fn run(case: &Case, arguments: &[&str]) -> Output {
    let home = case.cluster.dir.path().join(format!("helm-{}", case.namespace));
    Command::new(tool("python/bin/helm"))
        .args(["--namespace", &case.namespace])
        .args(arguments)
        .current_dir(root().join("tiphys/tests/charts"))
        .env("KUBECONFIG", case.cluster.kubeconfig())
        .env("HELM_CACHE_HOME", home.join("cache"))
        .env("HELM_CONFIG_HOME", home.join("config"))
        .env("HELM_DATA_HOME", home.join("data"))
        .env("HOME", home)
        .output()
        .expect("helm is there")
}

#[track_caller]
fn helm(case: &Case, arguments: &[&str]) -> String {
    let output = run(case, arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "helm {arguments:?}: {out}{err}");
    out.into_owned()
}

/// An object outside of the namespace, deleted at the end of a case.
struct Leftover<'a>(&'a Case<'a>, &'a str, String);

impl Drop for Leftover<'_> {
    fn drop(&mut self) {
        self.0.run(&["delete", self.1, &self.2, "--ignore-not-found"]);
    }
}

const WAIT: [&str; 2] = ["--wait", "--timeout=50s"];

fn application(case: &Case) {
    let image = format!("image={IMAGE}");
    let _definition = Leftover(case, "crd", "widgets.charts.example.com".to_string());
    let text = || case.object("configmaps", "app-config").str("data.text").to_string();
    let widget = |path: &str| case.kubectl(&["get", "widget", "app", "-o", &format!("jsonpath={{{path}}}")]);
    let set = |more: &str| [image.as_str(), more].join(",");

    let installed = helm(case, &[&["install", "app", "app", "--set", &set("text=first")], &WAIT[..]].concat());
    assert!(installed.contains("STATUS: deployed"), "{installed}");
    assert_eq!((text().as_str(), widget(".spec.color").as_str()), ("first", "red"));
    let migration = case.kubectl(&["get", "job", "app-migration", "-o", "jsonpath={.status.succeeded}"]);
    assert_eq!(migration, "1", "the hook runs before the release");
    let tested = helm(case, &["test", "app", "--logs", "--timeout=50s"]);
    assert!(tested.contains("Phase:          Succeeded") && tested.contains("the text is first"), "{tested}");

    helm(case, &[&["upgrade", "app", "app", "--set", &set("text=second,size=2")], &WAIT[..]].concat());
    assert_eq!((text().as_str(), widget(".spec.size").as_str()), ("second", "2"));
    let refused = run(case, &["upgrade", "app", "app", "--set", &set("text=third,size=20")]);
    let error_text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error_text.contains("a widget is small"), "{error_text}");
    let failed =
        run(case, &["upgrade", "app", "app", "--set", &set("text=fourth,size=2,migration=false"), "--timeout=50s"]);
    let error_text = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && error_text.contains("pre-upgrade hooks failed"), "{error_text}");

    helm(case, &[&["rollback", "app", "1"], &WAIT[..]].concat());
    assert_eq!((text().as_str(), widget(".spec.size").as_str()), ("first", "1"));
    let history = helm(case, &["history", "app"]);
    assert!(history.contains("Rollback to 1") && history.contains("failed"), "{history}");
    assert!(helm(case, &["list"]).contains("deployed"), "a release is listed");
    assert!(helm(case, &["get", "manifest", "app"]).contains("kind: Widget"));

    helm(case, &[&["uninstall", "app"], &WAIT[..]].concat());
    assert_eq!(case.kubectl(&["get", "deployments,widgets", "-o", "name"]), "");
    assert!(case.kubectl(&["get", "crds", "-o", "name"]).contains("widgets.charts.example.com"), "it stays");
}

fn webhook(case: &Case) {
    let (python, prefix) = interpreter(&tool("python/bin/python"));
    let directories: Vec<(&str, &str)> =
        (prefix != "/usr").then_some((prefix.as_str(), prefix.as_str())).into_iter().collect();
    let (volumes, mounts) = machine_volumes(&directories);
    let values = format!("image: {IMAGE}\npython: {python}\nvolumes: [{volumes}]\nmounts: [{mounts}]\n");
    let values = case.file("values.yaml", &values);
    let _configuration = Leftover(case, "validatingwebhookconfiguration", format!("guard.{}", case.namespace));
    helm(case, &[&["install", "guard", "webhook", "--values", &values], &WAIT[..]].concat());
    // kubectl parses a document that begins with a brace as JSON.
    let object = |name: &str, annotations: &str| {
        let labels = "labels: {checked: 'yes'}";
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, {labels}, annotations: {{{annotations}}}}}\n"
        )
    };
    let bad = case.file("bad.yaml", &object("bad", "refuse: it is bad"));
    let refuses = || {
        let output = case.run(&["create", "--dry-run=server", "-f", &bad]);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    case.until("the webhook", refuses, |error_text| error_text.contains("denied the request: refused: it is bad"));
    case.apply(&object("good", ""));
    helm(case, &[&["uninstall", "guard"], &WAIT[..]].concat());
    case.kubectl(&["create", "-f", &bad]);
}
