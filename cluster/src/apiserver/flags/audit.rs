//! Flags of auditing: which requests are recorded, and the backends of the events. The log and the webhook have the
//! same flags for modes, batches and sizes.

use server::audit::{Format, Mode};

use super::{Flag, Flags, flag, switch};
use crate::flags::FlagError;
use crate::flags::values::{ValueError, boolean, duration, parsed, unknown};

/// The flags of one backend, by its field.
macro_rules! delivery {
    ($field:ident, $text:literal) => {
        &[
            flag(
                concat!("audit-", $text, "-batch-buffer-size"),
                "size of the buffer of audit events [10000]",
                |flags, value| {
                    flags.audit.$field.batch.buffer = parsed(value)?;
                    Ok(())
                },
            ),
            flag(
                concat!("audit-", $text, "-batch-max-size"),
                "maximum audit events per batch [log 1, webhook 400]",
                |flags, value| {
                    flags.audit.$field.batch.max_size = parsed(value)?;
                    Ok(())
                },
            ),
            flag(
                concat!("audit-", $text, "-batch-max-wait"),
                "maximum wait before a batch is sent [log 0s, webhook 30s]",
                |flags, value| {
                    flags.audit.$field.batch.max_wait = duration(value)?;
                    Ok(())
                },
            ),
            flag(concat!("audit-", $text, "-batch-throttle-burst"), "burst of batches [webhook 15]", |flags, value| {
                flags.audit.$field.batch.burst = parsed(value)?;
                Ok(())
            }),
            switch(
                concat!("audit-", $text, "-batch-throttle-enable"),
                "whether batches are throttled [webhook]",
                |flags, value| {
                    flags.audit.$field.batch.throttle = boolean(value)?;
                    Ok(())
                },
            ),
            flag(
                concat!("audit-", $text, "-batch-throttle-qps"),
                "maximum batches per second [webhook 10]",
                |flags, value| {
                    flags.audit.$field.batch.qps = parsed(value)?;
                    Ok(())
                },
            ),
            flag(
                concat!("audit-", $text, "-mode"),
                "batch, blocking or blocking-strict [log blocking, webhook batch]",
                |flags, value| {
                    flags.audit.$field.mode = mode(value)?;
                    Ok(())
                },
            ),
            switch(
                concat!("audit-", $text, "-truncate-enabled"),
                "omit request and response bodies from large events [false]",
                |flags, value| {
                    flags.audit.$field.truncate.enabled = boolean(value)?;
                    Ok(())
                },
            ),
            flag(
                concat!("audit-", $text, "-truncate-max-batch-size"),
                "maximum batch size in bytes [10485760]",
                |flags, value| {
                    flags.audit.$field.truncate.max_batch = parsed(value)?;
                    Ok(())
                },
            ),
            flag(
                concat!("audit-", $text, "-truncate-max-event-size"),
                "maximum event size in bytes [102400]",
                |flags, value| {
                    flags.audit.$field.truncate.max_event = parsed(value)?;
                    Ok(())
                },
            ),
            flag(concat!("audit-", $text, "-version"), "only audit.k8s.io/v1", |_, value| Ok(version(value)?)),
        ]
    };
}

/// Sorted by name, as the next two are.
pub(crate) static FLAGS: &[Flag] = &[
    switch("audit-log-compress", "compress rotated audit logs [false]", |flags, value| {
        flags.audit.rotation.compress = boolean(value)?;
        Ok(())
    }),
    flag("audit-log-format", "json or legacy [json]", |flags, value| {
        flags.audit.format = match value {
            "json" => Format::Json,
            "legacy" => Format::Legacy,
            _ => return Err(unknown("format", value, "json, legacy").into()),
        };
        Ok(())
    }),
    flag("audit-log-maxage", "days to keep rotated audit logs; 0 for no limit [0]", |flags, value| {
        flags.audit.rotation.max_age_days = parsed(value)?;
        Ok(())
    }),
    flag("audit-log-maxbackup", "number of rotated audit logs to keep; 0 for all [0]", |flags, value| {
        flags.audit.rotation.max_backups = parsed(value)?;
        Ok(())
    }),
    flag("audit-log-maxsize", "megabytes at which the audit log is rotated; 0 means 100 [0]", |flags, value| {
        flags.audit.rotation.max_megabytes = parsed(value)?;
        Ok(())
    }),
    flag("audit-log-path", "file of the audit log; - for standard output", |flags, value| {
        flags.audit.log_path = Some(value.into());
        Ok(())
    }),
    flag("audit-policy-file", "a file with the audit Policy", |flags, value| {
        flags.audit.policy_file = Some(value.into());
        Ok(())
    }),
    flag("audit-webhook-batch-initial-backoff", "the old name of --audit-webhook-initial-backoff", backoff),
    flag("audit-webhook-config-file", "a kubeconfig of the webhook that receives audit events", |flags, value| {
        flags.audit.webhook_config_file = Some(value.into());
        Ok(())
    }),
    flag("audit-webhook-initial-backoff", "backoff before the first retry [10s]", backoff),
];

pub(super) static LOG: &[Flag] = delivery!(log, "log");
pub(crate) static WEBHOOK: &[Flag] = delivery!(webhook, "webhook");

fn backoff(flags: &mut Flags, value: &str) -> Result<(), FlagError> {
    flags.audit.initial_backoff = duration(value)?;
    Ok(())
}

fn mode(value: &str) -> Result<Mode, ValueError> {
    match value {
        "batch" => Ok(Mode::Batch),
        "blocking" => Ok(Mode::Blocking),
        "blocking-strict" => Ok(Mode::BlockingStrict),
        _ => Err(unknown("mode", value, "batch, blocking, blocking-strict")),
    }
}

fn version(value: &str) -> Result<(), ValueError> {
    if value == "audit.k8s.io/v1" { Ok(()) } else { Err(unknown("version", value, "audit.k8s.io/v1")) }
}
