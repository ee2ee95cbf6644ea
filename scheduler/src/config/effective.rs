//! The effective configuration in the format of the file.

use api::{Tree, list, tree};

use super::plugins::FIELDS;
use super::{API_VERSION, ClientConnection, Configuration, ExtenderConfig, LeaderElection};
use crate::framework::{Point, Profile};

impl Configuration {
    /// The effective configuration, for `/configz`: plugins by extension point.
    pub fn effective(&self) -> Tree {
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
    let mut effective = tree! { "kubeconfig" => connection.kubeconfig.as_str() };
    match connection.qps {
        Some(qps) => {
            effective.set("qps", Tree::Float(qps));
            effective.set("burst", i64::from(connection.burst));
        }
        None => effective.set("qps", -1),
    }
    effective
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
    // Disables the defaults, so that only the listed plugins are on.
    plugins.set("multiPoint", tree! { "disabled" => list![tree! { "name" => "*" }] });
    let mut effective = tree! { "schedulerName" => profile.scheduler_name.as_str() };
    if let Some(percentage) = profile.percentage_of_nodes_to_score {
        effective.set("percentageOfNodesToScore", i64::from(percentage));
    }
    effective.set("plugins", plugins);
    effective
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
    fn effective_configuration_round_trips() {
        let effective = Configuration::default().effective();
        let again = super::super::read(&api::json::encode(&effective, None)).unwrap_or_else(|why| panic!("{why:?}"));
        assert_eq!(again.effective(), effective);
        let score = effective.list("profiles")[0].list("plugins.score.enabled");
        assert!(score.iter().any(|one| one.str("name") == "TaintToleration" && one.int("weight") == Some(3)));
    }
}
