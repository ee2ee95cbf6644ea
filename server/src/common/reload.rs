//! Metrics of configuration files that are reloaded while the server runs, under upstream's names: the number of
//! reloads and the hash of the current file.

use aws_lc_rs::digest;
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// The metrics of one file.
pub struct Reloads {
    total: IntCounterVec,
    last: IntGaugeVec,
    info: IntGaugeVec,
    server: String,
}

impl Reloads {
    /// `what` is authentication, authorization or encryption; `data` is in force now.
    pub fn new(registry: &Registry, what: &str, data: &[u8]) -> prometheus::Result<Reloads> {
        let options = |end: &str, help: String| Opts::new(format!("apiserver_{what}_config_controller_{end}"), help);
        let labels = &["status", "apiserver_id_hash"];
        let total = options("automatic_reloads_total", reloads_help(what));
        let last = options("automatic_reload_last_timestamp_seconds", last_reload_help(what));
        let info = options(
            "last_config_info",
            format!(
                "Information about the last applied {what} configuration with hash as label, split by apiserver identity."
            ),
        );
        let reloads = Reloads {
            total: IntCounterVec::new(total, labels)?,
            last: IntGaugeVec::new(last, labels)?,
            info: IntGaugeVec::new(info, &["apiserver_id_hash", "hash"])?,
            server: hash(super::identity::server_id().as_bytes()),
        };
        registry.register(Box::new(reloads.total.clone()))?;
        registry.register(Box::new(reloads.last.clone()))?;
        registry.register(Box::new(reloads.info.clone()))?;
        reloads.show(data);
        Ok(reloads)
    }

    /// This data is in force from now on.
    pub fn succeeded(&self, now: i64, data: &[u8]) {
        self.count("success", now);
        self.show(data);
    }

    /// Something is wrong with new data, and the old is in force still.
    pub fn failed(&self, now: i64) {
        self.count("failure", now);
    }

    fn count(&self, status: &str, now: i64) {
        self.total.with_label_values(&[status, &self.server]).inc();
        self.last.with_label_values(&[status, &self.server]).set(now);
    }

    fn show(&self, data: &[u8]) {
        self.info.reset();
        self.info.with_label_values(&[&self.server, &hash(data)]).set(1);
    }
}

/// The hash of a file's content, in the form of upstream's metrics.
pub fn hash(bytes: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, bytes);
    let hex = stdx::hex::encode(digest.as_ref());
    format!("sha256:{hex}")
}

/// Upstream's words differ for encryption.
fn reloads_help(what: &str) -> String {
    match what {
        "encryption" => {
            format!(
                "Total number of reload successes and failures of {what} configuration split by apiserver identity."
            )
        }
        _ => {
            format!("Total number of automatic reloads of {what} configuration split by status and apiserver identity.")
        }
    }
}

fn last_reload_help(what: &str) -> String {
    match what {
        "encryption" => format!(
            "Timestamp of the last successful or failed automatic reload of {what} configuration split by apiserver identity."
        ),
        _ => format!(
            "Timestamp of the last automatic reload of {what} configuration split by status and apiserver identity."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_in_force_is_shown() {
        assert_eq!(hash(b"testAPIServerID"), "sha256:14f9d63e669337ac6bfda2e2162915ee6a6067743eddd4e5c374b572f951ff37");
        let registry = Registry::new();
        let reloads = Reloads::new(&registry, "authorization", b"one").expect("metrics");
        reloads.failed(7);
        reloads.succeeded(8, b"two");
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
        let lines = |part: &str| text.lines().filter(|line| line.contains(part) && !line.starts_with('#')).count();
        assert_eq!(lines("apiserver_authorization_config_controller_last_config_info{"), 1, "{text}");
        assert!(text.contains(&format!("hash=\"{}\"}} 1", hash(b"two"))), "{text}");
        assert_eq!(lines("automatic_reloads_total{"), 2, "{text}");
        assert!(text.contains("status=\"failure\"} 7") && text.contains("status=\"success\"} 8"), "{text}");
    }
}
