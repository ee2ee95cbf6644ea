//! The kinds of the `autoscaling` group, one file per kind. HorizontalPodAutoscaler is stored as v2; v1 is converted.

mod conversion;
pub mod horizontal_pod_autoscaler;
pub mod horizontal_pod_autoscaler_v1;
