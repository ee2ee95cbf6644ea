//! For tests that mount: a mount namespace of their own, which ends with them.

use std::process::Command;

/// Whether this is the run that may mount. The first run starts the test again, in mounts of its own.
pub(crate) fn is_in_own_mount_namespace(test: &str) -> bool {
    if std::env::var_os("MOUNTS_APART").is_some() {
        return true;
    }
    let mut again = Command::new("unshare");
    again.args(["--mount", "--propagation", "private"]).arg(std::env::current_exe().unwrap());
    let output = again.args(["--exact", test, "--nocapture"]).env("MOUNTS_APART", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "it ran: {text}");
    false
}
