//! A custom resource with typical rules, and the evaluation of these rules alone.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cel::{Budget, Env, Expressions, Program, Schema, Value};

use crate::Result;
use crate::figure::{BenchmarkResult, Goal, Report};

/// Rules as authors of operators write them: comparisons, optional fields, strings, lists and maps.
pub(super) const RULES: &[&str] = &[
    "self.replicas <= self.maxReplicas",
    "self.minReplicas <= self.replicas",
    "!has(self.paused) || !self.paused || self.replicas == 0",
    "self.mode in ['Always', 'Never', 'OnDemand']",
    "self.image.startsWith('registry.') || self.image.contains('/')",
    "self.schedule.split(' ').size() == 5",
    "self.hostname.matches('^[a-z][-a-z0-9]*$')",
    "self.ports.all(p, p.port > 0 && p.port < 65536)",
    "self.ports.exists_one(p, p.name == 'http')",
    "self.labels.all(key, key.size() < 64)",
];

const SPEC: &str = r#""type":"object","required":["replicas","maxReplicas","minReplicas","mode","image","schedule","hostname","ports","labels"],"properties":{"replicas":{"type":"integer","minimum":0},"minReplicas":{"type":"integer","minimum":0},"maxReplicas":{"type":"integer","minimum":0},"paused":{"type":"boolean","default":false},"mode":{"type":"string","enum":["Always","Never","OnDemand"]},"image":{"type":"string","maxLength":256},"schedule":{"type":"string","maxLength":64,"pattern":"^\\S+ \\S+ \\S+ \\S+ \\S+$"},"hostname":{"type":"string","maxLength":63},"ports":{"type":"array","maxItems":16,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port"],"items":{"type":"object","required":["port","name"],"properties":{"port":{"type":"integer"},"name":{"type":"string","maxLength":63}}}},"labels":{"type":"object","maxProperties":32,"additionalProperties":{"type":"string","maxLength":63}},"payload":{"type":"string"}}"#;

const VALUES: &str = r#""replicas":2,"minReplicas":1,"maxReplicas":3,"mode":"Always","image":"registry.example/web:1.2.3","schedule":"0 4 * * 1","hostname":"web-1","ports":[{"port":8080,"name":"http"},{"port":9090,"name":"metrics"}],"labels":{"app":"web","tier":"front","release":"stable"}"#;

/// The schema of a version, with these rules at its spec.
pub(super) fn schema(rules: &[&str]) -> String {
    format!(r#"{{"type":"object","properties":{{"spec":{}}}}}"#, spec_schema(rules))
}

fn spec_schema(rules: &[&str]) -> String {
    if rules.is_empty() {
        return format!("{{{SPEC}}}");
    }
    let rules: Vec<String> = rules.iter().map(|rule| format!(r#"{{"rule":"{rule}"}}"#)).collect();
    format!(r#"{{{SPEC},"x-kubernetes-validations":[{}]}}"#, rules.join(","))
}

/// A numbered object of this many bytes as it is sent, which all rules accept.
pub(super) fn object(group: &str, kind: &str, prefix: &str, bytes: usize) -> String {
    let head = format!(
        r#"{{"kind":"{kind}","apiVersion":"{group}/v1","metadata":{{"name":"{prefix}-########"}},"spec":{{{VALUES},"payload":""#
    );
    let filler = "0123456789abcdef".repeat(bytes / 16 + 1);
    format!("{head}{}\"}}}}", &filler[..bytes.saturating_sub(head.len() + 3)])
}

/// Evaluations of a batch; the best batch of a rule is an undisturbed one.
const EVALUATIONS: u32 = 500;
const BATCHES: usize = 50;

/// The evaluation alone, without the request around it.
pub(super) fn run(report: &mut Report) -> Result<()> {
    let schema = Schema::from_tree(&decode(&spec_schema(&[]))?)?;
    let declared = schema.declare().ok_or("the spec has no type")?.with_name("selfType");
    let env = Env::new(Expressions::New).declared_variable("self", &declared);
    let values = decode(&format!("{{{VALUES},\"paused\":false}}"))?;
    let activation = [("self", Value::read(&values, Some(&schema))?)];
    let mut times = Vec::new();
    for rule in RULES {
        let program = env.compile(rule).map_err(|issues| format!("{rule}: {issues}"))?;
        times.push(measure(&program, &activation).map_err(|error| format!("{rule}: {error}"))?);
    }
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    report.add(&BenchmarkResult {
        name: "a rule, mean of 10",
        value: mean,
        unit: "us",
        limit: 2.0,
        goal: Goal::AtMost(1.0),
    });
    let slowest = times.iter().copied().fold(0.0, f64::max);
    report.add(&BenchmarkResult {
        name: "the slowest rule of 10",
        value: slowest,
        unit: "us",
        limit: 2.0,
        goal: Goal::Nothing,
    });
    Ok(())
}

fn decode(text: &str) -> Result<api::Tree> {
    api::json::decode(text.as_bytes()).map_err(|error| error.to_string().into())
}

/// Microseconds of an evaluation.
fn measure(program: &Program, activation: &[(&str, Value<'_>); 1]) -> Result<f64> {
    let mut best = Duration::MAX;
    for _ in 0..BATCHES {
        let started = Instant::now();
        for _ in 0..EVALUATIONS {
            let evaluation = program.evaluate(black_box(activation), Budget::default());
            if evaluation.result?.as_bool() != Some(true) {
                return Err("the rule does not hold".into());
            }
        }
        best = best.min(started.elapsed());
    }
    Ok(best.as_secs_f64() * 1e6 / f64::from(EVALUATIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_json_of_the_documented_size() {
        let text = object("bench.example.com", "Plain", "create", 1024);
        assert_eq!(text.len(), 1024);
        decode(&text).expect("JSON");
        decode(&schema(RULES)).expect("JSON");
    }

    #[test]
    fn every_rule_holds_for_the_object() {
        run(&mut Report::new(true)).expect("rules that hold");
    }
}
