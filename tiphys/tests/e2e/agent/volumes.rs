//! Every kind of volume, inside a container.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use super::CaseFn;
use super::case::{Case, container};
use super::cluster::FILES;

pub const CASES: &[(&str, CaseFn)] = &[
    ("config maps and secrets are files", projected_files),
    ("a changed config map reaches a running pod", changes),
    ("downward api files and tokens", about_itself),
    ("empty directories on disk and in memory", empty_dirs),
    ("paths of the host by their types", host_paths),
    ("a subpath never leaves its volume", sub_paths),
    ("groups and modes of volumes", ownership),
    ("an image is a volume", image_volume),
    ("a claim keeps its local volume", claims),
    ("env of all sources", env),
    ("env of a file that an init container wrote", env_files),
    ("a directory of the node as a local volume", local_volume),
    ("a volume with a missing image", missing_image_volume),
];

const OBJECTS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue, text: many words}
binaryData: {bytes: AAEC}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {word: open, other: shut}
";

fn projected_files(case: &Case) {
    case.apply(OBJECTS);
    let text = case.script(
        "reads",
        "cd /settings && cat color && wc -c < bytes && ls && cat /hidden/word && ls /hidden && stat -Lc %a /hidden/word \
         /settings/color /some/deep/c && cat /some/deep/c /some/w && ls /some; touch /settings/x 2>/dev/null || echo read-only; \
         cat /optional/* 2>/dev/null || echo nothing",
        "volumeMounts: [{name: settings, mountPath: /settings}, {name: hidden, mountPath: /hidden}, \
         {name: some, mountPath: /some}, {name: optional, mountPath: /optional}]",
        "volumes: [{name: settings, configMap: {name: settings}}, \
         {name: hidden, secret: {secretName: hidden, defaultMode: 0400}}, \
         {name: optional, configMap: {name: none, optional: true}}, \
         {name: some, projected: {sources: [{configMap: {name: settings, items: [{key: color, path: deep/c, mode: 0640}]}}, \
         {secret: {name: hidden, items: [{key: word, path: w}]}}]}}],",
    );
    assert_eq!(
        text,
        "blue3\nbytes\ncolor\ntext\nopenother\nword\n400\n644\n640\nblueopendeep\nw\nread-only\nnothing",
        "{:?}",
        case.events("reads")
    );
}

fn changes(case: &Case) {
    case.apply(OBJECTS);
    case.pod(
        "follows",
        "volumes: [{name: settings, configMap: {name: settings}}], containers: [{name: main, image: IMAGE, \
         volumeMounts: [{name: settings, mountPath: /settings}, {name: settings, mountPath: /fixed, subPath: color}]}]",
    );
    case.until_ready("follows");
    assert_eq!(case.exec("follows", "cat /settings/color /fixed"), "blueblue");
    case.kubectl(&["patch", "configmap", "settings", "-p", r#"{"data":{"color":"red","new":"n","text":null}}"#]);
    case.until(
        "the change",
        || case.exec("follows", "cat /settings/color; ls /settings"),
        |seen| seen == "redbytes\ncolor\nnew",
    );
    assert_eq!(case.exec("follows", "cat /fixed"), "blue", "a part of a volume stays as it was");
}

fn about_itself(case: &Case) {
    case.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: self, labels: {app: self, tier: one}, annotations: {note: 'a b'}}, \
         spec: {volumes: [{name: about, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, \
         {path: note, fieldRef: {fieldPath: \"metadata.annotations['note']\"}}, \
         {path: memory, resourceFieldRef: {containerName: main, resource: limits.memory, divisor: 1Mi}}]}}, \
         {name: token, projected: {sources: [{serviceAccountToken: {path: token, audience: vault, \
         expirationSeconds: 3600}}]}}], containers: [{name: main, image: IMAGE, resources: {limits: {memory: 64Mi}}, \
         volumeMounts: [{name: about, mountPath: /about}, {name: token, mountPath: /token}]}]}}",
    );
    case.until_ready("self");
    assert_eq!(case.exec("self", "cat /about/labels"), "app=\"self\"\ntier=\"one\"");
    assert_eq!(case.exec("self", "cat /about/note /about/memory"), "a b64");
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    let seen = case
        .exec("self", &format!("cat {account}/namespace; echo; grep -c BEGIN {account}/ca.crt; cat {account}/token"));
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines[..2], [case.namespace.as_str(), "1"]);
    // The token authenticates as the account.
    let mut kubectl = case.command(&super::case::debians());
    let who = kubectl.args(["--token", lines[2], "get", "pods"]).env("KUBECONFIG", case.stranger()).output();
    let who = String::from_utf8_lossy(&who.expect("kubectl is there").stderr).into_owned();
    assert!(who.contains(&format!("system:serviceaccount:{}:default", case.namespace)), "{who}");
    assert_eq!(case.exec("self", "cat /token/token").split('.').count(), 3);
    case.kubectl(&["label", "pod", "self", "tier=two", "--overwrite"]);
    case.until("the label", || case.exec("self", "cat /about/labels"), |seen| seen.contains("tier=\"two\""));
}

fn empty_dirs(case: &Case) {
    case.pod(
        "empty",
        "volumes: [{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory, sizeLimit: 2Mi}}], \
         containers: [{name: main, image: IMAGE, volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}]}, \
         {name: other, image: IMAGE, volumeMounts: [{name: disk, mountPath: /shared}]}]",
    );
    case.until_ready("empty");
    let seen = case.kubectl(&[
        "exec",
        "empty",
        "-c",
        "main",
        "--",
        "sh",
        "-c",
        "echo word > /disk/file; stat -c %a /disk; grep -c ' /memory tmpfs' /proc/mounts; df -m /memory | tail -1 | \
         awk '{print $2}'; dd if=/dev/zero of=/memory/big bs=1M count=4 2>/dev/null || echo full",
    ]);
    assert_eq!(seen, "777\n1\n2\nfull");
    assert_eq!(case.kubectl(&["exec", "empty", "-c", "other", "--", "cat", "/shared/file"]), "word");
}

fn host_paths(case: &Case) {
    let directory = case.directory("host");
    fs::create_dir(&directory).expect("a directory");
    fs::write(format!("{directory}/file"), "of the host\n").expect("a file");
    let mount = |name: &str, path: &str, kind: &str| {
        (
            format!("{{name: {name}, hostPath: {{path: {directory:?}, type: {kind:?}}}}}")
                .replace(&format!("{directory:?}"), &format!("\"{directory}{path}\"")),
            format!("{{name: {name}, mountPath: /{name}}}"),
        )
    };
    let good = [
        mount("any", "", ""),
        mount("dir", "", "Directory"),
        mount("file", "/file", "File"),
        mount("newdir", "/newdir", "DirectoryOrCreate"),
        mount("newfile", "/newfile", "FileOrCreate"),
    ];
    let volumes: Vec<&str> = good.iter().map(|(volume, _)| volume.as_str()).collect();
    let mounts: Vec<&str> = good.iter().map(|(_, mount)| mount.as_str()).collect();
    let text = case.script(
        "good",
        "cat /any/file /dir/file /file; echo in > /newfile; touch /newdir/made",
        &format!("volumeMounts: [{}]", mounts.join(", ")),
        &format!("volumes: [{}, {{name: dev, hostPath: {{path: /dev/null, type: CharDevice}}}}],", volumes.join(", ")),
    );
    assert_eq!(text, "of the host\nof the host\nof the host");
    assert_eq!(fs::read_to_string(format!("{directory}/newfile")).expect("a file"), "in\n");
    assert!(fs::exists(format!("{directory}/newdir/made")).expect("a look"));
    let mode =
        |name: &str| fs::metadata(format!("{directory}/{name}")).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode("newdir"), mode("newfile")), (0o755, 0o644));
    for (pod, path, kind, why) in [
        ("baddir", "/none", "Directory", "hostPath type check failed"),
        ("badfile", "", "File", "is not a file"),
        ("badsocket", "/file", "Socket", "is not a socket"),
    ] {
        let (volume, mount) = mount(pod, path, kind);
        case.pod(
            pod,
            &format!("volumes: [{volume}], containers: [{{name: main, image: IMAGE, volumeMounts: [{mount}]}}]"),
        );
        case.until_event(pod, "FailedMount", "hostPath type check failed");
        case.until_event(pod, "FailedMount", why);
    }
}

fn sub_paths(case: &Case) {
    let directory = case.directory("host");
    fs::create_dir_all(format!("{directory}/inner")).expect("a directory");
    fs::write(format!("{directory}/inner/file"), "inner\n").expect("a file");
    symlink("/etc", format!("{directory}/out")).expect("a link");
    let volume = format!("volumes: [{{name: host, hostPath: {{path: {directory:?}}}}}],");
    let text = case.script(
        "parts",
        "cat /inner/file /one; ls /made; echo x > /mine/file",
        "env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}], \
         volumeMounts: [{name: host, mountPath: /inner, subPath: inner, readOnly: true}, \
         {name: host, mountPath: /one, subPath: inner/file}, {name: host, mountPath: /made, subPath: new/directory}, \
         {name: host, mountPath: /mine, subPathExpr: of-$(POD)}]",
        &volume,
    );
    assert_eq!(text, "inner\ninner");
    assert!(fs::exists(format!("{directory}/of-parts/file")).expect("a look"));
    case.pod(
        "escapes",
        &format!(
            "{volume} containers: [{{name: main, image: IMAGE, \
             volumeMounts: [{{name: host, mountPath: /out, subPath: out}}]}}]"
        ),
    );
    case.until_event("escapes", "Failed", "failed to prepare subPath for volumeMount \"host\" of container \"main\"");
    case.until_pod("escapes", "its reason", |pod| {
        container(pod, "main").str("state.waiting.reason") == "CreateContainerConfigError"
    });
}

fn ownership(case: &Case) {
    case.apply(OBJECTS);
    let text = case.script(
        "group",
        "id; stat -c '%g %a' /disk; stat -Lc '%u %g %a' /hidden/word /settings/color; echo x > /disk/f && stat -c %g /disk/f",
        "volumeMounts: [{name: disk, mountPath: /disk}, {name: hidden, mountPath: /hidden}, {name: settings, mountPath: /settings}]",
        "securityContext: {runAsUser: 1000, runAsGroup: 3000, fsGroup: 2000, supplementalGroups: [4000]}, \
         volumes: [{name: disk, emptyDir: {}}, {name: hidden, secret: {secretName: hidden, defaultMode: 0400}}, \
         {name: settings, configMap: {name: settings}}],",
    );
    assert_eq!(text, "uid=1000 gid=3000 groups=2000,3000,4000\n2000 2777\n0 2000 440\n0 2000 644\n2000",);
}

fn image_volume(case: &Case) {
    case.pod(
        "shows",
        &format!(
            "volumes: [{{name: files, image: {{reference: {FILES:?}, pullPolicy: IfNotPresent}}}}], \
             containers: [{{name: main, image: IMAGE, volumeMounts: [{{name: files, mountPath: /files}}]}}]"
        ),
    );
    if case.is_containerd() {
        // containerd supports such mounts from version 2.1 on; before, it creates an empty directory.
        case.until_pod("shows", "any end", |pod| !pod.at("status.containerStatuses").is_null());
        return;
    }
    case.until_ready("shows");
    assert_eq!(
        case.exec("shows", "cat /files/data/file; touch /files/x 2>/dev/null || echo read-only"),
        "of the image\nread-only"
    );
}

fn claims(case: &Case) {
    case.apply(
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: kept}, \
         spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}",
    );
    let use_it = |name: &str, command: &str| {
        case.script(
            name,
            command,
            "volumeMounts: [{name: kept, mountPath: /kept}]",
            "volumes: [{name: kept, persistentVolumeClaim: {claimName: kept}}],",
        )
    };
    use_it("writes", "echo still here > /kept/file");
    case.kubectl(&["delete", "pod", "writes"]);
    assert_eq!(use_it("reads", "cat /kept/file"), "still here");
    let claim = case.object("persistentvolumeclaims", "kept");
    assert_eq!(claim.str("status.phase"), "Bound");
    erased_only_when_released(case, claim.str("spec.volumeName"));
    case.pod(
        "lost",
        "volumes: [{name: a, persistentVolumeClaim: {claimName: none}}], containers: [{name: main, image: IMAGE}]",
    );
    case.until_event("lost", "FailedScheduling", "persistentvolumeclaim \"none\" not found");
}

/// The annotation of the node names the directory; the state of the volume decides whether it is erased.
fn erased_only_when_released(case: &Case, volume: &str) {
    let address = format!("/api/v1/persistentvolumes/{volume}");
    let directory = PathBuf::from(case.read(&address).str("spec.hostPath.path"));
    let requested =
        format!(r#"{{"metadata":{{"annotations":{{"tiphys.io/volumes-to-erase":"[\"{}\"]"}}}}}}"#, directory.display());
    case.patch("/api/v1/nodes/node", &requested);
    let log = || fs::read_to_string(case.cluster.dir.path().join("log")).unwrap_or_default();
    case.until("a refusal", || log().contains(&format!("the volume {volume} is not released")), |refused| *refused);
    assert!(directory.join("file").exists(), "a volume that is bound is not erased");
    case.kubectl(&["delete", "pod", "reads", "--now"]);
    case.kubectl(&["delete", "persistentvolumeclaim", "kept"]);
    case.until("the volume's end", || case.read(&address), |volume| volume.is_null());
    assert!(!directory.exists(), "its files are gone");
}

fn env(case: &Case) {
    case.apply(OBJECTS);
    case.apply("{apiVersion: v1, kind: Service, metadata: {name: the-db}, spec: {ports: [{port: 5432}]}}");
    let text = case.script(
        "shows",
        "env | sort",
        "args: [unused], envFrom: [{configMapRef: {name: settings}, prefix: C_}, {secretRef: {name: hidden}}, \
         {configMapRef: {name: none, optional: true}}], resources: {requests: {cpu: 100m}, limits: {memory: 32Mi}}, \
         env: [{name: PLAIN, value: p}, {name: BOTH, value: '$(PLAIN)-$(word) $$(PLAIN) $(NOTHING)'}, \
         {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, \
         {name: UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}, \
         {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}, \
         {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, \
         {name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}, \
         {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}, \
         {name: LABEL, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['app']\"}}}, \
         {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}, \
         {name: MAYBE, valueFrom: {secretKeyRef: {name: none, key: k, optional: true}}}, \
         {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory}}}, \
         {name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}]",
        "",
    );
    let pod = case.pods("shows");
    let ip = format!("IP={}", pod.str("status.podIP"));
    let uid = format!("UID={}", pod.str("metadata.uid"));
    for line in [
        "C_color=blue",
        "C_text=many words",
        "word=open",
        "other=shut",
        "PLAIN=p",
        "BOTH=p-open $(PLAIN) $(NOTHING)",
        "NAME=shows",
        &uid,
        "NODE=node",
        &ip,
        "HOST=192.0.2.10",
        "ACCOUNT=default",
        "LABEL=shows",
        "COLOR=blue",
        "MEMORY=33554432",
        "CPU=100",
        "FROM_IMAGE=yes",
        "HOSTNAME=shows",
        "THE_DB_SERVICE_PORT=5432",
        "KUBERNETES_SERVICE_PORT_HTTPS=443",
    ] {
        assert!(text.lines().any(|seen| seen == line), "{line}: {text}");
    }
    assert!(!text.contains("MAYBE="), "{text}");
}

fn env_files(case: &Case) {
    let writes = r"printf '# by the first\nWORD=\047open sesame\047\n' > /vars/file";
    let pod = |name: &str, reference: &str| {
        case.pod(
            name,
            &format!(
                "restartPolicy: Never, volumes: [{{name: vars, emptyDir: {{}}}}], initContainers: [{{name: writes, \
                 image: IMAGE, command: [sh, -c, {writes:?}], volumeMounts: [{{name: vars, mountPath: /vars}}]}}], \
                 containers: [{{name: main, image: IMAGE, command: [sh, -c, 'test ! -e /vars && echo \"<$SAID>\"'], \
                 env: [{{name: SAID, valueFrom: {{fileKeyRef: {{volumeName: vars, {reference}}}}}}}]}}]"
            ),
        );
    };
    pod("said", "path: file, key: WORD");
    pod("unsaid", "path: file, key: NONE, optional: true");
    pod("lacks", "path: file, key: NONE");
    pod("lost", "path: nowhere, key: WORD");
    for (name, wanted) in [("said", "<open sesame>"), ("unsaid", "<>")] {
        case.until_pod(name, "its end", |pod| pod.str("status.phase") == "Succeeded");
        assert_eq!(case.kubectl(&["logs", name, "-c", "main"]), wanted, "{name}");
    }
    case.until_event("lacks", "Failed", "environment variable key \"NONE\" not found in file");
    case.until_event("lost", "Failed", "Error: couldn't parse env file");
    let reason = |pod: &api::Tree| pod.list("status.containerStatuses")[0].str("state.waiting.reason").to_string();
    case.until_pod("lost", "its problem", |pod| reason(pod) == "CreateContainerConfigError");
}

fn local_volume(case: &Case) {
    let directory = case.directory("local");
    fs::create_dir(&directory).expect("a directory");
    fs::write(format!("{directory}/file"), "of the node\n").expect("a file");
    let manifest = format!(
        "apiVersion: v1
kind: PersistentVolume
metadata: {{name: local-of-{space}}}
spec:
  capacity: {{storage: 1Mi}}
  accessModes: [ReadWriteOnce]
  storageClassName: by-hand
  mountOptions: [noexec]
  local: {{path: {directory}}}
  nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/hostname, operator: Exists}}]}}]}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: by-hand}}
spec: {{accessModes: [ReadWriteOnce], storageClassName: by-hand, volumeName: local-of-{space}, resources: {{requests: {{storage: 1Mi}}}}}}
",
        space = case.namespace
    );
    case.kubectl(&["apply", "-f", &case.file("local.yaml", &manifest)]);
    let text = case.script(
        "uses",
        "cat /local/file; echo back > /local/answer; stat -c %g /local; grep -c ' /local .*noexec' /proc/mounts",
        "volumeMounts: [{name: local, mountPath: /local}]",
        "securityContext: {fsGroup: 4321}, volumes: [{name: local, persistentVolumeClaim: {claimName: by-hand}}],",
    );
    assert_eq!(text, "of the node\n4321\n1", "{:?}", case.events("uses"));
    assert_eq!(fs::read_to_string(format!("{directory}/answer")).expect("an answer"), "back\n");
    case.kubectl(&["delete", "pod/uses", "pvc/by-hand", &format!("pv/local-of-{}", case.namespace)]);
    assert!(fs::exists(format!("{directory}/answer")).expect("a look"), "what a pod wrote stays");
}

fn missing_image_volume(case: &Case) {
    case.pod(
        "half",
        "volumes: [{name: gone, image: {reference: \"registry.invalid/none:1\"}}], containers: [{name: free, image: IMAGE}, \
         {name: bound, image: IMAGE, volumeMounts: [{name: gone, mountPath: /gone}]}]",
    );
    let of = |pod: &api::Tree, name: &str| {
        let mut all = pod.list("status.containerStatuses").iter();
        all.find(|one| one.str("name") == name).cloned().unwrap_or_default()
    };
    let reasons = ["ErrImagePull", "ImagePullBackOff"];
    let waits = |pod: &api::Tree| reasons.contains(&of(pod, "bound").str("state.waiting.reason"));
    case.until_pod("half", "one that runs beside one that waits", |pod| waits(pod) && of(pod, "free").bool("ready"));
}
