//! The flags of scheduled snapshots.

use super::{Flag, flag};
use crate::flags::values::parsed;

/// Sorted by name.
pub(super) static FLAGS: &[Flag] = &[
    flag("snapshot-dir", "a directory, or s3://BUCKET/PREFIX, for snapshots [DATA_DIR/snapshots]", |flags, value| {
        flags.snapshots.dir = Some(value.to_string());
        Ok(())
    }),
    flag("snapshot-retention", "the number of snapshots to keep [5]", |flags, value| {
        flags.snapshots.retention = Some(parsed(value)?);
        Ok(())
    }),
    file!("snapshot-s3-ca-file", "CA bundle for the S3-compatible service", snapshots.s3_ca_file),
    file!(
        "snapshot-s3-credentials-file",
        "a file with aws_access_key_id and aws_secret_access_key [the environment]",
        snapshots.s3_credentials_file
    ),
    flag("snapshot-s3-endpoint", "URL of the S3-compatible service [AWS in the region]", |flags, value| {
        flags.snapshots.s3_endpoint = Some(value.to_string());
        Ok(())
    }),
    flag("snapshot-s3-region", "region of the bucket [us-east-1]", |flags, value| {
        flags.snapshots.s3_region = Some(value.to_string());
        Ok(())
    }),
    flag("snapshot-schedule", "cron schedule in UTC of snapshots of the embedded store", |flags, value| {
        flags.snapshots.schedule = Some(value.to_string());
        Ok(())
    }),
];
