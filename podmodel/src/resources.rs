//! Amounts of resources. The three that everything has are fields; all others are a short sorted list.

use api::quantity::Quantity;
use api::{Map, Str};

/// CPU in thousandths, all else in whole units.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Resources {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    /// Huge pages, volumes that attach, and what nodes offer besides. Sorted by name.
    pub others: Vec<(Str, i64)>,
}

pub(crate) const CPU: &str = "cpu";
pub(crate) const MEMORY: &str = "memory";
pub(crate) const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

impl Resources {
    /// Reads a resource list.
    pub fn read(list: &Map) -> Resources {
        let mut resources = Resources::default();
        for (name, quantity) in list.iter() {
            // Quantities may also be written as numbers.
            let quantity = match (quantity.as_str(), quantity.as_int()) {
                (Some(text), _) => Quantity::parse(text).unwrap_or_default(),
                (None, number) => Quantity::new(number.unwrap_or(0), Default::default()),
            };
            resources.set(name, if name == CPU { quantity.milli_value() } else { quantity.value() });
        }
        resources
    }

    /// The amount of a resource; 0 if it is absent.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            CPU => self.milli_cpu,
            MEMORY => self.memory,
            EPHEMERAL_STORAGE => self.ephemeral_storage,
            _ => self.find(name).map_or(0, |at| self.others[at].1),
        }
    }

    /// Names that are no resource of a node are left out.
    pub fn set(&mut self, name: &str, amount: i64) {
        match name {
            CPU => self.milli_cpu = amount,
            MEMORY => self.memory = amount,
            EPHEMERAL_STORAGE => self.ephemeral_storage = amount,
            _ if is_scalar(name) => match self.find(name) {
                Ok(at) => self.others[at].1 = amount,
                Err(at) => self.others.insert(at, (Str::new(name), amount)),
            },
            _ => {}
        }
    }

    /// Adds all amounts of another list.
    pub fn add(&mut self, other: &Resources) {
        self.merge(other, i64::saturating_add);
    }

    /// Names stay, with what is left of them.
    pub fn subtract(&mut self, other: &Resources) {
        self.merge(other, i64::saturating_sub);
    }

    /// The larger of each.
    pub(crate) fn max_with(&mut self, other: &Resources) {
        self.merge(other, i64::max);
    }

    /// Only what another has some of.
    pub(crate) fn retain_resources_of(&mut self, other: &Resources) {
        self.merge(other, |own, other| if other == 0 { 0 } else { own });
        self.others.retain(|(name, _)| other.get(name) != 0);
    }

    /// All that there is some of, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        let first = [(CPU, self.milli_cpu), (EPHEMERAL_STORAGE, self.ephemeral_storage), (MEMORY, self.memory)];
        let others = self.others.iter().map(|(name, amount)| (name.as_str(), *amount));
        first.into_iter().chain(others).filter(|(_, amount)| *amount != 0)
    }

    fn merge(&mut self, other: &Resources, how: fn(i64, i64) -> i64) {
        self.milli_cpu = how(self.milli_cpu, other.milli_cpu);
        self.memory = how(self.memory, other.memory);
        self.ephemeral_storage = how(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.others {
            match self.find(name) {
                Ok(at) => self.others[at].1 = how(self.others[at].1, *amount),
                Err(at) => self.others.insert(at, (name.clone(), how(0, *amount))),
            }
        }
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.others.binary_search_by(|(known, _)| known.as_str().cmp(name))
    }

    /// Whether no resource is requested.
    pub fn is_zero(&self) -> bool {
        (self.milli_cpu, self.memory, self.ephemeral_storage) == (0, 0, 0)
            && self.others.iter().all(|(_, amount)| *amount == 0)
    }
}

fn is_scalar(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    fn read(tree: api::Tree) -> Resources {
        Resources::read(tree.as_map().expect("a map"))
    }

    #[test]
    fn amounts_are_read_and_rounded_up() {
        let read = read(tree! {
            "cpu" => "1500m", "memory" => "1Ki", "ephemeral-storage" => "1.5", "example.com/gpu" => "2",
            "hugepages-2Mi" => "4Mi", "pods" => "110", "storage" => "1",
        });
        assert_eq!((read.milli_cpu, read.memory, read.ephemeral_storage), (1500, 1024, 2));
        assert_eq!((read.get("example.com/gpu"), read.get("hugepages-2Mi"), read.others.len()), (2, 4 << 20, 2));
        assert_eq!((read.get("storage"), read.get("cpu")), (0, 1500));
    }

    #[test]
    fn sums_come_back_and_the_larger_stays() {
        let (one, two) = (read(tree! { "cpu" => "1", "a/b" => "3" }), read(tree! { "cpu" => "2", "a/c" => "1" }));
        let mut sum = one.clone();
        sum.add(&two);
        assert_eq!((sum.milli_cpu, sum.get("a/b"), sum.get("a/c")), (3000, 3, 1));
        sum.subtract(&one);
        sum.subtract(&two);
        assert!(sum.is_zero());
        let mut most = one;
        most.max_with(&two);
        assert_eq!((most.milli_cpu, most.get("a/b"), most.get("a/c")), (2000, 3, 1));
    }
}
