//! Configurations and their errors.

use super::*;
use crate::framework::Point;

fn of(rest: &str) -> Result<Configuration, Vec<String>> {
    read(format!("apiVersion: {API_VERSION}\nkind: KubeSchedulerConfiguration\n{rest}").as_bytes())
}

fn names(profile: &Profile, point: Point) -> Vec<&'static str> {
    profile.at(point).map(|(_, plugin)| plugin.name()).collect()
}

fn weight(profile: &Profile, name: &str) -> i64 {
    profile.weight(profile.position_of(name).expect(name))
}

fn read_well(rest: &str) -> Configuration {
    of(rest).unwrap_or_else(|errors| panic!("{errors:?}"))
}

#[test]
fn empty_configuration_is_the_default() {
    let (parsed, standard) = (read_well(""), Configuration::default());
    let (one, other) = (&parsed.profiles[0], &standard.profiles[0]);
    assert_eq!(one.scheduler_name, other.scheduler_name);
    for point in crate::framework::POINTS {
        assert_eq!(names(one, point), names(other, point), "{point:?}");
    }
    for (position, plugin) in other.at(Point::Score) {
        assert_eq!(weight(one, plugin.name()), other.weight(position), "{}", plugin.name());
    }
    assert_eq!(parsed.leader_election, standard.leader_election);
    assert_eq!((parsed.initial_backoff, parsed.max_backoff), (standard.initial_backoff, standard.max_backoff));
}

#[test]
fn profiles_select_plugins() {
    let text = "
percentageOfNodesToScore: 20
podInitialBackoffSeconds: 2
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled: [{name: TaintToleration, weight: 7}]
      disabled: [{name: ImageLocality}]
    score:
      enabled: [{name: NodeAffinity, weight: 9}]
      disabled: [{name: InterPodAffinity}]
- schedulerName: packer
  percentageOfNodesToScore: 100
  plugins:
    score:
      disabled: [{name: '*'}]
      enabled: [{name: NodeResourcesFit}]
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
";
    let read = read_well(text);
    let [first, packer] = &read.profiles[..] else { panic!("two profiles") };
    assert_eq!(first.percentage_of_nodes_to_score, Some(20));
    assert_eq!(packer.percentage_of_nodes_to_score, Some(100));
    assert_eq!(read.initial_backoff, Duration::from_secs(2));
    let scoring = names(first, Point::Score);
    assert_eq!(scoring[0], "NodeAffinity", "what a point names comes first");
    assert!(!scoring.contains(&"ImageLocality") && !scoring.contains(&"InterPodAffinity"), "{scoring:?}");
    assert!(names(first, Point::Filter).contains(&"InterPodAffinity"));
    assert_eq!((weight(first, "TaintToleration"), weight(first, "NodeAffinity")), (7, 9));
    assert_eq!(names(packer, Point::Score), ["NodeResourcesFit"]);
}

#[test]
#[allow(clippy::too_many_lines)] // A table.
fn errors_have_field_paths() {
    let profile = |rest: &str| format!("profiles: [{{{rest}}}]");
    let args = |name: &str, args: &str| profile(&format!("pluginConfig: [{{name: {name}, args: {{{args}}}}}]"));
    let cases: Vec<(String, &str)> = vec![
        ("paralellism: 3".into(), "paralellism: Forbidden: unknown field"),
        ("parallelism: 0".into(), "parallelism: Invalid value: 0: should be an integer value greater than zero"),
        (
            "percentageOfNodesToScore: 101".into(),
            "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        ),
        ("podInitialBackoffSeconds: 0".into(), "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0"),
        (
            "podMaxBackoffSeconds: 0".into(),
            "podMaxBackoffSeconds: Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        (
            "leaderElection: {resourceLock: endpoints}".into(),
            "leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"",
        ),
        (
            "leaderElection: {leaseDuration: 1s}".into(),
            "leaderElection.leaseDuration: Invalid value: \"1s\": LeaseDuration must be greater than RenewDeadline",
        ),
        (
            "leaderElection: {leaseDuration: soon}".into(),
            "leaderElection.leaseDuration: Invalid value: \"soon\": must be a duration such as 15s",
        ),
        ("profiles: []".into(), "profiles: Required value"),
        (
            "profiles: [{schedulerName: a}, {schedulerName: a}]".into(),
            "profiles[1].schedulerName: Duplicate value: \"a\"",
        ),
        (
            profile("plugins: {score: {enabled: [{name: Nobody}]}}"),
            "profiles[0].plugins.score.enabled[0].name: Unsupported value: \"Nobody\"",
        ),
        (
            profile("plugins: {score: {enabled: [{name: NodeName}]}}"),
            "profiles[0].plugins.score.enabled[0].name: Invalid value: \"NodeName\": plugin does not extend score plugin",
        ),
        (profile("plugins: {scores: {}}"), "profiles[0].plugins.scores: Forbidden: unknown field"),
        (
            profile("plugins: {bind: {disabled: [{name: DefaultBinder}]}}"),
            "profiles[0].plugins.bind: Required value: at least one bind plugin is needed",
        ),
        (
            profile("plugins: {queueSort: {disabled: [{name: '*'}]}}"),
            "profiles[0].plugins.queueSort: Required value: at least one queue sort plugin is needed",
        ),
        (args("NodeName", ""), "profiles[0].pluginConfig[0].name: Unsupported value: \"NodeName\""),
        (
            args("InterPodAffinity", "hardPodAffinityWeight: 101"),
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0-100]",
        ),
        (
            args("InterPodAffinity", "kind: NodeAffinityArgs"),
            "profiles[0].pluginConfig[0].args.kind: Invalid value: \"NodeAffinityArgs\": has to match plugin args",
        ),
        (
            args("NodeResourcesFit", "scoringStrategy: {type: Best}"),
            "profiles[0].pluginConfig[0].args.scoringStrategy.type: Unsupported value: \"Best\"",
        ),
        (
            args("NodeResourcesFit", "scoringStrategy: {type: RequestedToCapacityRatio}"),
            "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be specified",
        ),
        (
            args("NodeResourcesFit", "scoringStrategy: {resources: [{name: cpu, weight: 0}]}"),
            "profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].weight: Invalid value: 0",
        ),
        (
            args("DefaultPreemption", "minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0"),
            "profiles[0].pluginConfig[0].args.minCandidateNodesPercentage: Invalid value: 0: both",
        ),
        (
            args(
                "PodTopologySpread",
                "defaultConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}], defaultingType: List",
            ),
            "profiles[0].pluginConfig[0].args.defaultConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        ),
        (
            args(
                "PodTopologySpread",
                "defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Never}], defaultingType: List",
            ),
            "profiles[0].pluginConfig[0].args.defaultConstraints[0].whenUnsatisfiable: Unsupported value: \"Never\"",
        ),
        (
            args(
                "NodeAffinity",
                "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Is}]}]}}",
            ),
            "profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: \"Is\"",
        ),
        (
            args("VolumeBinding", "bindTimeoutSeconds: -1"),
            "profiles[0].pluginConfig[0].args.bindTimeoutSeconds: Invalid value: -1",
        ),
        (
            "extenders: [{urlPrefix: 'http://a', prioritizeVerb: p}]".into(),
            "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        ),
        (
            "extenders: [{urlPrefix: 'http://a', managedResources: [{name: cpu}]}]".into(),
            "extenders[0].managedResources[0].name: Invalid value: \"cpu\": is an invalid extended resource name",
        ),
        (
            "clientConnection: {burst: many}".into(),
            "clientConnection.burst: Invalid value: \"many\": must be an integer",
        ),
    ];
    for (text, want) in cases {
        let errors = of(&text).err().unwrap_or_default();
        assert!(errors.iter().any(|error| error.starts_with(want)), "{text}: {errors:?}");
    }
    let version = read(b"apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n");
    assert!(version.err().unwrap_or_default()[0].contains(API_VERSION));
}

#[test]
fn policies_are_translated() {
    let policy = |rest: &str| read_policy(format!("{{kind: Policy, apiVersion: v1, {rest}}}").as_bytes());
    let text = "predicates: [{name: PodFitsResources}, {name: Labelled, argument: {labelsPresence: {labels: [disk], presence: true}}}],
        priorities: [{name: MostRequestedPriority, weight: 3}, {name: EqualPriority, weight: 1}, {name: SelectorSpreadPriority, weight: 2}],
        extenders: [{urlPrefix: 'http://a/', filterVerb: f, httpTimeout: 100000000, enableHttps: false}]";
    let read = policy(text).unwrap_or_else(|errors| panic!("{errors:?}"));
    let profile = &read.profiles[0];
    let filters = names(profile, Point::Filter);
    assert_eq!(
        filters,
        [
            "NodeUnschedulable",
            "TaintToleration",
            "NodeAffinity",
            "NodeResourcesFit",
            "DynamicResources",
            "NodeDeclaredFeatures"
        ]
    );
    assert!(names(profile, Point::PreFilter).contains(&"DynamicResources"));
    assert_eq!(names(profile, Point::Score), ["NodeResourcesFit", "PodTopologySpread"]);
    assert_eq!((weight(profile, "NodeResourcesFit"), weight(profile, "PodTopologySpread")), (3, 2));
    assert_eq!(names(profile, Point::Bind), ["DefaultBinder"]);
    assert_eq!(
        (read.extenders[0].url_prefix.as_str(), read.extenders[0].timeout),
        ("http://a", Duration::from_millis(100))
    );
    let cases = [
        ("predicates: [{name: Sorcery}]", "predicates[0].name: Invalid value: \"Sorcery\": no such predicate"),
        (
            "priorities: [{name: NodePreferAvoidPodsPriority, weight: 1}]",
            "priorities[0].name: Invalid value: \"NodePreferAvoidPodsPriority\": no such priority",
        ),
        ("priorities: [{name: EqualPriority}]", "priorities[0].weight: Invalid value: 0: should be a positive value"),
        (
            "predicates: [{name: x, argument: {serviceAffinity: {labels: [a]}}}]",
            "predicates[0].argument.serviceAffinity: Forbidden",
        ),
        ("alwaysCheckAllPredicates: true", "alwaysCheckAllPredicates: Forbidden"),
        ("hardPodAffinitySymmetricWeight: 200", "hardPodAffinitySymmetricWeight: Invalid value: 200"),
    ];
    for (text, want) in cases {
        let errors = policy(text).err().unwrap_or_default();
        assert!(errors.iter().any(|error| error.starts_with(want)), "{text}: {errors:?}");
    }
}
