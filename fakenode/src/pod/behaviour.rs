//! What a pod's annotations ask of the node that pretends to run it.

use api::Tree;

pub const EXIT_CODE: &str = "tiphys.io/fake-exit-code";
pub const RUN_SECONDS: &str = "tiphys.io/fake-run-seconds";
pub const READY_SECONDS: &str = "tiphys.io/fake-ready-seconds";
pub const STOP_SECONDS: &str = "tiphys.io/fake-stop-seconds";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// After how many seconds the containers end, and with which code; None where they run on.
    pub end: Option<(i64, i64)>,
    /// After how many seconds a container is ready; None for never.
    pub ready_seconds: Option<i64>,
    /// How long a container takes to end once it is told to.
    pub stop_seconds: i64,
}

/// The words of an annotation that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl Behaviour {
    pub fn of(pod: &Tree) -> Result<Behaviour, Unreadable> {
        let annotations = pod.map("metadata.annotations");
        let number = |name: &str, most: i64| match annotations.get(name).and_then(Tree::as_str) {
            None => Ok(None),
            Some(text) => match text.parse::<i64>() {
                Ok(number) if (0..=most).contains(&number) => Ok(Some(number)),
                _ => Err(Unreadable(format!("annotation {name}: {text:?} is no number from 0 to {most}"))),
            },
        };
        let (code, seconds) = (number(EXIT_CODE, 255)?, number(RUN_SECONDS, i64::from(u32::MAX))?);
        let ends = code.is_some() || seconds.is_some();
        let never = annotations.str(READY_SECONDS) == "never";
        let ready = if never { None } else { Some(number(READY_SECONDS, i64::from(u32::MAX))?.unwrap_or(0)) };
        Ok(Behaviour {
            end: ends.then(|| (seconds.unwrap_or(0), code.unwrap_or(0))),
            ready_seconds: ready,
            stop_seconds: number(STOP_SECONDS, i64::from(u32::MAX))?.unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use api::{Map, tree};

    use super::*;

    #[test]
    fn annotations_say_how_a_pod_behaves() {
        let runs = Behaviour { end: None, ready_seconds: Some(0), stop_seconds: 0 };
        let read = |annotations: &[(&str, &str)]| {
            let mut map = Map::new();
            annotations.iter().for_each(|(name, value)| drop(map.insert(*name, *value)));
            Behaviour::of(&tree! { "metadata" => tree! { "annotations" => map } }).map_err(|why| why.0)
        };
        assert_eq!(read(&[]), Ok(runs));
        assert_eq!(read(&[(EXIT_CODE, "3")]), Ok(Behaviour { end: Some((0, 3)), ..runs }));
        assert_eq!(read(&[(RUN_SECONDS, "7")]), Ok(Behaviour { end: Some((7, 0)), ..runs }));
        assert_eq!(read(&[(READY_SECONDS, "never")]), Ok(Behaviour { ready_seconds: None, ..runs }));
        assert_eq!(read(&[(READY_SECONDS, "5")]), Ok(Behaviour { ready_seconds: Some(5), ..runs }));
        assert_eq!(read(&[(STOP_SECONDS, "9")]), Ok(Behaviour { stop_seconds: 9, ..runs }));
        assert_eq!(
            read(&[(EXIT_CODE, "256")]),
            Err(format!("annotation {EXIT_CODE}: \"256\" is no number from 0 to 255"))
        );
        assert!(read(&[(RUN_SECONDS, "soon")]).is_err());
    }
}
