//! Custom resources with every kubectl, and across a kill.

use crate::kubectl::{Kubectl, binaries};
use crate::support::Server;

/// The short name and the category of a group's resource.
fn short(group: &str) -> (String, String) {
    let name = group.split('.').next().expect("a name");
    (format!("ct-{name}"), format!("tables-{name}"))
}

/// A separate definition for each version of kubectl.
fn definition(group: &str) -> String {
    let (short, category) = short(group);
    format!(
        r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: crontabs.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{plural: crontabs, singular: crontab, kind: CronTab, shortNames: [{short}], categories: [all, {category}]}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}, scale: {{specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}}}
    additionalPrinterColumns:
    - {{name: Schedule, type: string, jsonPath: .spec.cronSpec}}
    - {{name: Ports, type: string, jsonPath: '.spec.ports[*].port', priority: 1}}
    - {{name: Replicas, type: integer, jsonPath: .spec.replicas}}
    - {{name: Since, type: date, jsonPath: .metadata.creationTimestamp}}
    schema:
      openAPIV3Schema:
        type: object
        description: A table of jobs.
        properties:
          spec:
            type: object
            properties:
              cronSpec: {{type: string, pattern: '^\S+ \S+ \S+ \S+ \S+$', description: When the jobs run.}}
              image: {{type: string}}
              replicas: {{type: integer, minimum: 1, maximum: 10, default: 1}}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [port]
                items: {{type: object, required: [port], properties: {{port: {{type: integer}}, name: {{type: string}}}}}}
          status: {{type: object, properties: {{replicas: {{type: integer}}}}}}
"#
    )
}

fn object(group: &str, cron: &str) -> String {
    format!(
        "apiVersion: {group}/v1\nkind: CronTab\nmetadata: {{name: mine}}\nspec: {{cronSpec: \"{cron}\", image: a, ports: [{{port: 1, name: x}}]}}\n"
    )
}

fn drive(kubectl: &Kubectl<'_>) {
    let group = format!("{}.example.com", kubectl.namespace);
    let apply = &["apply", "-f", "-"];
    kubectl.run(&format!("create namespace {}", kubectl.namespace));
    assert!(kubectl.run_with(apply, &definition(&group)).contains("created"));
    kubectl.shows(&format!("wait --for=condition=Established crd/crontabs.{group} --timeout=20s"), "condition met");
    assert!(kubectl.run_with(apply, &object(&group, "* * * * */5")).contains("/mine created"));
    assert!(kubectl.run_with(apply, &object(&group, "* * * * */5")).contains("/mine unchanged"));
    let resource = format!("crontabs.{group}");
    kubectl.shows(&format!("get {resource}"), "SCHEDULE");
    kubectl.shows(&format!("get {resource} mine -o jsonpath={{.spec.replicas}}"), "1");
    kubectl.shows(&format!("explain crontabs.spec.cronSpec --api-version={group}/v1"), "When the jobs run.");
    kubectl.fails(apply, &object(&group, "bad"), "should match");
    // Validated by kubectl with the OpenAPI document if it is old, and by the server otherwise.
    let unknown = object(&group, "* * * * */5").replace("image: a", "imago: a");
    for verb in ["apply", "create"] {
        kubectl.fails(&[verb, "--validate=true", "-f", "-"], &unknown, "unknown field");
    }
    kubectl.fails(apply, &object(&group, "* * * * */5").replace("image: a", "image: [a]"), "image");
    kubectl.run(&format!("scale {resource}/mine --replicas=3"));
    kubectl.shows(&format!("get {resource} mine -o jsonpath={{.spec.replicas}}"), "3");
    // A separate object: kubectl migrates fields of client-side apply to server-side apply.
    for (manager, port) in [("first", 1), ("second", 2)] {
        let shared = format!(
            "apiVersion: {group}/v1\nkind: CronTab\nmetadata: {{name: shared}}\nspec: {{ports: [{{port: {port}}}]}}\n"
        );
        kubectl.run_with(&["apply", "--server-side", "--field-manager", manager, "-f", "-"], &shared);
    }
    kubectl.shows(&format!("get {resource} shared -o jsonpath={{.spec.ports[*].port}}"), "1 2");
    shows_columns(kubectl, &group);
    kubectl.run_with(&["patch", &resource, "mine", "--type=merge", "-p", r#"{"spec":{"image":"b"}}"#], "");
    kubectl.shows(&format!("get {resource} mine -o yaml"), "image: b");
    kubectl.shows(&format!("delete {resource} mine"), "deleted");
    kubectl.shows(&format!("delete crd crontabs.{group}"), "deleted");
    kubectl.run(&format!("delete namespace {}", kubectl.namespace));
}

/// Columns by type and priority, through the short name and the category.
fn shows_columns(kubectl: &Kubectl<'_>, group: &str) {
    let (short, category) = short(group);
    let table = |arguments: &str| -> Vec<Vec<String>> {
        let text = kubectl.run(arguments);
        text.lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_string).collect())
            .collect()
    };
    let plain = table(&format!("get {short} shared mine"));
    assert_eq!(plain[0], ["NAME", "SCHEDULE", "REPLICAS", "SINCE"], "{:?}", kubectl.version);
    let mine = &plain[2];
    assert_eq!(mine[..3], ["mine", "* * * * */5", "3"], "{:?}", kubectl.version);
    let (number, unit) = mine[3].split_at(mine[3].len() - 1);
    assert!(number.parse::<u32>().is_ok() || mine[3].contains('m') && unit == "s", "an age: {mine:?}");
    let wide = table(&format!("get {short} shared -o wide"));
    assert_eq!(wide[0], ["NAME", "SCHEDULE", "PORTS", "REPLICAS", "SINCE"], "{:?}", kubectl.version);
    // The object has no schedule.
    assert_eq!(wide[1][..3], ["shared", "1", "1"], "the first item of the list: {wide:?}");
    let names = kubectl.run(&format!("get {category} -o name"));
    assert_eq!(names, format!("crontab.{group}/mine\ncrontab.{group}/shared\n"), "{:?}", kubectl.version);
}

#[test]
fn every_kubectl_uses_custom_resources() {
    let server = Server::start();
    let binaries = binaries();
    std::thread::scope(|scope| {
        for (version, binary) in &binaries {
            let namespace = format!("custom-{}-{}", version.0, version.1);
            let kubectl = Kubectl { binary, version: *version, server: &server, namespace };
            scope.spawn(move || drive(&kubectl));
        }
    });
}

#[test]
fn custom_resources_survive_a_kill() {
    let mut server = Server::start();
    let binaries = binaries();
    let (version, binary) = binaries.last_key_value().expect("a kubectl");
    let kubectl = |server: &Server| {
        Kubectl { binary, version: *version, server, namespace: "default".to_string() }
            .run_with(&["get", "crontabs.kill.example.com", "-o", "name"], "")
    };
    let first = Kubectl { binary, version: *version, server: &server, namespace: "default".to_string() };
    first.run_with(&["apply", "-f", "-"], &definition("kill.example.com"));
    first.shows("wait --for=condition=Established crd/crontabs.kill.example.com --timeout=20s", "condition met");
    first.run_with(&["apply", "-f", "-"], &object("kill.example.com", "* * * * *"));
    // Not beside definitions that come and go: a kind that is deleted meanwhile is an error.
    first.shows("get all", "crontab.kill.example.com/mine");
    server.signal("-KILL");
    server.wait();
    let again = Server::start_again(server.dir.clone(), server.port, &[]);
    assert_eq!(kubectl(&again), "crontab.kill.example.com/mine\n");
}
