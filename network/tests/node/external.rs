//! Plugin binaries: how they are called, in which order, and how their errors are handled.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use network::cni::cache::Cache;
use network::cni::conf::NetworkList;
use network::cni::invoke::Invoker;
use network::cni::list::{Runner, RuntimeConf};
use network::plugins::Shared;
use serde_json::{Value, json};

use crate::support::{DEBIAN, Host, on_host};

/// A plugin that records its calls, returns the previous result with one more address for ADD, and fails if its
/// configuration requires it.
const PLUGIN: &str = r#"#!/bin/sh
conf=$(cat)
name=$(basename "$0")
directory=$(dirname "$0")
echo "$name $CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS $CNI_PATH" >> "$directory/calls"
echo "$conf" > "$directory/$name-$CNI_COMMAND"
case "$conf" in
*"fail$CNI_COMMAND"*) echo '{"code": 11, "msg": "not now", "details": "later"}'; exit 1 ;;
esac
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.9/24"}], "dns": {"domain": "'$name'"}}'
"#;

struct Fixture<'a> {
    host: &'a Host,
    invoker: Invoker,
    cache: Cache,
}

impl Fixture<'_> {
    fn new(host: &Host) -> Fixture<'_> {
        let bin = host.path("bin");
        fs::create_dir(&bin).expect("a directory");
        for name in ["first", "second"] {
            fs::write(bin.join(name), PLUGIN).expect("a file");
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).expect("executable");
        }
        let invoker = Invoker {
            bin_dirs: vec![host.path("none"), bin],
            builtin: true,
            timeout: Duration::from_secs(60),
            shared: Shared { fresh: false, ..Shared::default() },
        };
        Fixture { host, invoker, cache: Cache::new(&host.path("cache"), "tests") }
    }

    fn runner(&self) -> Runner<'_> {
        Runner { invoker: &self.invoker, cache: &self.cache }
    }

    /// The calls since the last time.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.host.path("bin/calls")).unwrap_or_default();
        let _ = fs::remove_file(self.host.path("bin/calls"));
        text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    }

    fn seen(&self, file: &str) -> Value {
        serde_json::from_slice(&fs::read(self.host.path("bin").join(file)).expect("it was called")).expect("JSON")
    }
}

fn list(version: &str, extra: Value) -> NetworkList {
    let mut json = json!({
        "cniVersion": version, "name": "net",
        "plugins": [{ "type": "first", "capabilities": { "dns": true } }, { "type": "second", "own": 1 }],
    });
    for (key, value) in extra.as_object().expect("an object") {
        json[key] = value.clone();
    }
    NetworkList::parse(json.to_string().as_bytes(), None).expect("a list")
}

fn runtime() -> RuntimeConf {
    RuntimeConf {
        container_id: "pod".to_string(),
        netns: "/proc/1/ns/net".to_string(),
        ifname: "eth0".to_string(),
        args: vec![("K8S_POD_NAME".to_string(), "web".to_string()), ("IgnoreUnknown".to_string(), "1".to_string())],
        capability_args: json!({ "dns": { "servers": ["x"] }, "aliases": ["y"] })
            .as_object()
            .cloned()
            .expect("an object"),
    }
}

#[test]
fn runs_a_chain_of_plugins() {
    on_host(|host| {
        let fixture = Fixture::new(host);
        let (runner, runtime, list) = (fixture.runner(), runtime(), list("1.1.0", json!({})));
        let made = runner.add(&list, &runtime).unwrap();
        assert_eq!((made.dns.domain.as_str(), made.ips.len()), ("second", 1));
        let with_context = fs::read_to_string(host.path("bin/calls")).unwrap();
        let path = format!("{}:{}", host.path("none").display(), host.path("bin").display());
        let first = format!("first ADD pod /proc/1/ns/net eth0 K8S_POD_NAME=web;IgnoreUnknown=1 {path}");
        assert_eq!(with_context.lines().next(), Some(first.as_str()));
        assert_eq!(fixture.calls(), ["first ADD", "second ADD"]);
        let (first, second) = (fixture.seen("first-ADD"), fixture.seen("second-ADD"));
        assert_eq!(first["runtimeConfig"], json!({ "dns": { "servers": ["x"] } }));
        assert_eq!((first.get("prevResult"), &first["name"]), (None, &json!("net")));
        assert_eq!((&second["prevResult"]["dns"]["domain"], &second["own"]), (&json!("first"), &json!(1)));
        assert_eq!((second.get("runtimeConfig"), &second["cniVersion"]), (None, &json!("1.1.0")));

        runner.check(&list, &runtime).unwrap();
        assert_eq!(fixture.calls(), ["first CHECK", "second CHECK"]);
        assert_eq!(fixture.seen("first-CHECK")["prevResult"]["dns"]["domain"], "second");
        runner.status(&list).unwrap();
        assert_eq!(fixture.calls(), ["first STATUS", "second STATUS"]);
        runner.gc(&list, &[("pod".to_string(), "eth0".to_string())]).unwrap();
        assert_eq!(fixture.calls(), ["first GC", "second GC"]);
        assert_eq!(
            fixture.seen("second-GC")["cni.dev/valid-attachments"],
            json!([{ "containerID": "pod", "ifname": "eth0" }])
        );
        runner.del(&list, &runtime).unwrap();
        assert_eq!(fixture.calls(), ["second DEL", "first DEL"]);
        assert_eq!(fixture.seen("first-DEL")["prevResult"]["dns"]["domain"], "second");
        assert_eq!(fixture.cache.all().unwrap(), []);
    });
}

#[test]
fn respects_version_and_flags() {
    on_host(|host| {
        let fixture = Fixture::new(host);
        let (runner, runtime) = (fixture.runner(), runtime());
        let old = list("0.3.1", json!({}));
        runner.add(&old, &runtime).unwrap();
        fixture.calls();
        runner.status(&old).unwrap();
        runner.gc(&old, &[]).unwrap();
        assert!(runner.check(&old, &runtime).is_err());
        assert_eq!(fixture.calls(), [] as [&str; 0]);
        runner.del(&old, &runtime).unwrap();
        assert_eq!(fixture.seen("first-DEL").get("prevResult"), None);
        fixture.calls();

        let quiet = list("1.1.0", json!({ "disableCheck": true, "disableGC": true }));
        runner.check(&quiet, &runtime).unwrap();
        runner.gc(&quiet, &[]).unwrap();
        assert_eq!(fixture.calls(), [] as [&str; 0]);
    });
}

#[test]
fn reports_errors_of_plugins() {
    on_host(|host| {
        let fixture = Fixture::new(host);
        let (runner, runtime) = (fixture.runner(), runtime());
        let failing = |what: &str| json!({ "plugins": [{ "type": "first" }, { "type": "second", "x": what }] });
        let error = runner.add(&list("1.0.0", failing("failADD")), &runtime).unwrap_err();
        let path = host.path("bin/second");
        let text = format!("plugin type=\"second\" failed (add): plugin {}: not now; later", path.display());
        assert_eq!((error.code, error.to_string()), (11, text));
        assert_eq!(fixture.cache.all().unwrap(), []);
        fixture.calls();

        // A DEL that fails does not prevent other plugins' DELs, and the result stays cached.
        let stubborn = list("1.0.0", failing("failDEL"));
        runner.add(&stubborn, &runtime).unwrap();
        fixture.calls();
        assert_eq!(runner.del(&stubborn, &runtime).unwrap_err().code, 11);
        assert_eq!(fixture.calls(), ["second DEL", "first DEL"]);
        assert_eq!(fixture.cache.all().unwrap().len(), 1);
        runner.del(&list("1.0.0", json!({})), &runtime).unwrap();
        let missing = list("1.0.0", json!({ "plugins": [{ "type": "absent" }] }));
        let error = runner.add(&missing, &runtime).unwrap_err().to_string();
        assert!(
            error.starts_with("plugin type=\"absent\" failed (add): failed to find plugin \"absent\" in path"),
            "{error}"
        );
        let outside = list("1.0.0", json!({ "plugins": [{ "type": "../bin/first" }] }));
        assert!(runner.add(&outside, &runtime).is_err());
        assert_eq!(fixture.calls(), ["second DEL", "first DEL"]);
    });
}

/// Debian's host-local and the built-in one run concurrently for one network.
#[test]
fn built_in_and_upstream_host_local_share_leases() {
    on_host(|host| {
        let ipam = json!({ "type": "host-local", "dataDir": host.path("networks"), "ranges": [[{ "subnet": "10.200.1.0/26" }]] });
        let conf = json!({ "cniVersion": "1.0.0", "name": "n", "type": "x", "ipam": ipam }).to_string();
        let debian = format!("{DEBIAN}/host-local");
        let run = |command: &str, number: usize| {
            let mut plugin = match number % 2 {
                0 => Command::new(&debian),
                _ => Command::new(env!("CARGO_BIN_EXE_tiphys-cni")),
            };
            plugin.arg("host-local").env("CNI_COMMAND", command).env("CNI_CONTAINERID", format!("c{number}"));
            plugin.env("CNI_IFNAME", "eth0").env("CNI_NETNS", "/x").env("CNI_PATH", "/none");
            let mut child = plugin.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the plugin");
            std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), conf.as_bytes()).expect("sent");
            child
        };
        let end = |child: std::process::Child| {
            let output = child.wait_with_output().expect("its end");
            (output.status.success(), serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default())
        };
        // The range has 61 free addresses without the gateway.
        let children: Vec<_> = (0..64).map(|number| run("ADD", number)).collect();
        let answers: Vec<_> = children.into_iter().map(end).collect();
        let addresses: std::collections::BTreeSet<String> = answers
            .iter()
            .filter(|(good, _)| *good)
            .map(|(_, result)| result["ips"][0]["address"].to_string())
            .collect();
        let refused = answers.iter().filter(|(good, _)| !good).count();
        assert_eq!((addresses.len(), refused, host.count().leases), (61, 3, 61));
        let refusal = answers.iter().find(|(good, _)| !good).expect("a refusal").1["msg"].to_string();
        assert!(refusal.contains("no IP addresses available in range set"), "{refusal}");
        // A container with an address does not get a second one.
        for number in (0..64).filter(|number| answers[*number].0) {
            let (good, answer) = end(run("ADD", number));
            assert!(!good && answer["msg"].to_string().contains("duplicate allocation is not allowed"), "{answer}");
        }
        let children: Vec<_> = (0..64).map(|number| run("DEL", number)).collect();
        assert!(children.into_iter().map(end).all(|(good, _)| good));
    });
}
