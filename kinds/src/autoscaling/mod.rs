//! The kinds of the `autoscaling` group, one file per kind. HorizontalPodAutoscaler is stored as v2; v1 is converted.

mod conversion;
pub(crate) mod horizontal_pod_autoscaler;
pub(crate) mod horizontal_pod_autoscaler_v1;
