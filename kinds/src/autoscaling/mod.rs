//! The kinds of the `autoscaling` group, a file a kind.

pub mod horizontal_pod_autoscaler;
pub mod horizontal_pod_autoscaler_v1;
