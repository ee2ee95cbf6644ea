//! Mistakes of a user who joins a machine: each is one sentence that names the flag or the cause, and says what to do.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use super::case::Case;
use super::cluster::{ADDRESS, Cluster, ENTER, Runtime, make_images};
use super::joins::{becomes_ready, configuration, tiphys};
use super::machine::Machine;
use crate::clocks::ShiftedClocks;
use crate::support::BINARY;

const TOKEN: &str = "abcdef.0123456789abcdef";
/// Less than an agent waits for the first signature of a cluster: no case may take that long.
const DEADLINE: Duration = Duration::from_secs(50);
const SIXTY_DAYS: i64 = 60 * 86_400;
const TWENTY_YEARS: i64 = 20 * 365 * 86_400;

/// What a user types after `tiphys agent`, and what must be printed.
struct Mistake<'a> {
    what: &'a str,
    server: &'a str,
    token: &'a str,
    hash: &'a str,
    name: &'a str,
    /// How many seconds the clock is ahead.
    clock: i64,
    wanted: &'a [&'a str],
}

#[test]
fn mistakes_are_explained() {
    let dir = tempfile::tempdir().expect("a directory");
    let words = ["up", "--disable-agent", "--bind-address", "0.0.0.0", "--data-dir", "data"].map(str::to_string);
    let cluster = Cluster::run(dir, Runtime::Embedded, ENTER, &words);
    cluster.enter();
    let all = Case::of_cluster(&cluster);
    let dir = cluster.dir.path();
    let join = tiphys(&cluster, &["token", "create", TOKEN, "--print-join-command"]);
    let hash = join.split_whitespace().last().expect("a hash").to_string();
    make_images(&dir.join("first/runtime/images"));
    fs::write(dir.join("agent.yaml"), configuration(&cluster, "")).expect("a file");
    let words: Vec<&str> = join.split_whitespace().skip(1).collect();
    let own = ["--data-dir=first", "--node-name=taken", "--kubelet-config=agent.yaml"];
    let _agent = cluster.spawn(&[&words[..], &own].concat());
    becomes_ready(&all, "taken");
    // An expired token, which is deleted; and one that machines cannot authenticate with any more.
    tiphys(&cluster, &["token", "create", "fedcba.0123456789abcdef", "--ttl", "1s"]);
    tiphys(&cluster, &["token", "create", "signer.0123456789abcdef", "--usages", "signing"]);
    all.until("no expired token", || tiphys(&cluster, &["token", "list"]), |list| !list.contains("fedcba"));

    let machine = Machine::new(&cluster, "late");
    let server = format!("https://{ADDRESS}:6443");
    let right = Mistake { what: "", server: &server, token: TOKEN, hash: &hash, name: "late", clock: 0, wanted: &[] };
    let other_hash = format!("sha256:{}", "0".repeat(64));
    let unknown: &[&str] = &["is not signed for the token id", "unknown or has expired", "--print-join-command"];
    let wrong_time: &[&str] = &["is not valid at the time of this machine", "set its clock"];
    let cases = [
        Mistake { what: "no token", token: "", wanted: &["--token: this machine has not joined yet"], ..right },
        Mistake { what: "no hash", hash: "", wanted: &["--discovery-token-ca-cert-hash:", "token create"], ..right },
        Mistake {
            what: "half a token",
            token: "abcdef",
            wanted: &["--token: the bootstrap token \"abcdef\" was not of the form", "token create"],
            ..right
        },
        Mistake { what: "an unknown token", token: "absent.0123456789abcdef", wanted: unknown, ..right },
        Mistake { what: "an expired token", token: "fedcba.0123456789abcdef", wanted: unknown, ..right },
        Mistake {
            what: "a wrong secret",
            token: "abcdef.fedcba9876543210",
            wanted: &["invalid signature for this token: the connection may be intercepted"],
            ..right
        },
        Mistake {
            what: "a used-up token",
            token: "signer.0123456789abcdef",
            wanted: &["--token: the API server rejected it", "--print-join-command"],
            ..right
        },
        Mistake {
            what: "the CA of another cluster",
            hash: &other_hash,
            wanted: &["this is another cluster, or the connection is intercepted", &hash],
            ..right
        },
        Mistake { what: "a clock that is ahead", clock: TWENTY_YEARS, wanted: wrong_time, ..right },
        Mistake { what: "a clock that is behind", clock: -SIXTY_DAYS, wanted: wrong_time, ..right },
        Mistake { what: "a clock that was never set", clock: -TWENTY_YEARS, wanted: &["in the past: set it"], ..right },
        Mistake {
            what: "a name that is taken",
            name: "taken",
            wanted: &["--node-name: \"taken\" is the name of another machine", "kubectl delete node taken"],
            ..right
        },
        Mistake { what: "no https", server: "http://192.0.2.10:6443", wanted: &["--server", "https://"], ..right },
        // It is retried: the server may start later.
        Mistake {
            what: "an unreachable server",
            server: "https://192.0.2.10:6449",
            wanted: &["API server unreachable, retrying: check the address of --server, the network and the firewall"],
            ..right
        },
    ];
    let clocks = ShiftedClocks::build();
    std::thread::scope(|scope| {
        for (number, mistake) in (1..).zip(&cases) {
            let (cluster, machine, clocks) = (&cluster, &machine, &clocks);
            scope.spawn(move || check(cluster, machine, clocks, number, mistake));
        }
    });
}

/// The machine shares the network of the cluster here, but not the identity of its first node.
fn check(cluster: &Cluster, machine: &Machine, clocks: &ShiftedClocks, number: u32, mistake: &Mistake) {
    let mut command = cluster.command("nsenter");
    let dir = format!("--wd={}", cluster.dir.path().display());
    command.args([
        "-t",
        &machine.pid,
        "--mount",
        &dir,
        BINARY,
        "agent",
        "--server",
        mistake.server,
        "--node-name",
        mistake.name,
    ]);
    command.args(["--kubelet-config=agent.yaml", &format!("--data-dir=mistake-{number}")]);
    for (flag, value) in [("--token", mistake.token), ("--discovery-token-ca-cert-hash", mistake.hash)] {
        command.args([flag, value].iter().filter(|_| !value.is_empty()));
    }
    clocks.shift(number, mistake.clock);
    clocks.apply(&mut command, number);
    let file = cluster.dir.path().join(format!("mistake-{number}.log"));
    let log = fs::File::create(&file).expect("a file");
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
    let _process = super::case::ChildProcess(command.spawn().expect("nsenter is there"));
    let printed = || fs::read_to_string(&file).unwrap_or_default();
    let is_explained = || {
        let printed = printed();
        mistake.wanted.iter().all(|part| printed.contains(part))
    };
    stdx::wait::until_ok(&format!("the explanation of {}", mistake.what), DEADLINE, || match is_explained() {
        true => Ok(()),
        false => Err(printed()),
    });
}
