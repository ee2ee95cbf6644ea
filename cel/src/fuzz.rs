//! Fuzzing harness: no expression panics for any object, and the limits of costs and steps hold. `fuzz/` runs it with a
//! fuzzer, the test below with mutations of recorded expressions.

use api::{Tree, json};

use crate::{Budget, Env, Expressions, NoSizes, Type, Value};

/// Small, so that an input takes milliseconds.
const COST: u64 = 20_000;

/// The input is an expression, a zero byte and the JSON value of `self`.
pub fn fuzz_cel(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let expression = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let object = parts.next().and_then(|text| json::decode(text).ok()).unwrap_or_default();
    for expressions in [Expressions::New, Expressions::Stored] {
        let env = Env::new(expressions).bindings().mutation().variable("self", Type::Dyn);
        match env.compile(&expression) {
            Ok(program) => run(&program, &object),
            Err(issues) => assert!(!issues.to_string().is_empty(), "an error without a message: {expression}"),
        }
    }
}

fn run(program: &crate::Program, object: &Tree) {
    program.estimate_cost(&NoSizes);
    let Ok(value) = Value::read(object, None) else { return };
    let evaluation = program.evaluate(&[("self", value)], Budget::new(COST));
    if let Ok(value) = evaluation.result {
        let _ = value.to_tree();
    }
}

#[cfg(test)]
mod tests {
    use api::generate::{self, Random};

    use super::*;

    /// The second column of the recorded evaluations.
    fn expressions() -> Vec<&'static str> {
        let rows = include_str!("../tests/kubernetes/evaluations.txt").lines().filter(|line| line.starts_with('{'));
        rows.filter_map(|row| row.split('\t').nth(1)).collect()
    }

    #[test]
    fn expressions_survive_mutations() {
        let (mut random, expressions) = (Random::new(7), expressions());
        assert!(expressions.len() > 700, "{}", expressions.len());
        for _ in 0..10_000 {
            let mut data = expressions[random.below(expressions.len())].as_bytes().to_vec();
            for _ in 0..random.below(4) {
                let at = random.below(data.len() + 1);
                match random.below(4) {
                    0 => data.truncate(at),
                    1 => data.insert(at, b"()[]{}.,:?'\"\\+-*/%!<>=&|019 ers"[random.below(31)]),
                    2 if at < data.len() => drop(data.remove(at)),
                    _ => {
                        let other = expressions[random.below(expressions.len())].as_bytes();
                        let from = random.below(other.len());
                        let piece = other[from..other.len().min(from + random.below(24))].to_vec();
                        data.splice(at..at, piece);
                    }
                }
            }
            data.push(0);
            data.extend(json::encode(&generate::value(random.number()), None));
            fuzz_cel(&data);
        }
    }
}
