//! Logs, exec, attach, port-forward, cp and debug, with every kubectl version: older ones use SPDY, newer ones
//! WebSocket.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::CaseFn;
use super::case::{Case, ChildProcess, container, debians, success_output};
use crate::kubectl::binaries;
use crate::support::BINARY;

pub const CASES: &[(&str, CaseFn)] = &[
    ("logs in every form", logs),
    ("logs are followed to their end", following),
    ("log rotation loses no line", rotation),
    ("exec by every kubectl", exec),
    ("attach by every kubectl", attach),
    ("port-forward by every kubectl", port_forward),
    ("files are copied both ways", copy),
    ("ephemeral containers inspect their target", debug),
];

/// Those of each kind of connection to a kubelet.
pub const CONNECTIONS: &[(&str, CaseFn)] = &[
    ("logs in every form", logs),
    ("exec by every kubectl", exec),
    ("attach by every kubectl", attach),
    ("port-forward by every kubectl", port_forward),
];

fn newest() -> ((u32, u32), PathBuf) {
    binaries().into_iter().next_back().expect("Debian's is there")
}

/// The client of this binary, under its file name.
fn own(case: &Case) -> ((u32, u32), PathBuf) {
    let directory = PathBuf::from(case.directory("own-client"));
    std::fs::create_dir_all(&directory).expect("a directory");
    let link = directory.join("kubectl");
    if !link.is_symlink() {
        std::os::unix::fs::symlink(BINARY, &link).expect("a link");
    }
    ((1, 37), link)
}

/// Ours and all others on the built-in runtime; with containerd, ours, one with SPDY and one with WebSocket.
fn kubectls(case: &Case) -> Vec<((u32, u32), PathBuf)> {
    match case.is_containerd() {
        false => binaries().into_iter().chain([own(case)]).collect(),
        true => vec![((1, 20), debians()), newest(), own(case)],
    }
}

/// Logs that our client and the newest other one must print alike.
const LOG_FORMS: &[&str] = &[
    "logs talks -c first --tail=1",
    "logs talks -c first --limit-bytes=6",
    "logs talks -c first --since=1h",
    "logs talks -c first --timestamps",
    "logs talks --all-containers",
    "logs talks --all-containers --prefix",
    "logs -l app=talks -c second",
    "logs -l app=talks --all-containers --prefix --tail=-1",
    "logs pod/talks second",
];

fn logs(case: &Case) {
    case.pod(
        "talks",
        "containers: [{name: first, image: IMAGE, command: [sh, -c, 'for n in 1 2 3 4 5; do echo line $n; done; \
         sleep 0.5; echo to-stderr >&2; exec sleep 1000']}, {name: second, image: IMAGE, command: [sh, -c, 'echo other; exec sleep 1000']}]",
    );
    case.until_ready("talks");
    let first = |args: &[&str]| case.kubectl(&[&["logs", "talks", "-c", "first"], args].concat());
    case.until("all lines", || first(&[]), |seen| seen.lines().count() == 6);
    assert_eq!(first(&["--tail=2"]), "line 5\nto-stderr");
    assert_eq!(first(&["--limit-bytes=6"]), "line 1");
    assert_eq!(first(&["--since=1h"]).lines().count(), 6);
    assert_eq!(first(&["--since-time=2030-01-01T00:00:00Z"]), "");
    let stamped = first(&["--timestamps", "--tail=1"]);
    let (time, line) = stamped.split_once(' ').unwrap_or_default();
    assert!(line == "to-stderr" && time.starts_with("20") && time.contains('T'), "{stamped}");
    let all = case.kubectl(&["logs", "talks", "--all-containers", "--prefix"]);
    assert!(all.contains("[pod/talks/first] line 1") && all.contains("[pod/talks/second] other"), "{all}");
    assert!(case.kubectl(&["logs", "-l", "app=talks", "-c", "second"]).contains("other"));
    let refused = case.refused(&["logs", "talks", "-c", "none"]);
    assert!(refused.contains("container none is not valid for pod talks"), "{refused}");
    let refused = case.refused(&["logs", "talks", "-c", "first", "--previous"]);
    assert!(refused.contains("previous terminated container \"first\" in pod \"talks\" not found"), "{refused}");
    for form in LOG_FORMS {
        let args: Vec<&str> = form.split(' ').collect();
        let shown = |kubectl: &Path| success_output(&args, &case.run_by(kubectl, &args));
        let (want, got) = (shown(&newest().1), shown(&own(case).1));
        assert!(!want.is_empty(), "{form}");
        assert_eq!(sorted_by_container(&got), sorted_by_container(&want), "{form}");
    }
    let refused = case.run_by(&own(case).1, &["logs", "talks", "-c", "first", "--previous"]);
    assert!(!refused.status.success(), "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("previous terminated container \"first\" in pod \"talks\" not found"), "{text}");
}

/// The lines of the second container at the end: some versions read it first.
fn sorted_by_container(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_by_key(|line| line.ends_with("other"));
    lines
}

fn following(case: &Case) {
    case.pod(
        "counts",
        "restartPolicy: Never, containers: [{name: main, image: IMAGE, command: [sh, -c, 'for n in 1 2 3; do echo $n; \
         sleep 0.7; done']}]",
    );
    case.until_pod("counts", "a start", |pod| pod.str("status.phase") != "Pending");
    let follow = ["logs", "-f", "counts"];
    let ours = case.start(&own(case).1, &follow);
    assert_eq!(case.kubectl(&follow), "1\n2\n3");
    assert_eq!(String::from_utf8_lossy(&ours.finish().stdout), "1\n2\n3\n");
}

/// A client that reads from the beginning, or has followed all the time, gets every line once.
fn rotation(case: &Case) {
    let burst = "m=$n; while [ $n -lt $((m+1000)) ]; do echo $n of many lines that fill a file sooner or later, it is long; n=$((n+1)); done";
    let write = format!("n=0; for round in 1 2 3 4 5; do {burst}; sleep 4; done; touch /tmp/done; exec sleep 1000");
    case.pod("many", &format!("containers: [{{name: main, image: IMAGE, command: [sh, -c, {write:?}]}}]"));
    case.until_ready("many");
    let followed = case.directory("followed");
    let into = std::fs::File::create(&followed).expect("a file");
    let follower =
        case.command(&debians()).args(["logs", "-f", "many"]).stdout(into).spawn().expect("kubectl is there");
    case.until("all lines", || case.run(&["exec", "many", "--", "ls", "/tmp/done"]).status.success(), |done| *done);
    let uid = case.pods("many").str("metadata.uid").to_string();
    let directory = format!("/var/log/pods/{}_many_{uid}/main", case.namespace);
    let names = || {
        let output = case.cluster.command("ls").arg(&directory).output().expect("ls");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect::<Vec<_>>()
    };
    case.until("files put aside", names, |names| names.len() > 2 && names.iter().any(|name| name.ends_with(".gz")));
    let is_whole = |text: &str| {
        let numbers = text.lines().map(|line| line.split(' ').next().and_then(|number| number.parse().ok()));
        numbers.collect::<Option<Vec<u32>>>().is_some_and(|numbers| numbers.into_iter().eq(0..5000))
    };
    let read = case.kubectl(&["logs", "many"]);
    assert!(is_whole(&read), "{} lines", read.lines().count());
    case.kubectl(&["delete", "pod", "many", "--now"]);
    ChildProcess(follower).finish();
    let followed = std::fs::read_to_string(followed).expect("what it has seen");
    assert!(is_whole(&followed), "{} lines", followed.lines().count());
}

fn exec(case: &Case) {
    case.pod("web", "containers: [{name: main, image: IMAGE}]");
    case.until_ready("web");
    for ((major, minor), kubectl) in kubectls(case) {
        let who = format!("{major}.{minor}");
        let run = |args: &[&str]| case.run_by(&kubectl, args);
        let failed = run(&["exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
        assert_eq!(failed.status.code(), Some(3), "{who}: {failed:?}");
        assert_eq!(failed.stdout, b"out\n", "{who}");
        assert!(String::from_utf8_lossy(&failed.stderr).starts_with("err\n"), "{who}: {failed:?}");
        let mut through = case.start(&kubectl, &["exec", "-i", "web", "--", "cat"]);
        through.0.stdin.take().expect("it is piped").write_all(&[b'x'; 100_000]).expect("kubectl reads");
        assert_eq!(through.finish().stdout.len(), 100_000, "{who}");
        let seen = on_terminal(
            case,
            &kubectl,
            "exec -it web -- sh",
            "echo is $((40+2)) on $(tty); until stty size 2>/dev/null | grep .; do sleep 0.1; done; exit 4\n",
        );
        assert!(seen.1.contains("is 42 on /dev/pts/") && seen.1.contains("33 99"), "{who}: {seen:?}");
        assert_eq!(seen.0, Some(4), "{who}: {seen:?}");
    }
    let refused = case.refused(&["exec", "web", "--", "/none"]);
    assert!(refused.contains("/none"), "{refused}");
    let refused = case.refused(&["exec", "nobody", "--", "true"]);
    assert!(refused.contains("pods \"nobody\" not found"), "{refused}");
}

/// Runs a command of kubectl on a terminal of 33 lines of 99 columns; returns its exit code and the output.
fn on_terminal(case: &Case, kubectl: &Path, command: &str, typed: &str) -> (Option<i32>, String) {
    let line = format!("stty rows 33 cols 99; {} -n {} {command}", kubectl.display(), case.namespace);
    let mut script = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("KUBECONFIG", case.cluster.kubeconfig())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Debian's script is there");
    // Closing the input would be sent to the terminal too: it stays open until the command has ended.
    let mut stdin = script.stdin.take().expect("it is piped");
    stdin.write_all(typed.as_bytes()).expect("it reads");
    let mut shown = Vec::new();
    std::io::Read::read_to_end(script.stdout.as_mut().expect("it is piped"), &mut shown).expect("its output");
    drop(stdin);
    (script.wait().expect("it ends").code(), String::from_utf8_lossy(&shown).into_owned())
}

fn attach(case: &Case) {
    for ((major, minor), kubectl) in kubectls(case) {
        let who = format!("{major}.{minor}");
        let name = format!("tty-{major}-{minor}");
        case.pod(
            &name,
            "restartPolicy: Never, containers: [{name: main, image: IMAGE, command: [sh], stdin: true, tty: true, stdinOnce: true}]",
        );
        case.until_ready(&name);
        // containerd loses output right before the exit.
        let seen = on_terminal(
            case,
            &kubectl,
            &format!("attach -it {name}"),
            "echo is $((40+2)) on $(tty); sleep 1; exit 5\n",
        );
        assert!(seen.1.contains("is 42 on /dev/pts/"), "{who}: {seen:?}");
        let pod = case.until_pod(&name, "its end", |pod| pod.str("status.phase") == "Failed");
        assert_eq!(container(&pod, "main").int("state.terminated.exitCode"), Some(5), "{who}");
        let image = format!("--image={}", super::cluster::IMAGE);
        let once = format!("once-{major}-{minor}");
        let args = [
            "run",
            &once,
            &image,
            "-i",
            "--rm",
            "--restart=Never",
            "--quiet",
            "--command",
            "--",
            "sh",
            "-c",
            "read line; echo got $line; sleep 1",
        ];
        let mut run = case.start(&kubectl, &args);
        run.0.stdin.take().expect("it is piped").write_all(b"word\n").expect("kubectl reads");
        let output = run.finish();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains("got word"), "{who}: {shown} {}", String::from_utf8_lossy(&output.stderr));
        case.until_gone(&once);
    }
}

fn port_forward(case: &Case) {
    case.pod(
        "web",
        "containers: [{name: main, image: IMAGE, ports: [{name: page, containerPort: 8080}], \
         command: [sh, -c, 'hostname > /tmp/index.html; exec httpd -f -p 8080 -h /tmp']}]",
    );
    case.until_ready("web");
    for ((major, minor), kubectl) in kubectls(case) {
        let mut forward = case.start(&kubectl, &["port-forward", "pod/web", ":page"]);
        let mut lines = BufReader::new(forward.0.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let line = lines.next().unwrap_or_default();
        let address = line.split("Forwarding from ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
        for _ in 0..3 {
            let page = case.connect(address).unwrap_or_default();
            assert!(page.ends_with("\nweb\n"), "{major}.{minor}: {line}: {page}");
        }
    }
}

fn copy(case: &Case) {
    case.pod("web", "containers: [{name: main, image: IMAGE}]");
    case.until_ready("web");
    let long = "0123456789".repeat(100_000);
    let here = case.file("long", &long);
    for ((major, minor), kubectl) in [((1, 20), debians()), newest(), own(case)] {
        let copied =
            |from: &str, to: &str| success_output(&["cp", from, to], &case.run_by(&kubectl, &["cp", from, to]));
        copied(&here, "web:/tmp/long");
        assert_eq!(case.exec("web", "wc -c < /tmp/long"), "1000000", "{major}.{minor}");
        let back = format!("{here}-back-{minor}");
        copied("web:/tmp/long", &back);
        assert!(std::fs::read_to_string(&back).expect("a file") == long, "{major}.{minor}");
    }
}

fn debug(case: &Case) {
    case.pod("web", "containers: [{name: main, image: IMAGE, command: [sleep, '54321']}]");
    case.until_ready("web");
    // As old kubectls cannot: by the API itself.
    let path = format!("/api/v1/namespaces/{}/pods/web/ephemeralcontainers", case.namespace);
    let image = super::cluster::IMAGE;
    case.patch(
        &path,
        &format!(
            r#"{{"spec":{{"ephemeralContainers":[{{"name":"look","image":"{image}","targetContainerName":"main","command":["ps","-o","args"]}}]}}}}"#
        ),
    );
    let ended = |name: &str| {
        case.until_pod("web", "the end of an ephemeral container", |pod| {
            !container(pod, name).at("state.terminated").is_null()
        });
        case.kubectl(&["logs", "web", "-c", name])
    };
    let seen = ended("look");
    assert!(seen.contains("sleep 54321"), "{seen}");
    debug_by_own_client(case, &ended);
    let ((major, minor), kubectl) = newest();
    if (major, minor) < (1, 27) {
        return;
    }
    let run = |args: &[&str]| success_output(args, &case.run_by(&kubectl, args));
    let image = format!("--image={image}");
    run(&["debug", "web", "-c", "second", &image, "--target=main", "--profile=general", "--", "ps", "-o", "args"]);
    assert!(ended("second").contains("sleep 54321"));
    assert!(run(&["describe", "pod", "web"]).contains("Ephemeral Containers:"));
    run(&[
        "debug",
        "node/node",
        &image,
        "--profile=legacy",
        "--",
        "chroot",
        "/host",
        "sh",
        "-c",
        "hostname; ls -d /etc",
    ]);
    let pods = case.read(&format!("/api/v1/namespaces/{}/pods", case.namespace));
    let names = pods.list("items").iter().map(|pod| pod.str("metadata.name").to_string());
    let node = names.into_iter().find(|name| name.starts_with("node-debugger-node-")).expect("its pod");
    case.until_pod(&node, "its end", |pod| pod.str("status.phase") == "Succeeded");
    assert!(case.kubectl(&["logs", &node]).ends_with("/etc"));
}

/// The same and a copy of the pod by the client of this binary, under its file name.
fn debug_by_own_client(case: &Case, ended: &dyn Fn(&str) -> String) {
    let (_, kubectl) = own(case);
    let image = format!("--image={}", super::cluster::IMAGE);
    let run = |args: &[&str]| success_output(args, &case.run_by(&kubectl, args));
    run(&["debug", "web", "-c", "own", &image, "--target=main", "--", "ps", "-o", "args"]);
    assert!(ended("own").contains("sleep 54321"));
    let attach =
        ["debug", "web", "-c", "attached", "-qi", &image, "--", "sh", "-c", "read line; echo got $line; exec sleep 1"];
    let mut attached = case.command(&kubectl);
    attached.args(attach).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut attached = attached.spawn().expect("kubectl starts");
    attached.stdin.as_mut().expect("it is piped").write_all(b"word\n").expect("kubectl reads");
    // The container goes on for a while: containerd can lose what a program prints right before its end.
    let mut line = String::new();
    let output = attached.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut line).expect("text");
    assert_eq!(line, "got word\n");
    drop(attached.stdin.take());
    attached.wait().expect("kubectl ends");
    run(&["debug", "web", "--copy-to=copied", "-c", "main", "--", "sh", "-c", "echo copied; exec sleep 98765"]);
    case.until_ready("copied");
    assert_eq!(case.kubectl(&["logs", "copied"]), "copied");
    let created = run(&["debug", "node/node", &image, "--", "chroot", "/host", "ls", "-d", "/etc"]);
    let name = created.split(' ').find(|word| word.starts_with("node-debugger-")).expect("the name of the pod");
    case.until_pod(name, "its end", |pod| pod.str("status.phase") == "Succeeded");
    assert_eq!(case.kubectl(&["logs", name]), "/etc");
    case.kubectl(&["delete", "pod", "copied", name, "--now"]);
}
