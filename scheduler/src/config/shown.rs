//! A configuration as it is in effect, in the form of the file.

use api::{Tree, list, tree};

use super::plugins::FIELDS;
use super::{API_VERSION, ClientConnection, Configuration, ExtenderConfig, LeaderElection};
use crate::framework::Point;
use crate::profile::Profile;

impl Configuration {
    /// What is shown to those who ask what is in effect: plugins by the points where they are called.
    pub fn shown(&self) -> Tree {
        let seconds = |duration: std::time::Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        tree! {
            "apiVersion" => API_VERSION,
            "kind" => "KubeSchedulerConfiguration",
            "leaderElection" => election(&self.leader_election),
            "clientConnection" => connection(&self.client_connection),
            "enableProfiling" => self.enable_profiling,
            "podInitialBackoffSeconds" => seconds(self.initial_backoff),
            "podMaxBackoffSeconds" => seconds(self.max_backoff),
            "profiles" => self.profiles.iter().map(profile).collect::<Vec<Tree>>(),
            "extenders" => self.extenders.iter().map(extender).collect::<Vec<Tree>>(),
            "delayCacheUntilActive" => self.delay_cache_until_active,
        }
    }
}

fn duration(duration: std::time::Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}

fn election(election: &LeaderElection) -> Tree {
    tree! {
        "leaderElect" => election.elect,
        "leaseDuration" => duration(election.lease_duration),
        "renewDeadline" => duration(election.renew_deadline),
        "retryPeriod" => duration(election.retry_period),
        "resourceLock" => "leases",
        "resourceName" => election.name.as_str(),
        "resourceNamespace" => election.namespace.as_str(),
    }
}

fn connection(connection: &ClientConnection) -> Tree {
    let mut shown = tree! { "kubeconfig" => connection.kubeconfig.as_str() };
    match connection.qps {
        Some(qps) => {
            shown.set("qps", Tree::Float(qps));
            shown.set("burst", i64::from(connection.burst));
        }
        None => shown.set("qps", -1),
    }
    shown
}

fn profile(profile: &Profile) -> Tree {
    let mut plugins = tree! {};
    for (field, point) in FIELDS {
        let one = |position: &usize| {
            let mut one = tree! { "name" => profile.plugin(*position).name() };
            if point == Point::Score {
                one.set("weight", profile.weight(*position));
            }
            one
        };
        let enabled: Vec<Tree> = profile.positions(point).iter().map(one).collect();
        if !enabled.is_empty() {
            plugins.set(field, tree! { "enabled" => enabled });
        }
    }
    // What is not named here is off, whatever the defaults are.
    plugins.set("multiPoint", tree! { "disabled" => list![tree! { "name" => "*" }] });
    let mut shown = tree! { "schedulerName" => profile.scheduler_name.as_str() };
    if let Some(percentage) = profile.percentage_of_nodes_to_score {
        shown.set("percentageOfNodesToScore", i64::from(percentage));
    }
    shown.set("plugins", plugins);
    shown
}

fn extender(extender: &ExtenderConfig) -> Tree {
    tree! {
        "urlPrefix" => extender.url_prefix.as_str(),
        "filterVerb" => extender.filter_verb.as_str(),
        "preemptVerb" => extender.preempt_verb.as_str(),
        "prioritizeVerb" => extender.prioritize_verb.as_str(),
        "bindVerb" => extender.bind_verb.as_str(),
        "weight" => extender.weight,
        "httpTimeout" => duration(extender.timeout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_means_the_same() {
        let shown = Configuration::default().shown();
        let again = super::super::read(&api::json::encode(&shown, None)).unwrap_or_else(|why| panic!("{why:?}"));
        assert_eq!(again.shown(), shown);
        let score = shown.list("profiles")[0].list("plugins.score.enabled");
        assert!(score.iter().any(|one| one.str("name") == "TaintToleration" && one.int("weight") == Some(3)));
    }
}
