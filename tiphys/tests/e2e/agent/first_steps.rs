//! What `up` prints to try works as it is printed.

use std::fs;
use std::time::Duration;

use stdx::wait::until;

use super::cluster::{Cluster, Runtime};
use crate::preflight::commands;

#[test]
fn printed_commands_show_an_application_behind_a_service() {
    let cluster = Cluster::up(Runtime::Embedded);
    let printed = || fs::read_to_string(cluster.dir.path().join("log")).unwrap_or_default();
    until("the end of its text", Duration::from_secs(60), || printed().contains("ctrl-c stops it"));
    let lines: Vec<String> = printed().lines().map(str::to_string).collect();
    let commands = commands(&lines);
    assert_eq!(commands.len(), 9, "{commands:#?}");
    let script = commands.join("\n");
    let mut shell = cluster.command("sh");
    let output = shell.args(["-e", "-c", &script]).env_remove("KUBECONFIG").output().expect("nsenter is there");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{text}\n{errors}\n{}", cluster.log());
    let served = text.lines().skip_while(|line| !line.contains("condition met")).nth(1).unwrap_or_default();
    assert!(served.contains("hello"), "what curl shows: {text}");
    assert_eq!(text.matches(" deleted").count(), 3, "{text}");
    assert!(text.contains("cluster tiphys runs since"), "{text}");
}
