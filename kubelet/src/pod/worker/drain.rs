//! How long a deleted pod keeps running, so that service proxies can take it out of rotation first. A condition of the
//! pod announces that the proxies will confirm, and then that they have.

use api::{Tree, time};

use crate::model::pod;

/// False while proxies may send requests to the pod, True once all have confirmed that they do not.
pub(crate) const OUT_OF_ROTATION: &str = "tiphys.io/OutOfRotation";
const SECOND: i64 = 1_000_000_000;

/// Until when a deleted pod keeps running, in nanoseconds like `since`, when the deletion was first seen; None if it is
/// to be stopped now. Half of the grace period is always left for the pod itself.
pub(crate) fn held_until(pod: &Tree, since: i64, now: i64) -> Option<i64> {
    let grace = pod.int("metadata.deletionGracePeriodSeconds").unwrap_or(0);
    let until = since.saturating_add(grace.saturating_mul(SECOND) / 2);
    (pod::is_deleted(pod) && is_in_rotation(pod) && now < until).then_some(until)
}

/// When a pod was deleted according to the API, in nanoseconds; None if it was not.
pub(crate) fn deleted_at(pod: &Tree) -> Option<i64> {
    let ends = time::parse(pod.str("metadata.deletionTimestamp")).ok()?.seconds;
    let grace = pod.int("metadata.deletionGracePeriodSeconds").unwrap_or(0);
    Some(ends.saturating_sub(grace).saturating_mul(SECOND))
}

fn is_in_rotation(pod: &Tree) -> bool {
    let conditions = pod.list("status.conditions").iter();
    let out_of_rotation = conditions.into_iter().find(|condition| condition.str("type") == OUT_OF_ROTATION);
    out_of_rotation.is_some_and(|condition| condition.str("status") == "False")
}

#[cfg(test)]
mod tests {
    use api::yaml;

    use super::*;

    #[test]
    fn pod_in_rotation_keeps_running_for_half_its_grace_period() {
        let condition = |status: &str| format!("{{type: {OUT_OF_ROTATION}, status: {status:?}}}");
        // The condition, the grace period, seconds since the deletion was seen; until when.
        let cases = [
            ("False", 30, 0, Some(115)),
            ("False", 30, 14, Some(115)),
            ("False", 30, 15, None),
            ("True", 30, 0, None),
            ("False", 0, 0, None),
            ("False", 1, 0, Some(100)),
            ("", 30, 0, None),
        ];
        for (out_of_rotation, grace, passed, expected) in cases {
            let conditions = if out_of_rotation.is_empty() { String::new() } else { condition(out_of_rotation) };
            let text = format!(
                "{{metadata: {{deletionTimestamp: x, deletionGracePeriodSeconds: {grace}}}, status: {{conditions: [{conditions}]}}}}"
            );
            let pod = yaml::decode(text.as_bytes()).expect("a pod");
            let held = held_until(&pod, 100 * SECOND, (100 + passed) * SECOND).map(|until| until / SECOND);
            assert_eq!(held, expected, "{out_of_rotation} {grace} {passed}");
        }
        let text = "{metadata: {deletionTimestamp: '1970-01-01T00:01:40Z', deletionGracePeriodSeconds: 30}}";
        assert_eq!(deleted_at(&yaml::decode(text.as_bytes()).expect("a pod")), Some(70 * SECOND));
        let alive = yaml::decode(format!("{{status: {{conditions: [{}]}}}}", condition("False")).as_bytes());
        assert_eq!(held_until(&alive.expect("a pod"), 0, 0), None, "it was not deleted");
    }
}
